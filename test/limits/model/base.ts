import type { LimitWire } from '../../../src/limits/definition.ts'

export interface View {
  /** Units that are left now; below 0 where more was charged than allowed. */
  readonly left: number
  /** µs at which all will be there again. */
  readonly resetAt: number
}

/** What a limit is by its definition: one key, and a clock that is moved by hand, also backwards. */
export interface Model {
  /** µs; what is asked and done from here on happens then. */
  now: number
  readonly rule: LimitWire
  /** Of the last change of a bucket, µs; -1 while there is none. */
  readonly changedUs: number
  /**
   * What it allows changes: rate and burst of a bucket, the limit of the others.
   * @param certain whether it does now, and not at any time since the last change of the state: then the slower rate counts.
   * If so, a bucket counts up to now at its old rate, also if the new one is equal
   * @param forgottenUntil µs: nobody knows the schedule from before, and the new rate counts from then on
   */
  change(rule: LimitWire, certain: boolean, forgottenUntil?: number): void
  /** No time counts from the last change of a bucket until then, µs. */
  skipTo(us: number): void
  /** µs from now until a cost conforms. */
  earliest(cost: number): number
  /** Charges a cost for a time, µs from now. */
  commit(cost: number, offset: number, lease: number): void
  /** Charges a cost now without asking, or gives it back (below 0). */
  settle(cost: number): void
  /**
   * What was charged for a time (µs) never came to be: it is as if that had not been charged.
   * @returns false if that would let more pass than is allowed, or cannot be known: then nothing changes
   */
  takeBack(cost: number, slot: number): boolean
  /** Undoes the last charge. */
  undo(cost: number): void
  /** What of a charge for a time (µs) may still be given back with `settle`: neither came back by itself, nor was promised. */
  credit(cost: number, slot: number): number
  view(): View
  /** The key was lost. */
  lose(): void
  /** What the scripts for leases return. */
  extend(lease: number, cost: number): number
  release(lease: number, cost: number): number
}

/** The parts of a model that most algorithms have in common. */
export abstract class BaseModel {
  #rule: LimitWire
  #now = 0
  /** µs of the last change, -1 while there is none. */
  protected changedAt = -1

  constructor(rule: LimitWire) {
    this.#rule = rule
  }

  get rule(): LimitWire {
    return this.#rule
  }

  get changedUs(): number {
    return this.changedAt
  }

  change(rule: LimitWire, _certain: boolean): void {
    this.#rule = rule
  }

  skipTo(_us: number): void {}

  get now(): number {
    return this.#now
  }

  set now(now: number) {
    this.#now = now
    this.look()
  }

  /** What happens to a state when somebody looks at it. */
  protected look(): void {}

  /** Since the last change. A clock that went back does not count: what was a distance in time stays one. */
  protected get elapsed(): number {
    return this.changedAt < 0 ? 0 : Math.max(0, this.now - this.changedAt)
  }

  abstract settle(cost: number): void

  undo(cost: number): void {
    this.settle(-cost)
  }

  extend(_lease: number, _cost: number): number {
    throw new Error('only concurrency has leases')
  }

  release(_lease: number, _cost: number): number {
    throw new Error('only concurrency has leases')
  }
}
