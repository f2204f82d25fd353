// A repeatable stream of operations on one queue, for the model and for a real queue alike: which come next follows from the
// seed and from what left before. So two that decide the same are asked the same.

import { isScheduled, type RateSchedule, type ScheduledRate } from '../../../src/limits/schedule.ts'
import { createRandom, type Random } from '../../../workers/demo/outbox/random.ts'
import type { Rate } from '../../groups/model/charges.ts'
import type { OwnValues } from './cell.ts'
import type { Job } from './job.ts'
import type { ReferenceKeys, Taken } from './reference.ts'
import { type Features, type GroupSettings, isPlaces, type Limit, namesBy, type Shape } from './shape.ts'

type LimitRate = { readonly limit: number; readonly period: number }

export type NewJob = Omit<Job, 'number' | 'sinceUs'>

/** What is done to the queue at a time of its clock. */
export type Decision =
  /** Several together are a bulk. */
  | { readonly verb: 'add'; readonly atUs: number; readonly jobs: readonly NewJob[] }
  | {
      readonly verb: 'take'
      readonly atUs: number
      readonly horizonUs: number
      readonly wanted: number
      /** How far ahead the next slot of the queue is. */
      readonly aheadUs?: number
    }
  /** It ends; goes back having started; goes back before it has started; is removed while it waits. */
  | { readonly verb: 'finish' | 'back' | 'return' | 'remove'; readonly atUs: number; readonly id: string }
  | {
      readonly verb: 'settle'
      readonly atUs: number
      readonly id: string
      /** '' for that of the rate. */
      readonly unit: string
      readonly actual: number
    }
  /** @property untilUs undefined for good */
  | { readonly verb: 'pause'; readonly atUs: number; readonly group: string; readonly untilUs?: number }
  | { readonly verb: 'resume'; readonly atUs: number; readonly group: string }
  | { readonly verb: 'set'; readonly atUs: number; readonly group: string; readonly settings: GroupSettings }
  /** What a limit allows for one value of its keys; undefined lifts what is set. */
  | {
      readonly verb: 'own'
      readonly atUs: number
      readonly limit: string
      readonly keys: Readonly<Record<string, string>>
      readonly values: OwnValues | undefined
    }
  | { readonly verb: 'shape'; readonly atUs: number; readonly shape: Shape }

/** Which operations a stream has. */
export interface Choice {
  /** Changes of the shape: names of keys come and go, limits and rates change. Default true. */
  readonly hasChanges?: boolean
  /** Settled costs. Default true. */
  readonly hasSettles?: boolean
  /** A rate, a concurrency and limits without a key of the queue, and ageing. Default true. */
  readonly hasQueueLimits?: boolean
  /** What is set for single values of keys. Default true. */
  readonly hasOwnValues?: boolean
  /** Tiers of limits and jobs. Default true. */
  readonly hasTiers?: boolean
  /** Rates of buckets, also of tiers and single values, that follow the clock. Default false. */
  readonly hasSchedules?: boolean
  /** Changes of rates alone, with `hasSchedules` also to and from those that follow the clock. Default false. */
  readonly hasRateChanges?: boolean
  /** Limits by group alone, by which a queue has no lanes, need another one. Default false. */
  readonly hasLanes?: boolean
}

/** So that all of them can be looked at after each operation. */
const MOST_WAITING = 150
/** So near to 0 that fractions of a µs are exact. */
const START_US = 1_000_123_457
/** A little later, rates that follow the clock change. */
const SWITCH = '00:17'
const VALUES: Readonly<Record<string, readonly string[]>> = {
  model: ['large', 'small', 'tiny'],
  host: ['a.example', 'b.example'],
  region: ['north', 'south', 'east'],
}
const BYS = ['group', 'model', 'host', 'region', ['group', 'model'], ['host', 'model']] as const
const TIERS = ['free', 'pro']
const ALGORITHMS = [
  ...(['gcra', 'gcra', 'token-bucket', 'leaky-bucket', 'fixed-window'] as const),
  ...(['sliding-window-counter', 'sliding-window-log', 'concurrency', 'concurrency'] as const),
]

export class Decisions {
  readonly #random: Random
  readonly #features: Features
  readonly #choice: Choice
  readonly #groups: readonly string[]
  #shape: Shape
  #nowUs = START_US
  #jobs = 0
  #limits = 0
  readonly #waiting = new Map<string, NewJob>()
  readonly #running = new Map<string, NewJob>()
  readonly #settled = new Set<string>()

