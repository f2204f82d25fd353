import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import type { Shape } from '../../src/shape.ts'
import { type Random, randomOf } from '../../src/simulate/random.ts'
import type { WorkerTraits } from './fleet.ts'
import type { Change, Waiting } from './schedule.ts'

/** 2025-11-24, not at the boundary of any window. */
export const START_US = 1_764_000_000_123_457
const S = 1_000_000

/**
 * What happens to the queue of a combination, and by which call: a pause until a time, the end of one, an override (for a
 * while), and what the other side says: a pause, or a lower rate for a while. `ends` happens by itself.
 */
export interface Event extends Change {
  readonly kind: 'pause' | 'clearPause' | 'override' | 'said' | 'ends'
  readonly ttlMs?: number
}

/** A shape, what waits for it, who works on it and what happens meanwhile; all of it by a seed. */
export interface Combination {
  readonly seed: number
  readonly startUs: number
  readonly shape: Shape
  readonly jobs: readonly Waiting[]
  readonly workers: readonly WorkerTraits[]
  readonly events: readonly Event[]
}

export function combinationOf(seed: number): Combination {
  const draw = new Draw(randomOf(seed * 7919 + 17))
  const perSecond = draw.pick([2, 5, 10, 10, 20, 20, 50, 100, 200, 500])
  const { shape, most } = shapeOf(draw, perSecond)
  const count = draw.between(40, perSecond >= 100 ? 200 : 80)
  const runsUs = Math.round(draw.pick([0, 1000, 5000, 20_000, 100_000]) * (0.5 + draw.uniform()))
  const come = draw.chance(0.2) ? perSecond * draw.pick([0.6, 1.2]) : undefined
  const jobs = jobsOf(draw, { count, runsUs, most, come })
  const workers = workersOf(draw, Math.min(count, Math.max(burstOf(shape), perSecond * (runsUs / S + 0.15))))
  const lastsUs = (count / perSecond) * S
  return { seed, startUs: START_US, shape, jobs, workers, events: eventsOf(draw, shape, { perSecond, lastsUs }) }
}

/** Repeatable choices. */
class Draw {
  readonly uniform: () => number

  constructor({ uniform }: Random) {
    this.uniform = uniform
  }

  between(from: number, to: number): number {
    return from + Math.floor(this.uniform() * (to - from + 1))
  }

  pick<T>(from: readonly T[]): T {
    return from[this.between(0, from.length - 1)] as T
  }

  chance(part: number): boolean {
    return this.uniform() < part
  }
}

const PERIODS_MS = [1000, 5000, 60_000, 900_000, 3_600_000, 86_400_000]
const ALGORITHMS = [
  'fixed-window',
  'fixed-window',
  'sliding-window-log',
  'sliding-window-counter',
  'gcra',
  'token-bucket',
  'leaky-bucket',
] as const

function limitOf(draw: Draw, perSecond: number, most: number, name: string): QueueLimit {
  const unit = draw.chance(0.2) ? { unit: 'bytes' } : {}
  const algorithm = draw.pick(ALGORITHMS)
  const period = draw.pick(PERIODS_MS)
  const limit = Math.max(most, Math.round((perSecond * period * (0.3 + 2.5 * draw.uniform())) / 1000), 1)
  const rate = { limit, period }
  if (algorithm === 'fixed-window') {
    return { name, algorithm, rate, ...unit, align: draw.pick(['epoch', 'first'] as const) }
  }
  if (algorithm.startsWith('sliding')) return { name, algorithm, rate, ...unit }
  return { name, algorithm, rate, ...unit, burst: Math.max(most, draw.pick([1, 2, 10, 50])) }
}

function shapeOf(draw: Draw, perSecond: number): { shape: Shape; most: number } {
  const most = draw.pick([1, 1, 1, 3, 8])
  const paced = draw.chance(0.75)
  const count = paced ? draw.between(0, 3) : draw.between(1, 3)
  const limits = Array.from({ length: count }, (_, i) => limitOf(draw, perSecond, most, `l${i}`))
  if (draw.chance(0.1))
    limits.push({ name: 'places', algorithm: 'concurrency', concurrency: draw.between(most, most + 8) })
  return {
    most,
    shape: {
      ...(paced
        ? { rate: { limit: perSecond * 1000, period: 1_000_000 }, burst: Math.max(most, draw.pick([1, 1, 2, 10])) }
        : {}),
      ...(limits.length > 0 ? { limits } : {}),
      ...(draw.chance(0.15) ? { concurrency: draw.between(2, 12) } : {}),
      ...(draw.chance(0.2) ? { horizonMs: draw.pick([20, 100, 500]) } : {}),
    },
  }
}

