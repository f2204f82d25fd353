import { encodeRule } from '../../src/limits/definition.ts'
import { costUnder, type QueueLimit } from '../../src/limits/queue-limits.ts'
import type { ShapeMode } from '../../src/mode.ts'
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
  /** Of each of its departures, when it waited again since its worker was killed or it was refused, µs; undefined else. */
  readonly losses?: readonly (number | undefined)[] | undefined
  /** Whether the other side refuses it once, and says when to come back. */
  readonly refused?: boolean | undefined
  /** How long after its slot it is known that it went well, where it is a probe, µs. */
  readonly knownAfterUs?: number | undefined
}

/** What happens to a queue at a time, µs: its holds change, or nothing leaves for a while. */
export interface Change {
  readonly atUs: number
  readonly holds?: Pick<Holds, 'rate' | 'burst' | 'limits' | 'mode'>
  readonly pausedUntilUs?: number
  /** After the pause one job goes first, until it is known how it went; false: it is known. */
  readonly probes?: boolean
  /** Somebody else takes so much of the limits of these names, which he shares. */
  readonly takes?: Readonly<Record<string, number>>
}

/** A replay charges what it is told of, also where it finds that too early. */
const REPLAY_HORIZON_US = 1000
/** Times are whole µs, and the algorithms that reckon in doubles lose some of one. */
const LIMIT_ROUNDING_US = 2

/** How long others wait for word of a probe, as `probeMs` of src/feedback/request.ts. */
const PROBE_US = 10_000_000

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
  #probe: 'armed' | { readonly untilUs: number } | undefined
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

  /** Departure times, µs, in the order of the jobs, those of jobs that come again among them. @param changes by their times */
  departures(jobs: readonly Waiting[], changes: readonly Change[] = []): number[] {
    const pending = [...changes]
    const waiting = [...jobs]
    /** What was lost goes first when it is back. */
    const lost: (Waiting & { readonly atUs: number })[] = []
    const slotsUs: number[] = []
    for (;;) {
      const nextUs = Math.max(this.#nowUs, waiting[0]?.atUs ?? 0)
      const isBack = lost[0] && (waiting.length === 0 || lost[0].atUs <= nextUs)
      const job = isBack ? lost.shift() : waiting.shift()
      if (!job) return slotsUs
      const slotUs = this.#next(job, pending)
      slotsUs.push(slotUs)
      const { fails = 0, backoffUs = 0, runsUs, losses: [backUs, ...losses] = [] } = job
      if (backUs !== undefined) {
        lost.push({ ...job, losses, atUs: backUs })
        lost.sort((one, other) => one.atUs - other.atUs)
      } else if (fails > 0) insert(waiting, { ...job, losses, fails: fails - 1, atUs: slotUs + runsUs + backoffUs })
    }
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
      typeof this.#probe === 'object' ? this.#probe.untilUs : 0,
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
    if (this.#probe)
      this.#probe = this.#probe === 'armed' ? { untilUs: slotUs + (job.knownAfterUs ?? PROBE_US) } : undefined
    if (this.#bucket) this.#charge(this.#bucket, job.cost, slotUs)
    for (const { limit, model } of this.#limits) {
      const cost = costUnder(limit, job.cost, job.costs)
      // In shadow a limit is charged as long as it has room.
      if (this.#mode === 'enforce' || (this.#mode === 'shadow' && model?.earliest(cost) === 0))
        model?.commit(cost, 0, 0)
    }
    const endsUs = job.losses?.[0] ?? slotUs + job.runsUs
    const at = this.#running.findLastIndex((one) => one.endsUs <= endsUs)
    this.#running.splice(at + 1, 0, { endsUs, cost: job.cost })
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
      model.now = this.#nowUs
      model.change(wire, true)
      return { limit, model }
    })
  }

  apply({ atUs, holds, pausedUntilUs, probes, takes = {} }: Change): void {
    this.moveTo(Math.max(this.#nowUs, atUs))
    for (const { limit, model } of this.#limits) if (takes[limit.name]) model?.commit(takes[limit.name] as number, 0, 0)
    if (this.#bucket) this.#bucket.advance(Math.max(0, atUs - this.#bucket.nowUs))
    if (holds) this.#hold(holds)
    if (probes !== undefined) this.#probe = probes ? 'armed' : undefined
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

/** Behind those that came before it. */
function insert(waiting: Waiting[], job: Waiting & { readonly atUs: number }): void {
  const at = waiting.findLastIndex(({ atUs = 0 }) => atUs <= job.atUs)
  waiting.splice(at + 1, 0, job)
}
