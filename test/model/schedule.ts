import { encodeRule } from '../../src/limits/definition.ts'
import { costUnder, type QueueLimit } from '../../src/limits/queue-limits.ts'
import { parseRate, type RateInput } from '../../src/rate.ts'
import type { ShapeMode } from '../../src/shape-mode.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import type { Model } from '../limits/model/base.ts'
import { createModel } from '../limits/model/model.ts'

/** What holds the jobs of a queue. */
export interface Holds {
  /** Undefined: no rate. */
  readonly rate?: RateInput | undefined
  readonly burst?: number | undefined
  readonly limits?: readonly QueueLimit[] | undefined
  readonly mode?: ShapeMode | undefined
  /** Jobs that may run at once. */
  readonly places?: number | undefined
}

export interface Waiting {
  readonly cost: number
  readonly costs?: Readonly<Record<string, number>> | undefined
  /** How long it keeps its place once it has one, µs. */
  readonly runsUs: number
  /** When it came, µs; undefined: from the start. */
  readonly atUs?: number | undefined
  /** 0: it waits with those that have none. */
  readonly priority?: number | undefined
  /** It fails so many times, and comes again so long after, µs. */
  readonly fails?: number | undefined
  readonly backoffUs?: number | undefined
}

/** What happens to a queue at a time, µs: its holds change, or nothing leaves for a while. */
export interface Change {
  readonly atUs: number
  readonly holds?: Pick<Holds, 'rate' | 'burst' | 'limits' | 'mode'>
  readonly pausedUntilUs?: number
}

/** A replay charges what it is told of, also where it finds that too early. */
const REPLAY_HORIZON_US = 1000
/** Times are whole µs, and the algorithms that reckon in doubles lose some of one. */
const LIMIT_ROUNDING_US = 2

interface Running {
  readonly endsUs: number
  readonly cost: number
}

/** A limit of the schedule: by its model, or by the jobs that run. */
interface Held {
  readonly limit: QueueLimit
  readonly model: Model | undefined
}

/**
 * When the jobs of a queue depart at the earliest, in their order and with workers that lose no time: an exact schedule,
 * from the models of the bucket and of each algorithm, which are written apart from `lua/`.
 */
export class Schedule {
  #nowUs: number
  #bucket: ReferenceBucket | undefined
  #limits: Held[] = []
  #mode: ShapeMode = 'enforce'
  #places: number
  #pausedUntilUs = 0
  #running: Running[] = []
  /**
   * By how much the schedule may be later than what it is compared with, µs. The bucket by itself is exact. A slot that a
   * limit asks for lies up to 1 µs before the whole one that is told, and a change of the rate multiplies such an error as
   * it does a debt.
   */
  roundingUs: number
  /** Of each limit that is a bucket and was made faster: so many horizons too early a job may leave. */
  readonly #hastened = new Map<string, number>()
  #intervalUs: number | undefined

  constructor(holds: Holds, startUs: number) {
    this.#nowUs = startUs
    this.#places = holds.places ?? Number.POSITIVE_INFINITY
    this.roundingUs = holds.limits?.length ? LIMIT_ROUNDING_US : 0
    this.#hold(holds)
  }

