import { encodeRate, isScheduled, type StoredRate } from '../limits/schedule.ts'
import { gridIntervalUs } from '../rate.ts'
import { ServiceCurve } from '../shape/service-curve.ts'
import { DEFAULT_HORIZON_MS, encodeShape, type Shape } from '../shape/shape.ts'
import {
  type BucketShape,
  type BucketState,
  charge,
  chargeInShadow,
  filled,
  latest,
  newState,
  refunded,
  reshaped,
  slotOf,
  steppedBack,
  type Ticks,
  withHorizon,
} from './bucket-state.ts'

/** The fields of a shape that the bucket uses. The rate is required. */
export type BucketFields = Pick<Shape, 'burst' | 'mode' | 'onStateLoss' | 'horizonMs'> & Required<Pick<Shape, 'rate'>>

/** Slots granted together. */
export interface ReferenceGrant {
  /** Departure times, whole µs of the bucket's clock, in the order of the costs. */
  readonly slotsUs: readonly number[]
  readonly costs: readonly number[]
  /** The slot granted before these, whole µs. */
  readonly previousUs: number
  /**
   * Number of the state change that made it: after another one, no refund is possible. Undefined: nothing was charged.
   */
  readonly change: number | undefined
}

/**
 * The meter of one queue in plain TypeScript, with a manual clock: which departure times jobs are granted. It does in
 * memory, and exactly, what Sluice does in Redis; use it to try a shape, or as the reference in tests.
 *
 * ```ts
 * const bucket = new ReferenceBucket({ rate: '50/s', burst: 2 })
 * bucket.depart()        // 0
 * bucket.depart()        // 0
 * bucket.depart()        // undefined: not yet
 * bucket.nextSlotUs()    // 20000
 * bucket.advance(20_000)
 * bucket.depart()        // 20000
 * ```
 */
export class ReferenceBucket {
  /**
   * Slots this close after a change, µs, may have been granted before it.
   * @internal
   */
  protected readonly aheadUs: number = 60_000_000
  #fields: BucketFields
  #shape: BucketShape
  #curve: ServiceCurve
  readonly #startUs: number
  /** Start of the current rate and burst, and start of the current mode. */
  #changedAtUs: number
  #modeAtUs: number
  #state: BucketState | undefined
  #nowUs: number
  #pausedUntilUs = 0
  #changes = 0
  #used = false
  /** Redis was restarted: its grants since its last save are unknown. */
  #restarted = false

  /**
   * @param shape defaults as in a queue's shape
   * @param startUs where the clock begins, whole µs, default 0
   * @throws InvalidRateError, InvalidShapeError
   */
  constructor(shape: BucketFields, startUs = 0) {
    this.#fields = shape
    this.#shape = bucketShape(shape)
    this.#curve = curveOf(shape, this.#shape, startUs)
    this.#nowUs = startUs
    this.#startUs = startUs
    this.#changedAtUs = startUs
    this.#modeAtUs = startUs
  }

  /** The clock, whole µs. */
  get nowUs(): number {
    return this.#nowUs
  }

