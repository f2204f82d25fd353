import { encodeRule, type LimitWire } from '../../../src/limits/definition.ts'
import { isScheduled, type RateSchedule, type StoredRate } from '../../../src/limits/schedule.ts'
import { ServiceCurve } from '../../../src/shape/service-curve.ts'
import type { Rate } from '../../groups/model/charges.ts'
import type { Model } from '../../limits/model/base.ts'
import { createModel } from '../../limits/model/model.ts'
import { isSameRate } from '../../limits/model/scheduled.ts'
import type { Line } from './line.ts'
import { isPlaces, type Limit } from './shape.ts'

/** A place is held for as long as its job runs: here no lease runs out. µs */
const LEASE_US = 2 ** 52

/** What is set for one value in place of what the limit says, each until a time (µs); a rate of null is no limit. */
export interface OwnValues {
  readonly rate?: { readonly value: Rate | RateSchedule | null; readonly untilUs: number }
  readonly burst?: { readonly value: number; readonly untilUs: number }
  readonly tier?: { readonly value: string; readonly untilUs: number }
}

/** When the rates of a limit changed last, and when they did before, µs; 0 for never. */
export type RateChanges = readonly [lastUs: number, earlierUs: number]

const NEVER: RateChanges = [0, 0]

/** What a cell was charged, and whether that was taken back. */
export interface Charge {
  readonly slotUs: number
  cost: number
}

/**
 * The state of one limit for one value of its key, with the line of the lanes that wait for it. What it allows is decided by
 * the model of its algorithm.
 */
export class Cell {
  readonly id: string
  /** There while lanes wait for it, or were released and have not been tried since. */
  line: Line | undefined
  /** False once the shape has no such limit any more. */
  isCounted = true
  /** All charges that count, in the order in which they were made. */
  readonly charges: Charge[] = []
  #limit: Limit
  readonly #model: Model
  #rateChanges: RateChanges
  #own: OwnValues = {}
  #sinceUs = 0

  constructor(id: string, limit: Limit, rateChanges = NEVER) {
    this.id = id
    this.#limit = limit
    this.#rateChanges = rateChanges
    this.#model = createModel(this.#wireAt(0, undefined))
  }

  get limit(): Limit {
    return this.#limit
  }