/** @param load.come so many a second by chance; undefined: all wait from the start */
function jobsOf(
  draw: Draw,
  load: { readonly count: number; readonly runsUs: number; readonly most: number; readonly come: number | undefined },
): Waiting[] {
  const { count, runsUs, most, come } = load
  let atUs = START_US
  return Array.from({ length: count }, () => {
    if (come !== undefined) atUs += Math.round(-Math.log(1 - draw.uniform()) * (S / come))
    return {
      cost: draw.between(1, most),
      ...(draw.chance(0.5) ? { costs: { bytes: draw.between(1, most) } } : {}),
      runsUs,
      ...(come === undefined ? {} : { atUs }),
    }
  })
}

/** Places enough for what the shape lets leave, twice over; some are few and work alone. */
function workersOf(draw: Draw, needed: number): WorkerTraits[] {
  const count = draw.pick([1, 2, 3, 4, 8, 16, 32])
  const few = draw.pick([1, 2, 5, 20])
  const concurrency = draw.chance(0.2) ? few : Math.max(few, Math.ceil((2 * needed) / count))
  const roundTripUs = draw.pick([200, 1000, 1000, 5000, 30_000])
  const deaths = draw.chance(0.1) ? 1 : 0
  return Array.from({ length: count }, (_, i) => ({
    concurrency,
    roundTripUs: roundTripUs * (0.7 + 0.6 * draw.uniform()),
    startsAfterUs: draw.between(0, 20_000),
    ...(i > deaths && i <= 2 * deaths ? { diesAfterUs: draw.between(500_000, 5 * S) } : {}),
  }))
}

/** How much may leave at once. */
function burstOf({ burst = 1, rate, limits = [] }: Shape): number {
  const most = limits.map((limit) => limit.burst ?? (limit.rate as { limit: number } | undefined)?.limit ?? 1e9)
  return Math.min(rate === undefined ? 1e9 : burst, ...most)
}

function eventsOf(draw: Draw, shape: Shape, { perSecond, lastsUs }: { perSecond: number; lastsUs: number }): Event[] {
  if (!draw.chance(0.35)) return []
  const atUs = Math.round(START_US + lastsUs * (0.2 + 0.3 * draw.uniform()))
  const ttlMs = Math.ceil((lastsUs * (0.1 + 0.3 * draw.uniform())) / 1000)
  const untilUs = (Math.floor(atUs / 1000) + ttlMs) * 1000
  const kinds = ['pause', 'clearPause', 'saidPause', ...(shape.rate ? ['override', 'ending', 'saidSlow'] : [])]
  const { rate: usual, burst = 1 } = shape
  const rate = { limit: perSecond * 1000 * draw.pick([0.3, 0.7, 1.5, 3]), period: 1_000_000 }
  const slow = { limit: perSecond * 1000 * draw.pick([0.3, 0.7]), period: 1_000_000 }
  const ends: Event = { kind: 'ends', atUs: untilUs, holds: { rate: usual, burst } }
  switch (draw.pick(kinds)) {
    case 'pause':
      return [{ kind: 'pause', atUs, pausedUntilUs: untilUs }]
    case 'clearPause':
      return [
        { kind: 'pause', atUs, pausedUntilUs: untilUs + 3600 * S },
        { kind: 'clearPause', atUs: untilUs, pausedUntilUs: 0 },
      ]
    case 'saidPause':
      return [{ kind: 'said', atUs, pausedUntilUs: atUs + ttlMs * 1000, ttlMs }]
    case 'saidSlow':
      return [{ kind: 'said', atUs, holds: { rate: slow, burst }, ttlMs }, ends]
    case 'ending':
      return [{ kind: 'override', atUs, holds: { rate, burst }, ttlMs }, ends]
    default:
      return [{ kind: 'override', atUs, holds: { rate, burst } }]
  }
}