  /** Units of cost that the bucket holds now: 0 is empty, `burst` is full. */
  get level(): number {
    const { tat, intervalUs } = this.#open()
    return Number(latest(0n, tat - this.#now)) / 1024 / intervalUs
  }

  /**
   * The state after the last change, exact to 1/1024 µs; undefined before the first change and after a loss.
   * @internal
   */
  get state(): BucketState | undefined {
    return this.#state
  }

  /** Moves the clock by whole µs. A negative number sets the clock back. */
  advance(us: number): void {
    this.#nowUs += us
  }

  /** The departure time that a job of this cost would get now, whole µs. */
  nextSlotUs(cost = 1): number {
    if (this.#shape.mode !== 'enforce') return Math.max(this.#nowUs, this.#pausedUntilUs)
    return this.#startOf(this.#slot(this.#open(), cost))
  }

  /**
   * Grants one job its departure time.
   * @param horizonUs how far ahead it may be, default 0: only now
   * @returns the departure time (whole µs), or undefined if it is beyond the horizon
   */
  depart(cost = 1, horizonUs = 0): number | undefined {
    return this.grant([cost], horizonUs).slotsUs[0]
  }

  /** Grants departure times to jobs, in their order, up to the first whose time is beyond the horizon (µs). */
  grant(costs: readonly number[], horizonUs = 0): ReferenceGrant {
    const { mode } = this.#shape
    const opened = this.#open(horizonUs)
    const previousUs = this.#whenOf(opened.last)
    let state = withHorizon(opened, horizonUs, this.#nowUs)
    const slotsUs: number[] = []
    for (const cost of costs) {
      // A pause holds in every mode; the bucket only in `enforce`.
      const slot = mode === 'enforce' ? this.#slot(state, cost) : this.#now
      const slotUs = mode === 'enforce' ? this.#startOf(slot) : Math.max(this.#nowUs, this.#pausedUntilUs)
      if (slotUs > this.#nowUs + horizonUs) break
      slotsUs.push(slotUs)
      if (mode === 'enforce') state = charge(state, cost, slot)
      if (mode === 'shadow') state = chargeInShadow(state, cost, this.#now)
    }
    if (mode !== 'off') {
      if (slotsUs.length > 0 || this.#isChanged(opened)) this.#keep(state)
      this.#used = true
    }
    return {
      slotsUs,
      costs: costs.slice(0, slotsUs.length),
      previousUs,
      change: mode === 'enforce' ? this.#changes : undefined,
    }
  }

  /**
   * Refunds the last `count` slots of a grant, as a closing worker does.
   * @returns the rest of the grant, or undefined if the slots are not the last ones granted: then they are lost
   */
  refund(grant: ReferenceGrant, count = grant.slotsUs.length): ReferenceGrant | undefined {
    if (!this.#state || grant.change !== this.#changes || count === 0) return undefined
    const left = grant.slotsUs.length - count
    const slotsUs = grant.slotsUs.slice(0, left)
    this.#state = refunded(this.#state, grant.costs.slice(left), this.#curve.at(slotsUs.at(-1) ?? grant.previousUs))
    return { ...grant, slotsUs, costs: grant.costs.slice(0, left) }
  }

  /**
   * Refunds the last slots of a grant that a worker returns without use, such as those of late jobs: only the very last
   * slot granted, which several jobs may have. None if the rate, burst or mode changed after it, or up to a minute
   * before: the bucket took over only a part of the charge.
   * @returns how many were refunded; the others are lost
   */
  takeBack({ slotsUs, costs }: ReferenceGrant, count = slotsUs.length): number {
    if (!this.#state || this.#shape.mode !== 'enforce' || count === 0) return 0
    const lastUs = this.#whenOf(this.#state.last)
    if (!this.#wasCharged(lastUs)) return 0
    const found = costs.slice(-count).filter((_, i) => slotsUs.at(i - count) === lastUs)
    this.#state = refunded(this.#state, found, this.#state.last)
    return found.length
  }

  /**
   * Changes fields of the shape for every slot not yet granted.
   * @param endedUs when the change happened, if not observed at that time: the end of an override. Default: now
   * @throws InvalidRateError, InvalidShapeError
   */
  reshape(change: Partial<BucketFields>, endedUs?: number): void {
    const [before, rate, curve] = [this.#shape, this.#fields.rate, this.#curve]
    this.#fields = { ...this.#fields, ...change }
    this.#shape = bucketShape(this.#fields)
    const isTimed = isScheduled(rate) || isScheduled(this.#fields.rate)
    const changed = differs(this.#shape, before) || (isTimed && !isSame(rate, this.#fields.rate))
    // An earlier change was never applied: until now the debt drained at that rate.
    if (changed && this.#state && differs(this.#state, before)) {
      this.#state = reshaped(this.#state, before, curve.at(this.#changedAtUs))
      this.#changes += 1
    }
    if (changed) this.#curve = curveOf(this.#fields, this.#shape, this.#nowUs)
    if (changed && isTimed && this.#state) this.#retime(this.#state, curve, endedUs ?? this.#nowUs)
    if (changed) this.#changedAtUs = endedUs ?? this.#nowUs
    if (this.#shape.mode !== before.mode) this.#modeAtUs = endedUs ?? this.#nowUs
    if (endedUs === undefined && this.#state) this.#keepIfChanged(this.#openKnown(this.#state))
  }

  /** Nothing departs before a time (whole µs of the bucket's clock); a later pause never shortens an earlier one. */
  pauseUntil(us: number): void {
    this.#pausedUntilUs = Math.max(this.#pausedUntilUs, us)
    if (this.#state) this.#keepIfChanged(this.#openKnown(this.#state))
  }

  clearPause(): void {
    this.#pausedUntilUs = 0
    if (this.#state) this.#keepIfChanged(this.#openKnown(this.#state))
  }

  /** Redis was restarted with its saved state: its grants since then are unknown. */
  restart(): void {
    this.#restarted = this.#state !== undefined
  }

  /** The state of the bucket is lost. */
  loseState(): void {
    this.#state = undefined
  }

  /** All state in Redis is lost, and a process has restored the shape. */
  restore(): void {
    this.#state = undefined
    this.#used = true
    this.#keep(this.#open())
  }

  /** The state as of now: after steps of the clock, changes of the shape and losses. Nothing is stored. */
  #open(horizonUs = 0): BucketState {
    const known = this.#state
    const state = known ? this.#openKnown(known) : newState(this.#now, this.#nowUs, this.#shape)
    const lost = known ? this.#restarted : this.#used
    const { lossAtUs } = state
    // A longer horizon than the one known to the process that noticed the loss prolongs the hold.
    if (!lost && lossAtUs !== undefined && this.#nowUs - lossAtUs < horizonUs)
      return this.#filled(state, lossAtUs, horizonUs)
    if (!lost || this.#shape.onStateLoss !== 'hold') return state
    return this.#filled(state, this.#nowUs, Math.max(state.horizonUs, this.#shape.horizonUs, horizonUs))
  }

  #openKnown(known: BucketState): BucketState {
    const nowUs = this.#nowUs
    const backUs = known.seenUs - nowUs
    let state = backUs > 0 ? steppedBack(known, this.#curve.at(known.seenUs) - this.#now, backUs) : known
    if (differs(state, this.#shape)) {
      state = reshaped(state, this.#shape, this.#curve.at(Math.min(nowUs, this.#changedAtUs)))
    }
    return state.mode === this.#shape.mode ? state : { ...state, mode: this.#shape.mode }
  }

  /** Whether a slot was certainly charged at the current rate and in the current mode. */
  #wasCharged(slotUs: number): boolean {
    const sinceUs = Math.max(this.#changedAtUs, this.#modeAtUs)
    return sinceUs <= this.#startUs ? slotUs >= this.#startUs : slotUs > sinceUs + this.aheadUs
  }

  #filled(state: BucketState, lossAtUs: number, horizonUs: number): BucketState {
    return filled(state, lossAtUs, this.#curve.at(lossAtUs + horizonUs))
  }

  /** From or to a rate that follows the clock: debts are kept in units, and slots granted ahead in time. */
  #retime(known: BucketState, curve: ServiceCurve, atUs: number): void {
    const nowUs = Math.max(atUs, known.seenUs)
    const [now, moved] = [curve.at(nowUs), this.#curve.at(nowUs)]
    const state = reshaped(known, this.#shape, now)
    const last = known.last > now ? this.#curve.at(curve.when(known.last)) : state.last - now + moved
    this.#state = { ...state, tat: state.tat - state.last + last, last, seenUs: nowUs }
    this.#changes += 1
  }

  get #now(): Ticks {
    return this.#curve.at(this.#nowUs)
  }

  #slot(state: BucketState, cost: number): Ticks {
    return latest(slotOf(state, cost, this.#now), this.#curve.at(Math.max(this.#pausedUntilUs, this.#nowUs)))
  }

  #whenOf(slot: Ticks): number {
    const us = this.#curve.when(slot)
    return slot < this.#now ? us : Math.max(us, this.#nowUs)
  }

  #startOf(slot: Ticks): number {
    return Math.max(this.#whenOf(slot), this.#pausedUntilUs)
  }

  #isChanged(opened: BucketState): boolean {
    return opened !== this.#state || this.#restarted
  }

  #keepIfChanged(opened: BucketState): void {
    if (opened === this.#state) return
    this.#state = { ...opened, seenUs: this.#nowUs }
    this.#changes += 1
  }

  #keep(state: BucketState): void {
    this.#state = { ...state, seenUs: this.#nowUs }
    this.#changes += 1
    this.#restarted = false
  }
}

type Pace = Pick<BucketShape, 'intervalUs' | 'burst'>

function differs(one: Pace, other: Pace): boolean {
  return one.intervalUs !== other.intervalUs || one.burst !== other.burst
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

function curveOf({ rate }: BucketFields, { intervalUs }: BucketShape, startUs: number): ServiceCurve {
  return new ServiceCurve(encodeRate(rate), intervalUs, startUs)
}

function bucketShape(fields: BucketFields): BucketShape {
  encodeShape(fields)
  const { rate, burst = 1, mode = 'enforce', onStateLoss = 'hold', horizonMs = DEFAULT_HORIZON_MS } = fields
  const [limit, periodMs] = encodeRate(rate) satisfies StoredRate
  return { intervalUs: gridIntervalUs(limit, periodMs), burst, mode, onStateLoss, horizonUs: horizonMs * 1000 }
}
