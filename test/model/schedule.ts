import { encodeRule } from '../../src/limits/definition.ts'
import { costUnder, type QueueLimit } from '../../src/limits/queue-limits.ts'
import { parseRate, type RateInput } from '../../src/rate.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import type { Model } from '../limits/model/base.ts'
import { createModel } from '../limits/model/model.ts'

/** What holds the jobs of a queue. */
export interface Holds {
  /** Undefined: no rate. */
  readonly rate?: RateInput | undefined
  readonly burst?: number | undefined
  readonly limits?: readonly QueueLimit[] | undefined
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
}

/** What happens to a queue at a time, µs: its holds change, or nothing leaves for a while. */
export interface Change {
  readonly atUs: number
  readonly holds?: Pick<Holds, 'rate' | 'burst' | 'limits'>
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
  #places: number
  #pausedUntilUs = 0
  #running: Running[] = []
  /**
   * By how much the schedule may be later than what it is compared with, µs. The bucket by itself is exact. A slot that a
   * limit asks for lies up to 1 µs before the whole one that is told, and a change of the rate multiplies such an error as
   * it does a debt.
   */
  roundingUs: number
  #intervalUs: number | undefined

  constructor(holds: Holds, startUs: number) {
    this.#nowUs = startUs
    this.#places = holds.places ?? Number.POSITIVE_INFINITY
    this.roundingUs = holds.limits?.length ? LIMIT_ROUNDING_US : 0
    this.#hold(holds)
  }

  /** Departure times, µs, in the order of the jobs. @param changes by their times */
  departures(jobs: readonly Waiting[], changes: readonly Change[] = []): number[] {
    const pending = [...changes]
    return jobs.map((job) => {
      this.moveTo(Math.max(this.#nowUs, job.atUs ?? 0))
      for (;;) {
        const slotUs = this.slotUs(job)
        const [change] = pending
        if (!change || change.atUs > slotUs) return this.depart(job, slotUs)
        pending.shift()
        this.apply(change)
      }
    })
  }

  /** The earliest departure of a job as things stand, µs. */
  slotUs(job: Waiting): number {
    let slotUs = Math.max(
      this.#nowUs,
      this.#pausedUntilUs,
      this.#placeUs(this.#places, 1, () => 1),
    )
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
    for (const { limit, model } of this.#limits) model?.commit(costUnder(limit, job.cost, job.costs), 0, 0)
    const at = this.#running.findLastIndex(({ endsUs }) => endsUs <= slotUs + job.runsUs)
    this.#running.splice(at + 1, 0, { endsUs: slotUs + job.runsUs, cost: job.cost })
    return slotUs
  }

  /** The slot itself may lie within the µs before the one that is told: the bucket's clock is not ahead of it. */
  #charge(bucket: ReferenceBucket, cost: number, slotUs: number): void {
    if (bucket.nextSlotUs(cost) < slotUs) bucket.advance(slotUs - bucket.nowUs)
    bucket.grant([cost], REPLAY_HORIZON_US)
  }

  #hold({ rate, burst, limits }: Holds): void {
    const intervalUs = rate === undefined ? undefined : parseRate(rate).periodMs / parseRate(rate).limit
    if (intervalUs && this.#intervalUs) this.roundingUs *= Math.max(1, intervalUs / this.#intervalUs)
    this.#intervalUs = intervalUs
    if (rate === undefined) this.#bucket = undefined
    else if (this.#bucket) this.#bucket.reshape({ rate, burst: burst ?? 1 })
    else this.#bucket = new ReferenceBucket({ rate, burst: burst ?? 1 }, this.#nowUs)
    if (!limits) return
    this.#limits = limits.map((limit) => {
      const { name, unit: _, ...rule } = limit
      const known = this.#limits.find((held) => held.limit.name === name)
      if (limit.algorithm === 'concurrency') return { limit, model: undefined }
      const model = known?.model ?? createModel(encodeRule(rule))
      model.rule = encodeRule(rule)
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
