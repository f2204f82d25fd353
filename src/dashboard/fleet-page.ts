import type { QueueStatus } from '../inspect/index.ts'
import { parseRate } from '../rate.ts'

/** The sort keys of a page. */
export const SORTS = ['name', 'rate', 'arrivals', 'departures', 'refusals', 'depth', 'age'] as const
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
}

/** What is kept of each of very many queues. */
export interface FleetRow {
  readonly name: string
  readonly atMs: number
  readonly totals: readonly [accepted: number, departed: number, refused: number]
  /** Badges, in lower case. */
  readonly labels: string
  readonly active: number
  readonly rate: number
  readonly depth: number
  readonly age: number
  /** Jobs per second since the previous read; -1 before the second read. */
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
  /** Queues with a badge. */
  readonly marked: number
}

/** @param before the same queue at the previous read */
export function rowOf(status: QueueStatus, before?: FleetRow): FleetRow {
  const { name, at, active, depth, headAgeMs: age = -1, rate } = status
  const totals = [status.acceptedTotal, status.departedTotal, status.refusedTotal] as const
  const seconds = before ? (at.getTime() - before.atMs) / 1000 : 0
  const perSecond = (i: 0 | 1 | 2) => (before && seconds > 0 ? Math.max(0, totals[i] - before.totals[i]) / seconds : -1)
  return {
    ...{ name, totals, active, depth, age },
    atMs: at.getTime(),
    labels: labelsOf(status).join(' ').toLowerCase(),
    rate: rate === undefined ? Number.POSITIVE_INFINITY : unitsPerSecond(rate),
    arrivals: perSecond(0),
    departures: perSecond(1),
    refusals: perSecond(2),
  }
}

function unitsPerSecond(rate: string): number {
  const { limit, periodMs } = parseRate(rate)
  return (limit * 1000) / periodMs
}

/**
 * What is out of the ordinary about a queue: the badges of the page, as worded by `statesOf` of `web/base/queue-text.js`.
 */
export function labelsOf(status: QueueStatus): string[] {
  const { shape, feedback, capacity, depth } = status
  const labels: readonly (readonly [string, boolean])[] = [
    ['Paused', status.paused],
    ['Paused', status.pausedUntil !== undefined],
    ['Feedback', status.cause === 'feedback' || status.concurrency?.cause === 'feedback' || feedback?.probing === true],
    ['Override', Object.keys(shape?.overrides ?? {}).length > 0],
    ['Shadow', shape?.mode === 'shadow'],
    ['Off', shape?.mode === 'off'],
    ['Full', capacity !== undefined && depth >= capacity],
    ['No worker', status.waiting > 0 && status.workers.length === 0],
  ]
  return labels.flatMap(([label, is]) => (is ? [label] : []))
}

/** The rows that match, sorted. */
export function arranged(rows: Iterable<FleetRow>, { filter, sort, down }: PageTerms): FleetRow[] {
  const words = filter.trim().toLowerCase().split(/\s+/)
  const found = [...rows].filter(({ name, labels }) => {
    const text = `${name.toLowerCase()} ${labels}`
    return words.every((word) => text.includes(word))
  })
  const sign = down ? -1 : 1
  return found.sort((one, other) => {
    const [a, b] = [one[sort], other[sort]]
    return sign * (a < b ? -1 : a > b ? 1 : one.name < other.name ? -1 : 1)
  })
}

export function sumsOf(rows: Iterable<FleetRow>): FleetSums {
  const sums = { arrivals: 0, departures: 0, refusals: 0, depth: 0, active: 0, marked: 0 }
  for (const row of rows) {
    for (const key of ['arrivals', 'departures', 'refusals'] as const) sums[key] += Math.max(0, row[key])
    sums.depth += row.depth
    sums.active += row.active
    sums.marked += Number(row.labels !== '')
  }
  return sums
}
