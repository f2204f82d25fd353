import type { QueueStatus } from 'sluice/inspect'
import { unitsPerSecond, urgencyOf } from 'sluice/internal'

/** The sort keys of a page. */
export const SORTS = [
  ...(['look', 'name', 'rate', 'arrivals', 'departures', 'refusals'] as const),
  ...(['completions', 'failures', 'depth', 'age'] as const),
] as const
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
  readonly totals: readonly [
    ...[accepted: number, departed: number, refused: number],
    ...[completed: number, failedAttempts: number],
  ]
  /** The parts that the totals lack. */
  readonly unread: string
  /** In lower case. */
  readonly badges: string
  /** Greater where a look is needed sooner. */
  readonly look: number
  readonly active: number
  readonly rate: number
  readonly depth: number
  readonly age: number
  /** Jobs per second since the previous read; -1 before the second read, and where the totals of one of the two lack a part. */
  readonly arrivals: number
  readonly departures: number
  readonly refusals: number
  readonly completions: number
  /** Attempts that failed, whether the job was retried or not. */
  readonly failures: number
}

export interface FleetSums {
  readonly arrivals: number
  readonly departures: number
  readonly refusals: number
  readonly completions: number
  readonly failures: number
  readonly depth: number
  readonly active: number
  /** Queues with a badge. */
  readonly marked: number
}

/** @param before the same queue at the previous read */
export function rowOf(status: QueueStatus, before?: FleetRow): FleetRow {
  const { name, at, active, depth, headAgeMs: age = -1, rate } = status
  const { acceptedTotal, departedTotal, refusedTotal, completedTotal, failedAttemptsTotal } = status
  const totals = [acceptedTotal, departedTotal, refusedTotal, completedTotal, failedAttemptsTotal] as const
  const unread = String(status.unread ?? '')
  const isComparable = before?.unread === unread && !status.unread?.includes('queue')
  const seconds = before && isComparable ? (at.getTime() - before.atMs) / 1000 : 0
  const perSecond = (i: 0 | 1 | 2 | 3 | 4) =>
    before && seconds > 0 ? Math.max(0, totals[i] - before.totals[i]) / seconds : -1
  return {
    ...{ name, totals, unread, active, depth, age },
    atMs: at.getTime(),
    badges: status.conditions.map(({ name }) => name.toLowerCase()).join(' '),
    look: urgencyOf(status.conditions),
    rate: rate === undefined ? Number.POSITIVE_INFINITY : unitsPerSecond(rate),
    arrivals: perSecond(0),
    departures: perSecond(1),
    refusals: perSecond(2),
    completions: perSecond(3),
    failures: perSecond(4),
  }
}

/** The rows that match, sorted. */
export function arranged(rows: Iterable<FleetRow>, { filter, sort, down, marked }: PageTerms): FleetRow[] {
  const words = filter.trim().toLowerCase().split(/\s+/)
  const found = [...rows].filter(({ name, badges }) => {
    if (marked && badges === '') return false
    const text = `${name.toLowerCase()} ${badges}`
    return words.every((word) => text.includes(word))
  })
  const sign = down ? -1 : 1
  return found.sort((one, other) => {
    const [a, b] = [one[sort], other[sort]]
    return a < b ? -sign : a > b ? sign : one.name < other.name ? -1 : 1
  })
}

const FLOWS = ['arrivals', 'departures', 'refusals', 'completions', 'failures'] as const

export function sumsOf(rows: Iterable<FleetRow>): FleetSums {
  const flows = { arrivals: 0, departures: 0, refusals: 0, completions: 0, failures: 0 }
  const sums = { ...flows, depth: 0, active: 0, marked: 0 }
  for (const row of rows) {
    for (const key of FLOWS) sums[key] += Math.max(0, row[key])
    sums.depth += row.depth
    sums.active += row.active
    sums.marked += Number(row.badges !== '')
  }
  return sums
}
