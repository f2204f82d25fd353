import { encodeRule } from '../../src/limits/definition.ts'
import { costUnder, type QueueLimit } from '../../src/limits/queue-limits.ts'
import { encodeRate, isScheduled, type RateSchedule } from '../../src/limits/schedule.ts'
import type { ShapeMode } from '../../src/mode.ts'
import type { Rate, RateInput } from '../../src/rate.ts'
import { ServiceCurve } from '../../src/shape/service-curve.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import type { Model } from '../limits/model/base.ts'
import { createModel } from '../limits/model/model.ts'

/** What holds the jobs of a queue. */
export interface Holds {
  /** Undefined: no rate. */
  readonly rate?: Shape['rate'] | undefined
  readonly burst?: number | undefined
  readonly limits?: readonly QueueLimit[] | undefined
  readonly mode?: ShapeMode | undefined
  /** Maximum number of running jobs. */
  readonly places?: number | undefined
}

export interface Waiting {
  readonly cost: number
  readonly costs?: Readonly<Record<string, number>> | undefined
  /** How long it keeps its place, µs. */
  readonly runsUs: number
  /** When it arrived, µs; undefined: from the start. */
  readonly atUs?: number | undefined
  /** 0: it waits with the jobs without a priority. */
  readonly priority?: number | undefined
  /** Those of a group leave in turn with those of others. */
  readonly group?: string | undefined
  /** Of limits with `by`, which the schedule does not know. */
  readonly keys?: Readonly<Record<string, string>> | undefined
  /** How often it fails, and after how long it is retried, µs. */
  readonly fails?: number | undefined
  readonly backoffUs?: number | undefined
  /**
   * For each of its departures: when it was waiting again after its worker was killed or it was refused, µs; otherwise
   * undefined.
   */
  readonly losses?: readonly (number | undefined)[] | undefined
  /** Whether the downstream refuses it once, with a time to retry. */
  readonly refused?: boolean | undefined
  /** For a probe: how long after its slot its success is known, µs. */
  readonly knownAfterUs?: number | undefined
}

/** A change of a queue at a time, µs: what holds it changes, or nothing leaves for some time. */
export interface Change {
  readonly atUs: number
  readonly holds?: Pick<Holds, 'rate' | 'burst' | 'limits' | 'mode'>
  readonly pausedUntilUs?: number
  /** Whether one job probes after the pause, until its result is known; false: the result is known. */
  readonly probes?: boolean
  /** Units that another queue takes of shared limits, by the limits' names. */
  readonly takes?: Readonly<Record<string, number>>
}

/** A replay charges every departure, even one that it considers too early. */
const REPLAY_HORIZON_US = 1000
/** Times are whole µs, and the algorithms that compute in doubles lose a fraction of one. */
const LIMIT_ROUNDING_US = 2

/** How long the other jobs wait for the result of a probe, as `probeMs` of src/feedback/request.ts. */
const PROBE_US = 10_000_000

interface Running {
  readonly endsUs: number
  readonly cost: number
}

/** A limit of the schedule: by its model, by those of the members of a pool, or by the running jobs. */
interface Held {
  readonly limit: QueueLimit
  /** By member, those first that have rested longest; '' of a limit that is no pool. */
  readonly models: Map<string, Model>
}

/** The members of pools, by the names of their limits. */
export type Members = Readonly<Record<string, string>>

/**
 * An exact schedule: the earliest departures of a queue's jobs, in order and with workers that lose no time. It uses
 * the models of the bucket and of each algorithm, which are written independently of `lua/`.
 */
export class Schedule {
  #nowUs: number
  #bucket: ReferenceBucket | undefined
  /** Of a rate that follows the clock. */
  #curve: ServiceCurve | undefined
  #limits: Held[] = []
  #mode: ShapeMode = 'enforce'
  #places: number
  #pausedUntilUs = 0
  #probe: 'armed' | { readonly untilUs: number } | undefined
  #running: Running[] = []
  /**
   * By how much the schedule may be later than the departures it is compared with, µs. The bucket alone is exact. A
   * slot under a limit may be up to 1 µs before its reported whole µs, and a change of the rate, or of the rate of a
   * bucket among the limits, scales such an error like a debt.
   */
  roundingUs: number
  #intervalUs: number | undefined

  constructor(holds: Holds, startUs: number) {
    this.#nowUs = startUs
    this.#places = holds.places ?? Number.POSITIVE_INFINITY
    this.roundingUs = holds.limits?.length ? LIMIT_ROUNDING_US : 0
    this.#hold(holds, startUs)
  }

