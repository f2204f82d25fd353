import type { RateInput } from 'sluice'
import { intervalUs, MAX_COST, parseRate } from 'sluice/internal'
import { type Arrival, InvalidArrivalsError } from './arrival.ts'
import { type Random, randomOf } from './random.ts'

/** The spacing of arrivals: regular, random, or in groups at random times. */
export type LoadPattern = 'even' | 'poisson' | 'bursty'

/** A period with a mean rate of arrivals. */
export interface LoadPart {
  readonly rate: RateInput
  readonly forMs: number
}

export interface LoadOptions {
  /** In sequence. */
  readonly parts: readonly LoadPart[]
  /** Default `poisson`. */
  readonly pattern?: LoadPattern
  /** For `bursty`: mean number of jobs in a group; the number is geometric. Default 10. */
  readonly groupSize?: number
  /** The same seed gives the same arrivals. A whole number, default 1. */
  readonly seed?: number
  /** Of each job, or a range of whole numbers with equal probability. Default 1. */
  readonly cost?: number | readonly [from: number, to: number]
  /** How many groups the jobs are of: the one of rank k has a part in proportion to 1 / k. Default 0: jobs have none. */
  readonly groups?: number
  /** Default Monday 2024-01-01 00:00 UTC: limits by the day depend on it. */
  readonly start?: Date
}

export const DEFAULT_GROUP_SIZE = 10
const DEFAULT_START = new Date('2024-01-01T00:00:00Z')
const MOST_ARRIVALS = 20_000_000
const MOST_GROUPS = 10_000

/**
 * The arrivals of a load, in order. Those of `poisson` are a Poisson process: gaps are exponential.
 * @throws InvalidArrivalsError, InvalidRateError
 */
export function arrivalsOf(options: LoadOptions): Arrival[] {
  const { parts, pattern = 'poisson', groupSize = DEFAULT_GROUP_SIZE, seed = 1, start = DEFAULT_START } = options
  check(options)
  const random = randomOf(seed)
  const costOf = costs(options.cost ?? 1, random)
  const groupOf = groupsOf(options.groups ?? 0, randomOf(seed + 1))
  const arrivals: Arrival[] = []
  let fromUs = start.getTime() * 1000
  for (const { rate, forMs } of parts) {
    const toUs = fromUs + forMs * 1000
    const interval = intervalUs(parseRate(rate))
    for (const atUs of timesOf(pattern, { fromUs, toUs, interval, groupSize }, random)) {
      arrivals.push({ atUs, cost: costOf(), priority: 0, delayMs: 0, ...groupOf() })
    }
    fromUs = toUs
  }
  if (arrivals.length === 0) throw new InvalidArrivalsError('the load is over before its first arrival: make it longer')
  return arrivals
}

interface Stretch {
  readonly fromUs: number
  readonly toUs: number
  readonly interval: number
  readonly groupSize: number
}

function* timesOf(pattern: LoadPattern, { fromUs, toUs, interval, groupSize }: Stretch, random: Random) {
  if (pattern === 'even') {
    for (let i = 0; fromUs + i * interval < toUs; i++) yield Math.round(fromUs + i * interval)
    return
  }
  const size = pattern === 'bursty' ? groupSize : 1
  for (let at = fromUs + random.exponential() * interval * size; at < toUs; ) {
    for (let left = size === 1 ? 1 : random.geometric(size); left > 0; left--) yield Math.round(at)
    at += random.exponential() * interval * size
  }
}

function costs(cost: number | readonly [number, number], random: Random): () => number {
  if (typeof cost === 'number') return () => cost
  const [from, to] = cost
  return () => from + Math.floor(random.uniform() * (to - from + 1))
}

/** Zipf's law: few groups have most of the jobs. */
function groupsOf(count: number, random: Random): () => Pick<Arrival, 'group'> {
  const groups = Array.from({ length: count }, (_, i) => ({ group: { id: `group-${i + 1}` } }))
  const upTo: number[] = []
  for (let rank = 1; rank <= count; rank++) upTo.push((upTo.at(-1) ?? 0) + 1 / rank)
  const all = upTo.at(-1) ?? 0
  return () => {
    if (count === 0) return {}
    const drawn = random.uniform() * all
    return groups[upTo.findIndex((sum) => drawn < sum)] ?? (groups[0] as Pick<Arrival, 'group'>)
  }
}

function check({ parts, groupSize = DEFAULT_GROUP_SIZE, seed = 1, cost = 1, groups = 0 }: LoadOptions): void {
  if (parts.length === 0) throw new InvalidArrivalsError("expected a load such as '5/s for 1d'; got none")
  const expected = parts.reduce((sum, { rate, forMs }) => sum + (forMs * 1000) / intervalUs(parseRate(rate)), 0)
  if (expected > MOST_ARRIVALS) {
    throw new InvalidArrivalsError(
      `the load is ${Math.round(expected)} arrivals; at most ${MOST_ARRIVALS} fit in memory`,
    )
  }
  if (!(groupSize >= 1)) throw new InvalidArrivalsError(`the size of groups must be at least 1; got ${groupSize}`)
  if (!(Number.isInteger(groups) && groups >= 0 && groups <= MOST_GROUPS)) {
    throw new InvalidArrivalsError(`the number of groups must be a whole number up to ${MOST_GROUPS}; got ${groups}`)
  }
  if (!Number.isSafeInteger(seed)) throw new InvalidArrivalsError(`the seed must be a whole number; got ${seed}`)
  const range = typeof cost === 'number' ? [cost, cost] : cost
  const [from = 0, to = 0] = range
  const whole = typeof cost === 'number' || range.every(Number.isInteger)
  if (!(from > 0 && to >= from && to <= MAX_COST && whole)) {
    throw new InvalidArrivalsError(`the cost must be a number > 0, or a range of whole ones; got ${range.join('-')}`)
  }
}