  /** Of another shape: its state, as one in Redis, counts by it once it is looked at. */
  follow(limit: Limit, rateChanges = NEVER): void {
    this.#rateChanges = rateChanges
    if (limit === this.#limit) return
    const [before, after] = [this.#limit, limit].map((one) => wireOf(one, undefined, {})) as [LimitWire, LimitWire]
    if (before.algorithm !== after.algorithm || before.window !== after.window || before.align !== after.align)
      throw new Error(`limit ${limit.name} is another one: give it another name`)
    this.#limit = limit
  }

  /** The tier that applies to a job of one, undefined where the limit has none. */
  tierOf(tier: string | undefined, nowUs: number): string | undefined {
    return this.#limit.tiers && (this.#lasting(nowUs).tier?.value ?? tier)
  }

  /** The limit is read for a job: its state counts by the tier of that from now on. */
  touch(nowUs: number, tier: string | undefined): void {
    this.#at(nowUs, tier)
  }

  /** When the first of what is set for it ends, µs. */
  get ownEndUs(): number {
    return Math.min(...Object.values(this.#own).map(({ untilUs }) => untilUs), Number.POSITIVE_INFINITY)
  }

  /** Whether nothing limits it. */
  isOff(nowUs: number): boolean {
    const { rate } = this.#own
    return rate !== undefined && rate.value === null && rate.untilUs > nowUs
  }

  /** Whether it holds anybody now. */
  holds(nowUs: number): boolean {
    if (this.isCounted) this.#endOwn(nowUs, undefined)
    return this.isCounted && !this.isOff(nowUs)
  }

  /** @param values undefined lifts what is set; else only these fields */
  setOwn(values: OwnValues | undefined, nowUs: number): void {
    this.#endOwn(nowUs, undefined)
    const [before, rateChanges] = [this.#wireAt(nowUs, undefined), this.#rateChangesAt(nowUs)]
    this.#own = values ? { ...this.#lasting(nowUs), ...values } : {}
    this.#own = this.#lasting(nowUs)
    this.#sinceUs = nowUs
    this.#takeOver(nowUs, before, rateChanges, undefined)
  }

  /** What has ended is forgotten. */
  forgetEnded(nowUs: number): void {
    const ends = this.#endOwn(nowUs, undefined)
    this.#own = this.#lasting(nowUs)
    this.#sinceUs = Math.max(this.#sinceUs, ...ends)
  }

  /** Since when what applies to it is in force, µs; 0 if nothing was ever set for it. */
  ownSinceUs(nowUs: number): number {
    return Math.max(this.#sinceUs, ...this.#endsBy(nowUs))
  }

  get isPlaces(): boolean {
    return isPlaces(this.#limit)
  }

  /** How many places are free; infinite for a cell that has none. */
  get room(): number {
    return this.isPlaces ? this.#model.view().left : Number.POSITIVE_INFINITY
  }

  /** µs from now until a cost conforms, not rounded; infinite where a job has to end first. */
  offset(cost: number, nowUs: number, tier?: string): number {
    if (this.isOff(nowUs)) return 0
    const offsetUs = this.#at(nowUs, tier).earliest(cost)
    return this.isPlaces && offsetUs > 0 ? Number.POSITIVE_INFINITY : offsetUs
  }

  /** The earliest slot of a cost, µs. */
  slot(cost: number, nowUs: number, tier?: string): number {
    return nowUs + Math.ceil(this.offset(cost, nowUs, tier))
  }

  /** The first time from one on, µs, when its rate is above 0. */
  opensUs(fromUs: number, nowUs: number, tier: string | undefined): number {
    const { schedule, interval } = this.#wireAt(nowUs, tier)
    if (!schedule || this.isOff(nowUs) || !Number.isFinite(fromUs)) return fromUs
    const curve = new ServiceCurve([1, 1, schedule] as unknown as StoredRate, interval as number, fromUs)
    return curve.when(curve.at(fromUs))
  }

  /** @param offsetUs from now to the slot of the job */
  charge(
    cost: number,
    offsetUs: number,
    nowUs: number,
    { lease, tier }: { lease: number; tier?: string | undefined },
  ): void {
    this.#at(nowUs, tier).commit(cost, offsetUs, lease)
    this.charges.push({ slotUs: nowUs + Math.ceil(offsetUs), cost })
  }

  /** Of a limit on running jobs. */
  free(cost: number, nowUs: number, lease: number): void {
    this.#at(nowUs).release(lease, cost)
  }

  /** How long a cost keeps others from the cell: until as much has come back, µs. Of places, the time between two ends. */
  serviceUs(cost: number, nowUs: number, tier?: string): number {
    if (this.isPlaces) return this.line?.betweenEndsUs ?? 0
    this.#endOwn(nowUs, tier)
    const { interval, window = 0, limit = 1 } = this.#wireAt(nowUs, tier)
    return interval === undefined ? (cost * window) / limit : cost * interval
  }

  /** What it was charged for a slot never came to be. @returns whether that is given back */
  takeBack(cost: number, slotUs: number, nowUs: number, tier?: string): boolean {
    if (!this.#at(nowUs, tier).takeBack(cost, slotUs)) return false
    const charge = this.charges.findLast((one) => one.slotUs === slotUs && one.cost === cost)
    if (charge) charge.cost = 0
    return true
  }

  /**
   * What a job has cost is known.
   * @param change units more than it was charged, below 0 less
   * @param isUnder whether it was charged under the rule of now: otherwise nothing is given back
   * @returns whether something was given back
   */
  settle(
    change: number,
    slotUs: number,
    isUnder: boolean,
    { nowUs, tier }: { nowUs: number; tier: string | undefined },
  ): boolean {
    const model = this.#at(nowUs, tier)
    const credit = change < 0 && isUnder ? model.credit(-change, slotUs) : 0
    if (change > 0 || credit > 0) model.settle(change > 0 ? change : -credit)
    if (change > 0) this.charges.push({ slotUs: nowUs, cost: change })
    return credit > 0
  }

  #lasting(atUs: number): OwnValues {
    return Object.fromEntries(Object.entries(this.#own).filter(([, { untilUs }]) => untilUs > atUs))
  }

  #endsBy(nowUs: number): number[] {
    const ends = Object.values(this.#own).map(({ untilUs }) => untilUs)
    return ends.filter((endUs) => endUs <= nowUs).sort((one, other) => one - other)
  }

  /** The state counts by each end since its last change. @returns the ends */
  #endOwn(nowUs: number, tier: string | undefined): number[] {
    const ends = this.#endsBy(nowUs)
    for (const endUs of ends) {
      if (this.#model.changedUs >= endUs) continue
      this.#takeOver(endUs, this.#wireAt(endUs - 1, tier), this.#rateChangesAt(endUs - 1), tier)
    }
    return ends
  }

  /** If another rate applies, or an equal one that changes at other times, the state counts by it from this moment on. */
  #takeOver(atUs: number, before: LimitWire, rateChanges: RateChanges, tier: string | undefined): void {
    const after = this.#wireAt(atUs, tier)
    if (isSameRate(before, after) && rateChanges === this.#rateChangesAt(atUs)) return
    this.#model.now = atUs
    this.#skip(rateChanges)
    if (this.#model.changedUs <= rateChanges[0]) this.#model.change(before, false, this.#forgottenUntilUs)
    this.#model.change(after, true)
  }

  /** A rate of its own does not change with the limit's. */
  #rateChangesAt(atUs: number): RateChanges {
    return this.#lasting(atUs).rate?.value ? NEVER : this.#rateChanges
  }

  /** The rates between the last changes are unknown to a state that is older: no time counts until the last one. */
  #skip([lastUs, earlierUs]: RateChanges): void {
    const { changedUs } = this.#model
    if (changedUs >= 0 && changedUs <= earlierUs) this.#model.skipTo(lastUs)
  }

  #wireAt(atUs: number, tier: string | undefined): LimitWire {
    return wireOf(this.#limit, this.tierOf(tier, atUs), this.#lasting(atUs))
  }

  #at(nowUs: number, tier?: string): Model {
    this.#endOwn(nowUs, tier)
    const wire = this.#wireAt(nowUs, tier)
    this.#model.now = nowUs
    this.#skip(this.#rateChangesAt(nowUs))
    if (this.#model.rule !== wire) this.#model.change(wire, false, this.#forgottenUntilUs)
    return this.#model
  }

  /** A schedule is known only as long as the limit or one of its tiers has it. */
  get #forgottenUntilUs(): number | undefined {
    const tiers = [undefined, ...Object.keys(this.#limit.tiers ?? {})]
    const known = tiers.map((tier) => JSON.stringify(wireOf(this.#limit, tier, {}).schedule))
    return known.includes(JSON.stringify(this.#model.rule.schedule)) ? undefined : this.#rateChanges[0]
  }
}

/** All rates of a bucket, to be compared. */
export function ratesOf(limit: Limit): string {
  const rates = [undefined, ...Object.keys(limit.tiers ?? {})].map((tier) => {
    const { interval, schedule } = wireOf(limit, tier, {})
    return interval === undefined ? [] : [tier, interval, schedule]
  })
  return JSON.stringify(rates)
}

/** Of each limit, what was encoded: schedules take long. */
const ENCODED = new WeakMap<Limit, Map<string, LimitWire>>()
/** By their text: equal rules are one, whatever they were encoded from. */
const WIRES = new Map<string, LimitWire>()

function wireOf(limit: Limit, tier: string | undefined, own: OwnValues): LimitWire {
  const known = ENCODED.get(limit) ?? new Map<string, LimitWire>()
  ENCODED.set(limit, known)
  const values = JSON.stringify([tier, own.rate?.value, own.burst?.value])
  const wire = known.get(values) ?? unique(encode(limit, tier, own))
  known.set(values, wire)
  return wire
}

function unique(wire: LimitWire): LimitWire {
  const text = JSON.stringify(wire)
  const known = WIRES.get(text) ?? wire
  WIRES.set(text, known)
  return known
}

function encode(limit: Limit, tier: string | undefined, { rate, burst }: OwnValues): LimitWire {
  const { name: _name, by: _by, unit: _unit, tiers, ...own } = limit
  const rule = tier === undefined ? own : { ...own, ...tiers?.[tier] }
  const wire = encodeRule({
    ...rule,
    ...(rate?.value
      ? { rate: isScheduled(rate.value) ? rate.value : { limit: rate.value[0], period: rate.value[1] } }
      : {}),
    ...(burst && rule.burst !== undefined ? { burst: burst.value } : {}),
  })
  return wire.algorithm === 'concurrency' ? { ...wire, window: LEASE_US } : wire
}
