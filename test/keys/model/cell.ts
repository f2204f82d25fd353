import { encodeRule, type LimitWire } from '../../../src/limits/definition.ts'
import type { Model } from '../../limits/model/base.ts'
import { createModel } from '../../limits/model/model.ts'
import type { Line } from './line.ts'
import { isPlaces, type Limit } from './shape.ts'

/** A place is held for as long as its job runs: here no lease runs out. µs */
const LEASE_US = 2 ** 52

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
    const [before, after] = [this.#wire, wireOf(limit)]
    if (before.algorithm !== after.algorithm || before.window !== after.window || before.align !== after.align)
      throw new Error(`limit ${limit.name} is another one: give it another name`)
    this.#limit = limit
    this.#wire = after
  }

  get isPlaces(): boolean {
    return isPlaces(this.#limit)
  }

  /** µs from now until a cost conforms, not rounded; infinite where a job has to end first. */
  offset(cost: number, nowUs: number): number {
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
  serviceUs(cost: number): number {
    if (this.isPlaces) return this.line?.betweenEndsUs ?? 0
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

  #at(nowUs: number): Model {
    this.#model.now = nowUs
    if (this.#model.rule !== this.#wire) this.#model.change(this.#wire, false)
    return this.#model
  }
}

function wireOf({ name: _name, by: _by, unit: _unit, ...rule }: Limit): LimitWire {
  const wire = encodeRule(rule)
  return wire.algorithm === 'concurrency' ? { ...wire, window: LEASE_US } : wire
}
