import { encodeRule, type LimitWire } from '../../../src/limits/definition.ts'
import type { Rate } from '../../groups/model/charges.ts'
import type { Model } from '../../limits/model/base.ts'
import { createModel } from '../../limits/model/model.ts'
import type { Line } from './line.ts'
import { isPlaces, type Limit } from './shape.ts'

/** A place is held for as long as its job runs: here no lease runs out. µs */
const LEASE_US = 2 ** 52

/** What is set for one value in place of what the limit says, each until a time (µs); a rate of null is no limit. */
export interface OwnValues {
  readonly rate?: { readonly value: Rate | null; readonly untilUs: number }
  readonly burst?: { readonly value: number; readonly untilUs: number }
}

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
  /** All charges that count, in the order in which they were made. */
  readonly charges: Charge[] = []
  #limit: Limit
  #wire: LimitWire
  readonly #model: Model
  #own: OwnValues = {}
  /** Since when what applies to it is in force, µs; 0 if nothing was ever set for it. */
  ownSinceUs = 0

  constructor(id: string, limit: Limit) {
    this.id = id
    this.#limit = limit
    this.#wire = wireOf(limit)
    this.#model = createModel(this.#wire)
  }

  get limit(): Limit {
    return this.#limit
  }

  /** Of another shape: as a state in Redis, the cell learns of it when it is looked at next. */
  set limit(limit: Limit) {
    if (limit === this.#limit) return
    const [before, after] = [this.#wire, wireOf(limit, this.#own)]
    if (before.algorithm !== after.algorithm || before.window !== after.window || before.align !== after.align)
      throw new Error(`limit ${limit.name} is another one: give it another name`)
    this.#limit = limit
    this.#wire = after
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

  /** @param values undefined lifts what is set; else only these fields */
  setOwn(values: OwnValues | undefined, nowUs: number): void {
    this.#at(nowUs)
    this.#own = values ? { ...this.#own, ...values } : {}
    this.#takeOver(nowUs)
  }

  /** What has ended is forgotten. */
  endOwn(nowUs: number): void {
    this.#at(nowUs)
  }

  get isPlaces(): boolean {
    return isPlaces(this.#limit)
  }

  /** How many places are free; infinite for a cell that has none. */
  get room(): number {
    return this.isPlaces ? this.#model.view().left : Number.POSITIVE_INFINITY
  }

  /** µs from now until a cost conforms, not rounded; infinite where a job has to end first. */
  offset(cost: number, nowUs: number): number {
    if (this.isOff(nowUs)) return 0
    const offsetUs = this.#at(nowUs).earliest(cost)
    return this.isPlaces && offsetUs > 0 ? Number.POSITIVE_INFINITY : offsetUs
  }

  /** The earliest slot of a cost, µs. */
  slot(cost: number, nowUs: number): number {
    return nowUs + Math.ceil(this.offset(cost, nowUs))
  }

  /** @param offsetUs from now to the slot of the job */
  charge(cost: number, offsetUs: number, nowUs: number, lease: number): void {
    this.#at(nowUs).commit(cost, offsetUs, lease)
    this.charges.push({ slotUs: nowUs + Math.ceil(offsetUs), cost })
  }

  /** Of a limit on running jobs. */
  free(cost: number, nowUs: number, lease: number): void {
    this.#at(nowUs).release(lease, cost)
  }

  /** How long a cost keeps others from the cell: until as much has come back, µs. Of places, the time between two ends. */
  serviceUs(cost: number, nowUs: number): number {
    if (this.isPlaces) return this.line?.betweenEndsUs ?? 0
    this.#at(nowUs)
    const { interval, window = 0, limit = 1 } = this.#wire
    return interval === undefined ? (cost * window) / limit : cost * interval
  }

  /** What it was charged for a slot never came to be. @returns whether that is given back */
  takeBack(cost: number, slotUs: number, nowUs: number): boolean {
    if (!this.#at(nowUs).takeBack(cost, slotUs)) return false
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
  settle(change: number, slotUs: number, isUnder: boolean, nowUs: number): boolean {
    const model = this.#at(nowUs)
    const credit = change < 0 && isUnder ? model.credit(-change, slotUs) : 0
    if (change > 0 || credit > 0) model.settle(change > 0 ? change : -credit)
    if (change > 0) this.charges.push({ slotUs: nowUs, cost: change })
    return credit > 0
  }

  /** The state counts by what applies from this moment on. */
  #takeOver(atUs: number): void {
    this.#wire = wireOf(this.#limit, this.#own)
    this.#model.now = atUs
    this.#model.change(this.#wire, true)
    this.ownSinceUs = atUs
  }

  #at(nowUs: number): Model {
    for (let endUs = this.ownEndUs; endUs <= nowUs; endUs = this.ownEndUs) {
      const lasting = Object.entries(this.#own).filter(([, { untilUs }]) => untilUs > endUs)
      this.#own = Object.fromEntries(lasting)
      this.#takeOver(endUs)
    }
    this.#model.now = nowUs
    if (this.#model.rule !== this.#wire) this.#model.change(this.#wire, false)
    return this.#model
  }
}

function wireOf({ name: _name, by: _by, unit: _unit, ...rule }: Limit, { rate, burst }: OwnValues = {}): LimitWire {
  const wire = encodeRule({
    ...rule,
    ...(rate?.value ? { rate: { limit: rate.value[0], period: rate.value[1] } } : {}),
    ...(burst && rule.burst !== undefined ? { burst: burst.value } : {}),
  })
  return wire.algorithm === 'concurrency' ? { ...wire, window: LEASE_US } : wire
}