  /**
   * How many horizons too early a job may leave after a limit that is a bucket was made faster: a limit reckons what has
   * come back since its last charge by the rate of now, and that charge was made up to a horizon before the slot that it
   * was for. The rate of the shape does not: it is reckoned from the last slot.
   */
  get hastened(): number {
    return Math.max(0, ...this.#hastened.values())
  }

  /** Departure times, µs, in the order of the jobs, those of jobs that come again among them. @param changes by their times */
  departures(jobs: readonly Waiting[], changes: readonly Change[] = []): number[] {
    const pending = [...changes]
    const waiting = [...jobs]
    const slotsUs: number[] = []
    for (let job = waiting.shift(); job; job = waiting.shift()) {
      const slotUs = this.#next(job, pending)
      slotsUs.push(slotUs)
      const { fails = 0, backoffUs = 0, runsUs } = job
      if (fails === 0) continue
      const again = { ...job, fails: fails - 1, atUs: slotUs + runsUs + backoffUs }
      const at = waiting.findLastIndex(({ atUs = 0 }) => atUs <= again.atUs)
      waiting.splice(at + 1, 0, again)
    }
    return slotsUs
  }

  /** Lets the next job leave as soon as it may. */
  #next(job: Waiting, pending: Change[]): number {
    const comesUs = job.atUs ?? 0
    while (pending[0] && pending[0].atUs <= comesUs) this.apply(pending.shift() as Change)
    this.moveTo(Math.max(this.#nowUs, comesUs))
    for (;;) {
      const slotUs = this.slotUs(job)
      const [change] = pending
      if (!change || change.atUs > slotUs) return this.depart(job, slotUs)
      pending.shift()
      this.apply(change)
    }
  }

  /** The earliest departure of a job as things stand, µs. */
  slotUs(job: Waiting): number {
    let slotUs = Math.max(
      this.#nowUs,
      this.#pausedUntilUs,
      this.#placeUs(this.#places, 1, () => 1),
    )
    if (this.#mode !== 'enforce') return slotUs
    if (this.#bucket) slotUs = Math.max(slotUs, this.#bucket.nextSlotUs(job.cost))
    for (const { limit, model } of this.#limits) {
      const cost = costUnder(limit, job.cost, job.costs)
      slotUs = Math.max(slotUs, model ? this.#nowUs + Math.ceil(model.earliest(cost)) : this.#placeOf(limit, cost))
    }
    return slotUs
  }

  /** Lets a job leave at a time, which has to be its earliest, or later. @returns that time */
  depart(job: Waiting, slotUs: number): number {
    this.moveTo(slotUs)
    if (this.#bucket) this.#charge(this.#bucket, job.cost, slotUs)
    for (const { limit, model } of this.#limits) {
      const cost = costUnder(limit, job.cost, job.costs)
      // In shadow a limit is charged as long as it has room.
      if (this.#mode === 'enforce' || (this.#mode === 'shadow' && model?.earliest(cost) === 0))
        model?.commit(cost, 0, 0)
    }
    const at = this.#running.findLastIndex(({ endsUs }) => endsUs <= slotUs + job.runsUs)
    this.#running.splice(at + 1, 0, { endsUs: slotUs + job.runsUs, cost: job.cost })
    return slotUs
  }

  /** The slot itself may lie within the µs before the one that is told: the bucket's clock is not ahead of it. */
  #charge(bucket: ReferenceBucket, cost: number, slotUs: number): void {
    if (bucket.nextSlotUs(cost) < slotUs) bucket.advance(slotUs - bucket.nowUs)
    bucket.grant([cost], REPLAY_HORIZON_US)
  }

  #hold({ rate, burst, limits, mode = 'enforce' }: Holds): void {
    this.#mode = mode
    const intervalUs = rate === undefined ? undefined : parseRate(rate).periodMs / parseRate(rate).limit
    if (intervalUs && this.#intervalUs) this.roundingUs *= Math.max(1, intervalUs / this.#intervalUs)
    this.#intervalUs = intervalUs
    if (rate === undefined) this.#bucket = undefined
    else if (this.#bucket) this.#bucket.reshape({ rate, burst: burst ?? 1, mode })
    else this.#bucket = new ReferenceBucket({ rate, burst: burst ?? 1, mode }, this.#nowUs)
    if (!limits) return
    this.#limits = limits.map((limit) => {
      const { name, unit: _, ...rule } = limit
      const known = this.#limits.find((held) => held.limit.name === name)
      if (limit.algorithm === 'concurrency') return { limit, model: undefined }
      const model = known?.model ?? createModel(encodeRule(rule))
      const wire = encodeRule(rule)
      const slower = (wire.interval ?? 1) / (model.rule.interval ?? 1)
      // What is missing are units: at a lower rate they are worth more time.
      const before = (this.#hastened.get(name) ?? 0) * Math.max(1, slower)
      this.#hastened.set(name, before + (slower < 1 ? 1 : 0))
      model.rule = wire
      model.now = this.#nowUs
      return { limit, model }
    })
  }

  apply({ atUs, holds, pausedUntilUs }: Change): void {
    this.moveTo(Math.max(this.#nowUs, atUs))
    if (this.#bucket) this.#bucket.advance(Math.max(0, atUs - this.#bucket.nowUs))
    if (holds) this.#hold(holds)
    if (pausedUntilUs === undefined) return
    this.#pausedUntilUs = pausedUntilUs
    this.#bucket?.clearPause()
    this.#bucket?.pauseUntil(pausedUntilUs)
  }

  #placeOf(limit: QueueLimit, cost: number): number {
    const most = limit.concurrency as number
    return this.#placeUs(most, Math.min(most, cost), (running) => Math.min(most, Math.ceil(running)))
  }

  /** When so many units are free of a limit on running jobs. */
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
    for (const { model } of this.#limits) if (model) model.now = us
  }
}
