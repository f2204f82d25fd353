import { type Random, randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { EncodedAdapt } from '../../src/feedback/options.ts'
import { ALGORITHMS } from '../../src/limits/definition.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import type { Shape, ShapeOverride } from '../../src/shape/shape.ts'
import type { Locks } from './fleet.ts'
import type { WorkerTraits } from './fleet-worker.ts'
import type { Change, Holds, Waiting } from './schedule.ts'

/** 2025-11-24, 0.1 s after a boundary of windows of a minute, 15 minutes and an hour, and after midnight in Singapore. */
export const START_US = 1_764_000_000_123_457
const SINCE_US = 123_457
const ZONE = 'Asia/Singapore'
const S = 1_000_000

/**
 * An event of a combination's queue, by the call that makes it: a pause until a time, the end of a pause, an override
 * (for some time), or feedback from the downstream: a pause, or a lower rate for some time. `ends` happens by itself.
 */
export interface Event extends Change {
  readonly kind: 'pause' | 'clearPause' | 'override' | 'said' | 'ends'
  readonly ttlMs?: number
  /** The fields that an override sets. */
  readonly sets?: ShapeOverride
  /** Whether no job may leave sooner after it than before. */
  readonly tightens?: boolean
}

/** A shape, its waiting jobs, its workers and the events during the run; all derived from a seed. */
export interface Combination {
  readonly seed: number
  readonly startUs: number
  readonly shape: Shape
  readonly jobs: readonly Waiting[]
  readonly workers: readonly WorkerTraits[]
  readonly events: readonly Event[]
  readonly locks?: Locks | undefined
  /** Another queue, with the same clock, that shares the limit {@link SHARED}. */
  readonly beside?: Beside | undefined
  readonly answers?: Answers | undefined
}

/** The downstream's answer to the jobs that it refuses, and whether the rate adapts. */
export interface Answers {
  readonly forMs: number
  readonly hard: boolean
  readonly adapt?: EncodedAdapt | undefined
}

export interface Beside {
  readonly shape: Shape
  readonly jobs: readonly Waiting[]
  readonly workers: readonly WorkerTraits[]
}

/** The name of the limit that two queues share, and of its unit: each job counts as one. */
export const SHARED = 'shared'

export function combinationOf(seed: number): Combination {
  const draw = new Draw(randomOf(seed * 7919 + 17))
  const perSecond = draw.pick([2, 5, 10, 10, 20, 20, 50, 100, 200, 500])
  const count = draw.between(40, perSecond >= 100 ? 200 : 80)
  const lastsUs = (count / perSecond) * S
  // In some runs, these boundaries are crossed.
  const startUs = START_US - (draw.chance(0.3) ? SINCE_US + Math.round(lastsUs * (0.1 + 0.8 * draw.uniform())) : 0)
  const { shape, most } = shapeOf(draw, { perSecond, count, midnight: startUs < START_US })
  const runsUs = Math.round(draw.pick([0, 1000, 5000, 20_000, 100_000]) * (0.5 + draw.uniform()))
  const come = draw.chance(0.2) ? perSecond * draw.pick([0.6, 1.2]) : undefined
  const load = { startUs, count, runsUs, most, come }
  const jobs = specialOf(draw, load, jobsOf(draw, load))
  const needed = Math.min(count, Math.max(burstOf(shape), perSecond * (runsUs / S + 0.15)))
  const others = replacedOf(draw, workersOf(draw, needed), lastsUs)
  const { workers, locks } = killedOf(new Draw(randomOf(seed * 104_729 + 71)), others, lastsUs)
  const when = { startUs, perSecond, lastsUs, most }
  const one = eventsOf(draw, shape, when)
  const events = one.length === 0 && draw.chance(0.3) ? changesOf(draw, shape, when) : one
  const combination = { seed, startUs, shape, jobs, workers, events, locks }
  const shared = sharing(new Draw(randomOf(seed * 15_485_863 + 5)), combination, { perSecond, count, runsUs })
  return refusing(new Draw(randomOf(seed * 32_452_843 + 11)), shared, lastsUs)
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
/** Fixed windows twice as often: their windows begin in three ways. */
const DRAWN = ['fixed-window' as const, ...ALGORITHMS.filter((one) => one !== 'concurrency')]

/** The parameters for drawing a shape. */
interface Wanted {
  readonly perSecond: number
  readonly count: number
  /** Whether midnight falls into the run. */
  readonly midnight: boolean
}

function limitOf(draw: Draw, { perSecond, count, midnight }: Wanted, most: number, name: string): QueueLimit {
  const unit = draw.chance(0.2) ? { unit: 'bytes' } : {}
  const algorithm = draw.pick(DRAWN)
  const period = draw.pick(PERIODS_MS)
  const limit = Math.max(most, Math.round((perSecond * period * (0.3 + 2.5 * draw.uniform())) / 1000), 1)
  const rate = { limit, period }
  if (algorithm === 'fixed-window' && midnight && draw.chance(0.3)) {
    const day = { limit: Math.ceil(0.6 * most * count), period: 86_400_000 }
    return { name, algorithm, rate: day, ...unit, align: 'day', timeZone: ZONE }
  }
  if (algorithm === 'fixed-window') {
    return { name, algorithm, rate, ...unit, align: draw.pick(['epoch', 'first'] as const) }
  }
  if (algorithm.startsWith('sliding')) return { name, algorithm, rate, ...unit }
  return { name, algorithm, rate, ...unit, burst: Math.max(most, draw.pick([1, 2, 10, 50])) }
}

function shapeOf(draw: Draw, wanted: Wanted): { shape: Shape; most: number } {
  const { perSecond } = wanted
  const most = draw.pick([1, 1, 1, 3, 8])
  const paced = draw.chance(0.75)
  const count = paced ? draw.between(0, 3) : draw.between(1, 3)
  const limits = Array.from({ length: count }, (_, i) => limitOf(draw, wanted, most, `l${i}`))
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

interface Load {
  readonly startUs: number
  readonly count: number
  readonly runsUs: number
  /** The highest cost of a job. */
  readonly most: number
  /** Mean number of jobs that arrive per second, at random; undefined: all wait from the start. */
  readonly come: number | undefined
}

function jobsOf(draw: Draw, { startUs, count, runsUs, most, come }: Load): Waiting[] {
  let atUs = startUs
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

/**
 * Some jobs have a priority, and some fail and are retried. Sorted in the order in which they leave: the schedule knows
 * no priorities, and treats retried jobs like waiting ones.
 */
function specialOf(draw: Draw, { most, come }: Load, jobs: Waiting[]): Waiting[] {
  if (come === undefined && draw.chance(0.25)) {
    const prioritized = jobs.map((job) => ({ ...job, priority: draw.pick([0, 0, 1, 2, 100]) }))
    return prioritized.sort((one, other) => one.priority - other.priority)
  }
  if (most > 1 || !draw.chance(0.3)) return jobs
  const backoffUs = draw.pick([1000, 20_000, 200_000, 2 * S])
  return jobs.map((job) => (draw.chance(0.2) ? { ...job, fails: draw.between(1, 3), backoffUs } : job))
}

/** Twice as many places as the shape needs; some combinations have only a few. */
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

/** A rolling restart: some workers leave after their replacements have started. */
function replacedOf(draw: Draw, workers: readonly WorkerTraits[], lastsUs: number): WorkerTraits[] {
  if (!draw.chance(0.15)) return [...workers]
  const leavesAfterUs = () => Math.round(20_000 + lastsUs * (0.1 + 0.7 * draw.uniform()))
  const leaving = workers.map((worker) =>
    worker.diesAfterUs === undefined && draw.chance(0.6) ? { ...worker, leavesAfterUs: leavesAfterUs() } : worker,
  )
  const followers = leaving.flatMap(({ leavesAfterUs: startsAfterUs, ...worker }) =>
    startsAfterUs === undefined ? [] : [{ ...worker, startsAfterUs }],
  )
  return [...leaving, ...followers]
}

/**
 * Kills some workers at any point, each with a replacement soon after. Drawn from a separate random source, so that
 * earlier combinations stay the same.
 */
function killedOf(
  draw: Draw,
  workers: readonly WorkerTraits[],
  lastsUs: number,
): { workers: readonly WorkerTraits[]; locks?: Locks } {
  if (!draw.chance(0.12)) return { workers }
  const kills = draw.between(1, 2)
  const stay = workers.filter(
    ({ diesAfterUs, leavesAfterUs }) => diesAfterUs === undefined && leavesAfterUs === undefined,
  )
  const killed = stay.slice(0, kills).map((worker) => {
    return { ...worker, killedAfterUs: Math.round(20_000 + lastsUs * (0.05 + 0.8 * draw.uniform())) }
  })
  const followers = killed.map(({ killedAfterUs, ...worker }) => {
    return { ...worker, startsAfterUs: killedAfterUs + draw.pick([0, 100_000, S]) }
  })
  const lockMs = draw.pick([1000, 5000, 30_000])
  const others = workers.filter((worker) => !stay.slice(0, kills).includes(worker))
  return { workers: [...killed, ...others, ...followers], locks: { lockMs, stalledMs: lockMs } }
}

/** Some combinations share a limit with another queue. In some of these, only that limit holds both queues. */
function sharing(
  draw: Draw,
  combination: Combination,
  { perSecond, count, runsUs }: { perSecond: number; count: number; runsUs: number },
): Combination {
  const { shape, events, locks, startUs } = combination
  if (!draw.chance(0.12) || locks || events.some(({ holds }) => holds?.limits || holds?.mode)) return combination
  const both = { perSecond: 2 * perSecond, count, midnight: false }
  const shared = { ...limitOf(draw, both, 1, SHARED), unit: SHARED, shared: true }
  const alone = draw.chance(0.5) && events.length === 0
  const rate = { limit: perSecond * 1000 * draw.pick([0.3, 1, 2]), period: 1_000_000 }
  const paced = !alone && draw.chance(0.5)
  const other: Shape = { ...(paced ? { rate, burst: draw.pick([1, 1, 5]) } : {}), limits: [shared] }
  const needed = Math.min(count, Math.max(burstOf(other), 2 * perSecond * (runsUs / S + 0.15)))
  const workers = workersOf(draw, needed).map(({ diesAfterUs: _, ...worker }) => worker)
  const come = draw.chance(0.2) ? perSecond : undefined
  const jobs = jobsOf(draw, { startUs, count, runsUs, most: 1, come })
  const horizon = draw.chance(0.5) ? { horizonMs: draw.pick([20, 100, 500]) } : {}
  // A queue that is also held by its own rate, or by more limits, leaves its unused part of the shared limit to the
  // other.
  const lone = draw.chance(0.5) && events.length === 0
  const beside = { shape: { ...(lone && !alone ? { limits: [shared] } : other), ...horizon }, jobs, workers }
  const farther = lone && draw.chance(0.5) ? { horizonMs: draw.pick([500, 2000]) } : {}
  return {
    ...combination,
    shape: alone ? { limits: [shared] } : { ...shape, limits: [...(shape.limits ?? []), shared], ...farther },
    beside,
  }
}

/** The downstream refuses some of the jobs, once each, with a time to retry. */
function refusing(draw: Draw, combination: Combination, lastsUs: number): Combination {
  const { shape, events, locks, beside, workers, jobs } = combination
  const stay = workers.every(
    ({ diesAfterUs, leavesAfterUs }) => diesAfterUs === undefined && leavesAfterUs === undefined,
  )
  const plain = jobs.every(({ fails, priority }) => !fails && !priority)
  if (!draw.chance(0.35) || events.length > 0 || locks || beside || !stay || !plain) return combination
  const part = draw.pick([0.02, 0.1])
  const forMs = Math.ceil((lastsUs * (0.02 + 0.2 * draw.uniform())) / 1000)
  const adapts = shape.rate !== undefined && draw.chance(0.6)
  const adapt = { decrease: draw.pick([0.5, 0.7]), increase: 0.05, quietMs: draw.pick([200, 1000]) }
  return {
    ...combination,
    jobs: jobs.map((job) => (draw.chance(part) ? { ...job, refused: true } : job)),
    answers: { forMs, hard: draw.chance(0.4), ...(adapts ? { adapt } : {}) },
  }
}

/** How much may leave at once. */
function burstOf({ burst = 1, rate, limits = [] }: Shape): number {
  const most = limits.map((limit) => limit.burst ?? (limit.rate as { limit: number } | undefined)?.limit ?? 1e9)
  return Math.min(rate === undefined ? 1e9 : burst, ...most)
}

/** The parameters for drawing events: about how long the queue runs, and how fast. */
interface When {
  readonly startUs: number
  readonly perSecond: number
  readonly lastsUs: number
  readonly most: number
}

/** Fields of a shape that are set during the run. */
interface Setting {
  readonly atUs: number
  readonly sets: Partial<Holding>
  readonly untilUs: number
  readonly tightens: boolean
}

type ChangedField = 'rate' | 'burst' | 'limits' | 'mode'
type Holding = Required<Pick<Holds, ChangedField>>

/** One to four overrides, some of which end by themselves. */
function changesOf(draw: Draw, shape: Shape, { startUs, perSecond, lastsUs, most }: When): Event[] {
  const settings = Array.from({ length: draw.between(1, 4) }, (): Setting => {
    const atUs = Math.round(startUs + lastsUs * (0.1 + 0.6 * draw.uniform()))
    const untilUs = draw.chance(0.5)
      ? (Math.floor(atUs / 1000) + Math.ceil((lastsUs * (0.1 + 0.3 * draw.uniform())) / 1000)) * 1000
      : Number.POSITIVE_INFINITY
    return { atUs, untilUs, ...settingOf(draw, shape, perSecond, most) }
  }).sort((one, other) => one.atUs - other.atUs)
  const begin = settings.map(({ atUs, sets, untilUs, tightens }): Event => {
    const ttl = untilUs < Number.POSITIVE_INFINITY ? { ttlMs: untilUs / 1000 - Math.floor(atUs / 1000) } : {}
    return {
      kind: 'override',
      atUs,
      sets: sets as ShapeOverride,
      tightens,
      holds: holdsAt(shape, settings, atUs),
      ...ttl,
    }
  })
  const end = settings
    .filter(({ untilUs }) => untilUs < Number.POSITIVE_INFINITY)
    .map(({ untilUs }): Event => ({ kind: 'ends', atUs: untilUs, holds: holdsAt(shape, settings, untilUs) }))
  return [...begin, ...end].sort((one, other) => one.atUs - other.atUs)
}

/** What is in force at a time: for each field the last override, until that ends, otherwise the declared value. */
function holdsAt(shape: Shape, settings: readonly Setting[], atUs: number): Holding {
  const { rate, burst = 1, limits = [], mode = 'enforce' } = shape
  const fields: Holding = { rate, burst, limits, mode }
  for (const field of Object.keys(fields) as ChangedField[]) {
    const last = settings.findLast((setting) => setting.atUs <= atUs && field in setting.sets)
    if (last && last.untilUs > atUs) Object.assign(fields, { [field]: last.sets[field] })
  }
  return fields
}

function settingOf(draw: Draw, shape: Shape, perSecond: number, most: number): Pick<Setting, 'sets' | 'tightens'> {
  const { rate, limits = [] } = shape
  const places = limits.some(({ algorithm }) => algorithm === 'concurrency')
  const kinds = [...(rate ? ['rate', 'burst'] : []), ...(limits.length > 0 ? ['limits', 'limits'] : [])]
  // Jobs that start while nothing is enforced take no places of a limit.
  if (!places) kinds.push('mode')
  switch (draw.pick(kinds)) {
    case 'rate': {
      const factor = draw.pick([0.3, 0.7, 1.5, 3])
      return { sets: { rate: { limit: perSecond * 1000 * factor, period: 1_000_000 } }, tightens: factor < 1 }
    }
    case 'burst':
      return { sets: { burst: draw.pick([1, 2, 5, 20]) }, tightens: true }
    case 'mode':
      return { sets: { mode: draw.pick(['shadow', 'off'] as const) }, tightens: false }
    default: {
      const factor = draw.pick([0.4, 0.7, 1.5, 3])
      return { sets: { limits: limits.map((limit) => changed(limit, factor, most)) }, tightens: factor < 1 }
    }
  }
}

/** Scales a limit by a factor. */
function changed(limit: QueueLimit, factor: number, most: number): QueueLimit {
  if (limit.concurrency !== undefined) {
    return { ...limit, concurrency: Math.max(most, Math.round(limit.concurrency * factor)) }
  }
  const { limit: units, period } = limit.rate as { limit: number; period: number }
  const rate = { limit: Math.max(most, Math.round(units * factor)), period }
  return limit.burst === undefined
    ? { ...limit, rate }
    : { ...limit, rate, burst: Math.max(most, Math.round(limit.burst * factor)) }
}

function eventsOf(draw: Draw, shape: Shape, { startUs, perSecond, lastsUs }: When): Event[] {
  if (!draw.chance(0.35)) return []
  const atUs = Math.round(startUs + lastsUs * (0.2 + 0.3 * draw.uniform()))
  const ttlMs = Math.ceil((lastsUs * (0.1 + 0.3 * draw.uniform())) / 1000)
  const untilUs = (Math.floor(atUs / 1000) + ttlMs) * 1000
  const kinds = ['pause', 'clearPause', 'saidPause', ...(shape.rate ? ['override', 'ending', 'saidSlow'] : [])]
  const { rate: usual, burst = 1 } = shape
  const rate = { limit: perSecond * 1000 * draw.pick([0.3, 0.7, 1.5, 3]), period: 1_000_000 }
  const slow = { limit: perSecond * 1000 * draw.pick([0.3, 0.7]), period: 1_000_000 }
  const ends: Event = { kind: 'ends', atUs: untilUs, holds: { rate: usual, burst } }
  const sets = { rate }
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
      return [{ kind: 'override', atUs, sets, holds: { rate, burst }, ttlMs }, ends]
    default:
      return [{ kind: 'override', atUs, sets, holds: { rate, burst } }]
  }
}
