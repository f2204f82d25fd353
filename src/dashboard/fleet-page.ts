import type { QueueStatus } from '../inspect/index.ts'
import { unitsPerSecond } from '../rate.ts'

/** The sort keys of a page. */
export const SORTS = ['look', 'name', 'rate', 'arrivals', 'departures', 'refusals', 'depth', 'failed', 'age'] as const
export type Sort = (typeof SORTS)[number]

/** The requested part of very many queues. */
export interface PageTerms {
  readonly start: number
  readonly count: number
  readonly sort: Sort
  /** Whether the order is descending. */
  readonly down: boolean
  /** Parts of names and badges, all of which have to match. */
  readonly filter: string
  /** Whether only queues with a badge are wanted. */
  readonly marked: boolean
}

/** What is kept of each of very many queues. */
export interface FleetRow {
  readonly name: string
  readonly atMs: number
  readonly totals: readonly [accepted: number, departed: number, refused: number]
  /** The parts that the totals lack. */
  readonly unread: string
  /** Badges, in lower case. */
  readonly labels: string
  /** Greater where a look is needed sooner. */
  readonly look: number
  readonly failed: number
  readonly active: number
  readonly rate: number
  readonly depth: number
  readonly age: number
  /** Jobs per second since the previous read; -1 before the second read, and where the totals of one of the two lack a part. */
  readonly arrivals: number
  readonly departures: number
  readonly refusals: number
}

export interface FleetSums {
  readonly arrivals: number
  readonly departures: number
  readonly refusals: number
  readonly depth: number
  readonly active: number
  readonly failed: number
  /** Queues with a badge. */
  readonly marked: number
}

/** @param before the same queue at the previous read */
export function rowOf(status: QueueStatus, before?: FleetRow): FleetRow {
  const { name, at, active, depth, failed, headAgeMs: age = -1, rate } = status
  const labels = labelsOf(status)
  const totals = [status.acceptedTotal, status.departedTotal, status.refusedTotal] as const
  const unread = String(status.unread ?? '')
  const isComparable = before?.unread === unread && !status.unread?.includes('queue')
  const seconds = before && isComparable ? (at.getTime() - before.atMs) / 1000 : 0
  const perSecond = (i: 0 | 1 | 2) => (before && seconds > 0 ? Math.max(0, totals[i] - before.totals[i]) / seconds : -1)
  return {
    ...{ name, totals, unread, active, depth, failed, age },
    atMs: at.getTime(),
    labels: labels.join(' ').toLowerCase(),
    look: urgencyOf(labels),
    rate: rate === undefined ? Number.POSITIVE_INFINITY : unitsPerSecond(rate),
    arrivals: perSecond(0),
    departures: perSecond(1),
    refusals: perSecond(2),
  }
}

/** The oldest job starves where it has waited this long, and so many times as long as the one that leaves next. */
const STARVING_MS = 60_000
const STARVING_TIMES = 10

type Label = readonly [label: string, is: (status: QueueStatus) => boolean]

/** The badges of the page, what needs a look first at the top, as `STATES` of `web/base/states.js`. */
const LABELS: readonly Label[] = [
  ['Unread', ({ unread }) => unread !== undefined],
  ['No worker', (queue) => queue.waiting > 0 && queue.workers.length === 0 && !areAllHeld(queue)],
  ['Not taken', isUntaken],
  ['Full', ({ capacity, depth }) => capacity !== undefined && depth >= capacity],
  ['Starving', isStarving],
  ['Groups held', ({ groups }) => groups !== undefined && groups.paused + groups.maxed > 0],
  ['Paused', ({ paused, pausedUntil }) => paused || pausedUntil !== undefined],
  ['At concurrency', isCrowded],
  ['Feedback', isFedBack],
  ['Override', ({ shape }) => Object.keys(shape?.overrides ?? {}).length > 0],
  ['Shadow', ({ shape }) => shape?.mode === 'shadow'],
  ['Off', ({ shape }) => shape?.mode === 'off'],
]

/** What is out of the ordinary about a queue. */
export function labelsOf(status: QueueStatus): string[] {
  return LABELS.flatMap(([label, is]) => (is(status) ? [label] : []))
}

/** Greater where a look is needed sooner. */
export function urgencyOf(labels: readonly string[]): number {
  return LABELS.reduce((sum, [label]) => 2 * sum + Number(labels.includes(label)), 0)
}

/** Whether all waiting jobs belong to groups that are held. Workers that find none to take do not report. */
function areAllHeld({ groups, waiting, grouped = 0 }: QueueStatus): boolean {
  if (!groups || groups.waiting > 0) return false
  // Read a moment later than the others.
  return grouped >= waiting && groups.paused + groups.maxed + groups.limited > 0
}

function isStarving({ headAgeMs, oldestAgeMs }: QueueStatus): boolean {
  if (headAgeMs === undefined || oldestAgeMs === undefined) return false
  return oldestAgeMs >= Math.max(STARVING_MS, STARVING_TIMES * headAgeMs)
}

/** Where the limit on running jobs holds the next one for this long, they may hang. */
const CROWDED_MS = 60_000

function isCrowded({ hold, headAgeMs = 0 }: QueueStatus): boolean {
  return hold?.cause === 'concurrency' && hold.group === undefined && headAgeMs >= CROWDED_MS
}

/** Where workers report but have not asked for a job for this long, their jobs may hang. */
const UNTAKEN_MS = 60_000

function isUntaken(status: QueueStatus): boolean {
  const { hold, at, workers } = status
  if (hold?.cause !== 'workers' || workers.length === 0 || areAllHeld(status)) return false
  return at.getTime() - hold.since.getTime() >= UNTAKEN_MS
}

function isFedBack({ cause, concurrency, feedback }: QueueStatus): boolean {
  return cause === 'feedback' || concurrency?.cause === 'feedback' || feedback?.probing === true
}

/** The rows that match, sorted. */
export function arranged(rows: Iterable<FleetRow>, { filter, sort, down, marked }: PageTerms): FleetRow[] {
  const words = filter.trim().toLowerCase().split(/\s+/)
  const found = [...rows].filter(({ name, labels }) => {
    if (marked && labels === '') return false
    const text = `${name.toLowerCase()} ${labels}`
    return words.every((word) => text.includes(word))
  })
  const sign = down ? -1 : 1
  return found.sort((one, other) => {
    const [a, b] = [one[sort], other[sort]]
    return a < b ? -sign : a > b ? sign : one.name < other.name ? -1 : 1
  })
}

export function sumsOf(rows: Iterable<FleetRow>): FleetSums {
  const sums = { arrivals: 0, departures: 0, refusals: 0, depth: 0, active: 0, failed: 0, marked: 0 }
  for (const row of rows) {
    for (const key of ['arrivals', 'departures', 'refusals'] as const) sums[key] += Math.max(0, row[key])
    sums.depth += row.depth
    sums.active += row.active
    sums.failed += row.failed
    sums.marked += Number(row.labels !== '')
  }
  return sums
}