  constructor(seed: number, features: Features, choice: Choice = {}) {
    // Seeds that follow each other begin far apart.
    this.#random = createRandom(seed * 0x9e3779b9)
    this.#features = features
    this.#choice = choice
    const { between, oneIn } = this.#random
    const groups = Array.from({ length: between(1, 6) }, (_, i) => `${'zyxwvu'[i]}${i}`)
    this.#groups = oneIn(2) ? ['', ...groups] : groups
    this.#shape = this.#newShape()
  }

  get shape(): Shape {
    return this.#shape
  }

  get nowUs(): number {
    return this.#nowUs
  }

  next(): Decision {
    const { between, oneIn, pick } = this.#random
    const unit = pick([0, 0, 1, 20_000, 20_000, 100_000])
    this.#nowUs += oneIn(200) ? between(0, 5_000_000) : between(0, unit)
    const chance = between(1, 100)
    if (this.#waiting.size === 0 || (chance <= 25 && this.#waiting.size < MOST_WAITING)) return this.#add()
    if (chance <= 68) return this.#take()
    if (chance <= 88 && this.#running.size > 0) return this.#end()
    if (chance <= 93) return this.#remove()
    if (chance <= 96 && this.#choice.hasOwnValues !== false) return this.#own() ?? this.#set()
    if (chance > 98 && this.#choice.hasRateChanges) return this.#changeRate() ?? this.#set()
    if (chance <= 98 || this.#choice.hasChanges === false) return this.#set()
    return this.#change()
  }

  /** What left by the last operation. */
  note({ departures }: Pick<Taken, 'departures'>): void {
    for (const { id } of departures) {
      this.#running.set(id, this.#waiting.get(id) as NewJob)
      this.#waiting.delete(id)
    }
  }

  #add(): Decision {
    const { between, oneIn } = this.#random
    const jobs = Array.from({ length: oneIn(4) ? between(2, 12) : 1 }, () => this.#newJob())
    for (const job of jobs) this.#waiting.set(job.id, job)
    return { verb: 'add', atUs: this.#nowUs, jobs }
  }

  #newJob(): NewJob {
    const { pick, oneIn } = this.#random
    this.#jobs += 1
    const keys = Object.entries(VALUES).flatMap(([name, values]) => (oneIn(4) ? [] : [[name, pick(values)]]))
    return {
      ...{ id: `j${this.#jobs}`, group: pick(this.#groups), keys: Object.fromEntries(keys) },
      ...{ cost: pick([1, 1, 1, 2, 0.5]), priority: pick([0, 0, 0, 0, 1, 7]) },
      ...(oneIn(2) ? { costs: { tokens: pick([0, 1, 2, 3]) } } : {}),
      ...(this.#choice.hasTiers !== false && oneIn(2) ? { tier: pick(TIERS) } : {}),
    }
  }

  #take(): Decision {
    const { pick } = this.#random
    const horizonUs = pick([0, 0, 50_000, 200_000])
    const take = { verb: 'take', atUs: this.#nowUs, horizonUs, wanted: pick([1, 1, 1, 4]) } as const
    const isHeldElsewhere = this.#choice.hasQueueLimits === false && horizonUs > 0
    return isHeldElsewhere ? { ...take, aheadUs: pick([0, 0, 20_000]) } : take
  }

  #end(): Decision {
    const { pick, between, oneIn } = this.#random
    const ids = [...this.#running.keys()]
    // Soon after its departure, more is left to give back.
    const id = oneIn(2) ? (ids.at(-1) as string) : pick(ids)
    const chance = between(1, 100)
    if (chance <= 15 && this.#choice.hasSettles !== false) return this.#settle(id)
    const job = this.#running.get(id) as NewJob
    this.#running.delete(id)
    // A job whose cost is known has started.
    const verb = chance <= 75 ? 'finish' : chance <= 85 || this.#settled.has(id) ? 'back' : 'return'
    if (verb !== 'finish') this.#waiting.set(id, job)
    this.#settled.delete(id)
    return { verb, atUs: this.#nowUs, id }
  }

  #settle(id: string): Decision {
    const { pick, oneIn } = this.#random
    this.#settled.add(id)
    const unit = oneIn(2) ? 'tokens' : ''
    return { verb: 'settle', atUs: this.#nowUs, id, unit, actual: pick([0, 0.5, 1, 2, 4, 11]) }
  }

  #remove(): Decision {
    const id = this.#random.pick([...this.#waiting.keys()])
    this.#waiting.delete(id)
    return { verb: 'remove', atUs: this.#nowUs, id }
  }

  #set(): Decision {
    const { pick, between, oneIn } = this.#random
    const [atUs, group] = [this.#nowUs, pick(this.#groups.filter((name) => name !== ''))]
    const chance = between(1, 100)
    if (chance <= 20)
      return { verb: 'pause', atUs, group, ...(oneIn(4) ? {} : { untilUs: wholeMs(atUs + between(1, 500_000)) }) }
    if (chance <= 65) return { verb: 'resume', atUs, group }
    const settings = pick<GroupSettings>([
      ...[{}, { weight: 3 }, { weight: 0.5 }, { rate: [50, 1000] as const, burst: 2 }],
      ...[{ rate: null }, { concurrency: 1 }, { concurrency: null }],
    ])
    return { verb: 'set', atUs, group, settings }
  }

  #own(): Decision | undefined {
    const { pick, between, oneIn } = this.#random
    const limits = (this.#shape.limits ?? []).filter((limit) => namesBy(limit).length > 0 && !isPlaces(limit))
    if (limits.length === 0) return undefined
    const { name, by = [], rate, burst, tiers } = pick(limits)
    const period = periodOf(rate)
    const keys = [by].flat().map((key) => [key, key === 'group' ? pick(this.#groups) : pick(VALUES[key] as string[])])
    const own = { verb: 'own', atUs: this.#nowUs, limit: name, keys: Object.fromEntries(keys) } as const
    if (oneIn(4)) return { ...own, values: undefined }
    const untilUs = () => (oneIn(3) ? Number.POSITIVE_INFINITY : wholeMs(this.#nowUs + between(1, 500_000)))
    const other = () => this.#scheduled({ limit: between(3, 60) + (burst === undefined ? 0 : 0.5), period }, burst)
    const ownRate = (one: LimitRate | RateSchedule) => (isScheduled(one) ? one : ([one.limit, one.period] as const))
    const values = pick<OwnValues>([
      ...[1, 2, 3].map(() => {
        // One that is equal to the limit's does not change with it.
        const given =
          burst !== undefined && rate !== undefined && oneIn(4) ? (rate as LimitRate | RateSchedule) : other()
        return { rate: { value: ownRate(given), untilUs: untilUs() } }
      }),
      ...(tiers ? TIERS.map((tier) => ({ tier: { value: tier, untilUs: untilUs() } })) : []),
      ...[{ burst: { value: between(3, 8), untilUs: untilUs() } }, { rate: { value: null, untilUs: untilUs() } }],
    ])
    return { ...own, values }
  }

  /** Of a bucket, some rates follow the clock. */
  #scheduled(rate: LimitRate, burst: number | undefined): LimitRate | RateSchedule {
    const { oneIn, pick } = this.#random
    if (burst === undefined || !this.#choice.hasSchedules || !oneIn(3)) return rate
    const slow = pick<ScheduledRate['rate']>([0, { ...rate, period: rate.period * 4 }])
    const [from, to] = pick([
      [SWITCH, '00:18'],
      ['00:00', SWITCH],
    ] as const)
    return { schedule: [{ from, to, rate: slow }, { rate }] }
  }

  #change(): Decision {
    const { pick, oneIn } = this.#random
    const limits = [...(this.#shape.limits ?? [])]
    if (oneIn(2) && limits.length > 0) {
      const at = limits.indexOf(pick(limits))
      limits[at] = this.#changed(limits[at] as Limit)
    } else if (oneIn(2) && limits.length > 1) {
      limits.splice(limits.indexOf(pick(limits)), 1)
    } else {
      limits.push(this.#newLimit())
    }
    this.#shape = { ...this.#shape, limits, ...(oneIn(4) ? { groups: this.#defaults() } : {}) }
    return { verb: 'shape', atUs: this.#nowUs, shape: this.#shape }
  }

  #changeRate(): Decision | undefined {
    const { pick } = this.#random
    const paced = (this.#shape.limits ?? []).filter((limit) => limit.rate !== undefined)
    if (paced.length === 0) return undefined
    const one = pick(paced)
    const limits = (this.#shape.limits ?? []).map((limit) => (limit === one ? this.#changed(limit) : limit))
    this.#shape = { ...this.#shape, limits }
    return { verb: 'shape', atUs: this.#nowUs, shape: this.#shape }
  }

  /** What a limit that stays the same one may change: its rate and burst, or how much it allows. */
  #changed(limit: Limit): Limit {
    const { between } = this.#random
    if (limit.concurrency !== undefined) return { ...limit, concurrency: between(1, 4) }
    const period = periodOf(limit.rate)
    const burst = limit.burst === undefined ? {} : { burst: between(3, 8) }
    return { ...limit, rate: this.#scheduled({ limit: between(3, 40), period }, limit.burst), ...burst }
  }

  #newShape(): Shape {
    const { between, oneIn, pick } = this.#random
    const { hasQueueLimits = true, hasLanes = false } = this.#choice
    const limits = Array.from({ length: between(1, 4) }, () => this.#newLimit())
    // Places give a queue lanes, whatever they count by.
    const hasPlaces = limits.some(isPlaces) && oneIn(2)
    if (hasLanes && !hasPlaces) limits.push({ ...this.#newLimit(), by: pick(BYS.filter((by) => by !== 'group')) })
    const groups = { groups: this.#defaults(), limits }
    if (!hasQueueLimits) return groups
    return {
      ...(oneIn(3) ? { rate: this.#rate(50, 400), burst: pick([1, 3]) } : {}),
      ...(oneIn(3) ? { concurrency: between(3, 12) } : {}),
      ...(oneIn(4) ? { ageingMs: pick([1, 30, 500]) } : {}),
      ...groups,
    }
  }

  #defaults(): GroupSettings {
    const { between, oneIn } = this.#random
    return {
      ...(oneIn(3) ? { rate: this.#rate(5, 60), burst: between(1, 4) } : {}),
      ...(oneIn(3) ? { concurrency: between(1, 4) } : {}),
      ...(oneIn(4) ? { weight: between(1, 3) } : {}),
    }
  }

  #newLimit(): Limit {
    const { between, oneIn, pick } = this.#random
    this.#limits += 1
    const name = `limit${this.#limits}`
    const algorithm = pick(ALGORITHMS.filter((one) => this.#features.places || one !== 'concurrency'))
    const by = pick(BYS)
    if (algorithm === 'concurrency') return { name, by, algorithm, concurrency: between(1, 4) }
    const unit = oneIn(3) ? { unit: 'tokens' } : {}
    // One in eight is a limit of the queue.
    const keyed = this.#choice.hasQueueLimits !== false && oneIn(8) ? {} : { by }
    const rate = { limit: between(3, 40), period: pick([500, 1000, 3000]) }
    const burst = algorithm.endsWith('window') || algorithm.startsWith('sliding') ? {} : { burst: between(3, 8) }
    const follows = (one: LimitRate) => this.#scheduled(one, 'burst' in burst ? burst.burst : undefined)
    const limit = { name, ...keyed, ...unit, algorithm, rate: 'by' in keyed ? follows(rate) : rate, ...burst }
    if (this.#choice.hasTiers === false || !('by' in keyed) || !oneIn(3)) return limit
    const tier = () => ({ rate: follows({ limit: between(3, 40), period: rate.period }), ...(oneIn(2) ? burst : {}) })
    return { ...limit, tiers: Object.fromEntries(TIERS.map((one) => [one, tier()])) }
  }

  #rate(from: number, to: number): Rate {
    return [this.#random.between(from, to), 1000]
  }
}

function periodOf(rate: Limit['rate']): number {
  return isScheduled(rate) ? 1000 : (rate as LimitRate).period
}

function wholeMs(us: number): number {
  return Math.ceil(us / 1000) * 1000
}

/** @returns what left, and when to ask again; nothing left by other operations than `take` */
export function decide(model: ReferenceKeys, decision: Decision): Taken {
  const { atUs } = decision
  switch (decision.verb) {
    case 'take':
      return model.take(atUs, decision)
    case 'add':
      model.addBulk(decision.jobs, atUs)
      break
    case 'finish':
      model.finish(decision.id, atUs)
      break
    case 'back':
      model.back(decision.id, atUs)
      break
    case 'return':
      model.returnUnstarted(decision.id, atUs)
      break
    case 'remove':
      model.remove(decision.id, atUs)
      break
    case 'settle':
      model.settle(decision.id, decision.unit, decision.actual, atUs)
      break
    case 'pause':
      model.pauseGroup(decision.group, atUs, decision.untilUs)
      break
    case 'resume':
      model.resumeGroup(decision.group, atUs)
      break
    case 'set':
      model.setGroup(decision.group, decision.settings, atUs)
      break
    case 'own':
      model.setLimit(decision.limit, decision.keys, decision.values, atUs)
      break
    case 'shape':
      model.setShape(decision.shape, atUs)
      break
  }
  return { departures: [] }
}