  /** Departure times, µs, in the order of the jobs, including those of retried jobs. @param changes by their times */
  departures(jobs: readonly Waiting[], changes: readonly Change[] = []): number[] {
    const pending = [...changes]
    const waiting = [...jobs]
    /** Lost jobs go first once they are back. */
    const lost: (Waiting & { readonly atUs: number })[] = []
    const slotsUs: number[] = []
    for (;;) {
      const nextUs = Math.max(this.#nowUs, waiting[0]?.atUs ?? 0)
      const isBack = lost[0] && (waiting.length === 0 || lost[0].atUs <= nextUs)
      let job = isBack ? lost.shift() : waiting.shift()
      if (!job) return slotsUs
      let slotUs = this.#next(job, pending, isBack ? undefined : lost[0])
      if (slotUs === undefined) {
        waiting.unshift(job)
        job = lost.shift() as Waiting
        slotUs = this.#next(job, pending) as number
      }
      slotsUs.push(slotUs)
      const { fails = 0, backoffUs = 0, runsUs, losses: [backUs, ...losses] = [] } = job
      if (backUs !== undefined) {
        lost.push({ ...job, losses, atUs: backUs })
        lost.sort((one, other) => one.atUs - other.atUs)
      } else if (fails > 0) insert(waiting, { ...job, losses, fails: fails - 1, atUs: slotUs + runsUs + backoffUs })
    }
  }

  /**
   * Lets the next job leave as soon as it may.
   * @param lost a lost job that leaves before it, once it is back
   * @returns when it left, µs; undefined: the lost job is back first
   */
  #next(job: Waiting, pending: Change[], lost?: { readonly atUs: number }): number | undefined {
    const comesUs = job.atUs ?? 0
    while (pending[0] && pending[0].atUs <= comesUs) this.apply(pending.shift() as Change)
    this.moveTo(Math.max(this.#nowUs, comesUs))
    for (;;) {
      const slotUs = this.slotUs(job)
      const [change] = pending
      if (!change || change.atUs > slotUs) return lost && lost.atUs <= slotUs ? undefined : this.depart(job, slotUs)
      pending.shift()
      this.apply(change)
    }
  }

  /** The earliest departure of a job in the current state, µs. @param members with which it departs */
  slotUs(job: Waiting, members: Members = {}): number {
    let slotUs = Math.max(
      this.#nowUs,
      this.#pausedUntilUs,
      typeof this.#probe === 'object' ? this.#probe.untilUs : 0,
      this.#placeUs(this.#places, 1, () => 1),
    )
    if (this.#mode !== 'enforce') return slotUs
    if (this.#bucket) slotUs = Math.max(slotUs, this.#bucket.nextSlotUs(job.cost))
    for (const held of this.#limits) {
      const { limit } = held
      const cost = costUnder(limit, job.cost, job.costs)
      const model = this.#modelOf(held, cost, members)
      slotUs = Math.max(slotUs, model ? this.#nowUs + Math.ceil(model.earliest(cost)) : this.#placeOf(limit, cost))
    }
    return this.#openFrom(slotUs, job)
  }

  /** From a time on, when the rate and all limits that follow the clock let the job leave: they may close again. */
  #openFrom(us: number, job: Waiting): number {
    const timed = this.#limits.filter(({ models }) => [...models.values()][0]?.rule.schedule)
    let openUs = us
    for (let before = -1; before !== openUs; ) {
      before = openUs
      openUs = Math.max(openUs, this.#curve ? this.#curve.when(this.#curve.at(openUs)) : 0)
      for (const { limit, models } of timed) {
        const cost = costUnder(limit, job.cost, job.costs)
        if (cost === 0) continue
        for (const model of models.values()) model.now = openUs
        openUs += Math.ceil(Math.min(...[...models.values()].map((model) => model.earliest(cost))))
        for (const model of models.values()) model.now = this.#nowUs
      }
    }
    return openUs
  }

  /** The model of a limit, or of the member that the job is charged under: the first one by its turn that lets it go soonest. */
  #modelOf({ limit, models }: Held, cost: number, members: Members): Model | undefined {
    const member = members[limit.name]
    if (member !== undefined) return models.get(member)
    const earliest = [...models.values()].map((model) => model.earliest(cost))
    return [...models.values()][earliest.indexOf(Math.min(...earliest))]
  }

  /** Lets a job leave at its earliest time, or later. @param members with which it departs @returns that time */
  depart(job: Waiting, slotUs: number, members: Members = {}): number {
    this.moveTo(slotUs)
    if (this.#probe)
      this.#probe = this.#probe === 'armed' ? { untilUs: slotUs + (job.knownAfterUs ?? PROBE_US) } : undefined
    if (this.#bucket) this.#charge(this.#bucket, job.cost, slotUs)
    for (const held of this.#limits) {
      const { limit, models } = held
      const cost = costUnder(limit, job.cost, job.costs)
      const model = this.#modelOf(held, cost, members)
      // In shadow mode a limit is charged as long as it has room.
      if (this.#mode === 'enforce' || (this.#mode === 'shadow' && model?.earliest(cost) === 0))
        model?.commit(cost, 0, 0)
      const [member] = [...models].find(([, one]) => one === model) ?? []
      if (member === undefined) continue
      models.delete(member)
      models.set(member, model as Model)
    }
    const endsUs = job.losses?.[0] ?? slotUs + job.runsUs
    const at = this.#running.findLastIndex((one) => one.endsUs <= endsUs)
    this.#running.splice(at + 1, 0, { endsUs, cost: job.cost })
    return slotUs
  }

  /**
   * The exact slot may be within the µs before the reported one, so the bucket's clock must not pass it. Under limits, a rate that
   * follows the clock charges the reported one.
   */
  #charge(bucket: ReferenceBucket, cost: number, slotUs: number): void {
    const isExact = this.#curve !== undefined && this.#limits.length > 0
    if (isExact || bucket.nextSlotUs(cost) < slotUs) bucket.advance(slotUs - bucket.nowUs)
    bucket.grant([cost], REPLAY_HORIZON_US)
  }

  #hold({ rate, burst, limits, mode = 'enforce' }: Holds, atUs: number): void {
    this.#mode = mode
    const intervalUs = rate === undefined ? undefined : fastestOf(rate).periodMs / fastestOf(rate).limit
    if (intervalUs && this.#intervalUs) this.roundingUs *= Math.max(1, intervalUs / this.#intervalUs)
    this.#intervalUs = intervalUs
    this.#curve = isScheduled(rate) ? curveOf(rate, this.#nowUs) : undefined
    if (rate === undefined) this.#bucket = undefined
    else if (this.#bucket) this.#bucket.reshape({ rate, burst: burst ?? 1, mode })
    else this.#bucket = new ReferenceBucket({ rate, burst: burst ?? 1, mode }, this.#nowUs)
    if (!limits) return
    this.#limits = limits.map((limit) => {
      const { name, unit: _, pool = [''], ...rule } = limit
      const known = this.#limits.find((held) => held.limit.name === name)
      if (limit.algorithm === 'concurrency') return { limit, models: new Map() }
      const wire = encodeRule(rule)
      const models = known?.models ?? new Map(pool.map((member) => [member, createModel(wire)]))
      if (known && limit.burst !== undefined)
        this.roundingUs *= Math.max(1, intervalOf(limit) / intervalOf(known.limit))
      for (const model of models.values()) {
        // One member of a pool may have been granted slots behind the change, and another one not.
        model.now = limit.pool && limit.burst !== undefined ? Math.max(atUs, model.changedUs) : this.#nowUs
        model.change(wire, true)
        model.now = this.#nowUs
      }
      return { limit, models }
    })
  }

  apply({ atUs, holds, pausedUntilUs, probes, takes = {} }: Change): void {
    this.moveTo(Math.max(this.#nowUs, atUs))
    for (const { limit, models } of this.#limits)
      if (takes[limit.name]) models.get('')?.commit(takes[limit.name] as number, 0, 0)
    if (this.#bucket) this.#bucket.advance(Math.max(0, atUs - this.#bucket.nowUs))
    if (holds) this.#hold(holds, atUs)
    if (probes !== undefined) this.#probe = probes ? 'armed' : undefined
    if (pausedUntilUs === undefined) return
    this.#pausedUntilUs = pausedUntilUs
    this.#bucket?.clearPause()
    this.#bucket?.pauseUntil(pausedUntilUs)
  }

  /** Members of a pool have as many each: jobs have to take one. */
  #placeOf(limit: QueueLimit, cost: number): number {
    const most = (limit.concurrency as number) * (limit.pool?.length ?? 1)
    return this.#placeUs(most, Math.min(most, cost), (running) => Math.min(most, Math.ceil(running)))
  }

  /** When this many units of a limit on running jobs are free. */
  #placeUs(most: number, units: number, unitsOf: (cost: number) => number): number {
    if (most === Number.POSITIVE_INFINITY) return this.#nowUs
    const running = this.#running.filter(({ endsUs }) => endsUs > this.#nowUs)
    let used = running.reduce((sum, { cost }) => sum + unitsOf(cost), 0)
    let freeUs = this.#nowUs
    for (const { endsUs, cost } of running) {
      if (used + units <= most) break
      used -= unitsOf(cost)
      freeUs = endsUs
    }
    return freeUs
  }

  moveTo(us: number): void {
    this.#nowUs = us
    this.#running = this.#running.filter(({ endsUs }) => endsUs > us)
    if (this.#bucket) this.#bucket.advance(Math.max(0, us - 1 - this.#bucket.nowUs))
    for (const { models } of this.#limits) for (const model of models.values()) model.now = us
  }
}

function curveOf(rate: RateSchedule, fromUs: number): ServiceCurve {
  const { limit, periodMs } = fastestOf(rate)
  return new ServiceCurve(encodeRate(rate), (periodMs * 1000) / limit, fromUs)
}

/** A rate of a shape; the fastest of one that follows the clock. */
export function fastestOf(rate: NonNullable<Shape['rate']>): Rate {
  const [limit, periodMs] = encodeRate(rate)
  return { limit, periodMs }
}

function intervalOf({ rate }: QueueLimit): number {
  const { limit, periodMs } = fastestOf(rate as RateInput)
  return periodMs / limit
}

/** Inserts it after the jobs that arrived before it. */
function insert(waiting: Waiting[], job: Waiting & { readonly atUs: number }): void {
  const at = waiting.findLastIndex(({ atUs = 0 }) => atUs <= job.atUs)
  waiting.splice(at + 1, 0, job)
}
