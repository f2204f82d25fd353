import type { LimitWire } from '../../../src/limits/definition.ts'
import type { StoredRate } from '../../../src/limits/schedule.ts'
import { ServiceCurve } from '../../../src/shape/service-curve.ts'
import type { Model, View } from './base.ts'
import { START_US } from './stories.ts'

const TICKS_PER_US = 1024
/** What the clock of the bucket shows at first: it may go back, and sums of its ticks are exact. */
const FIRST_US = 2n ** 42n

/** A bucket whose rate follows the clock: one of a fixed rate whose clock shows what the rate has served. */
export class ScheduledModel implements Model {
  readonly rule: LimitWire
  readonly #bucket: Model
  readonly #curve: ServiceCurve
  #now = 0
  /** µs from the last change to the last slot that was charged for. */
  #aheadUs = Number.NEGATIVE_INFINITY
  #changedAt = -1
  #origin: bigint | undefined

  /** @param bucket of the same rule, without its schedule */
  constructor(rule: LimitWire, bucket: Model) {
    this.rule = rule
    this.#bucket = bucket
    this.#curve = new ServiceCurve([1, 1, rule.schedule] as unknown as StoredRate, rule.interval as number, START_US)
  }

  get changedUs(): number {
    return this.#changedAt
  }

  get now(): number {
    return this.#now
  }

  set now(now: number) {
    this.#now = now
    this.#origin ??= this.#curve.at(now) - FIRST_US * BigInt(TICKS_PER_US)
    this.#bucket.now = Number(this.#curve.at(now) - this.#origin) / TICKS_PER_US
  }

  change({ schedule }: LimitWire): void {
    if (JSON.stringify(schedule) !== JSON.stringify(this.rule.schedule)) throw new Error('the model keeps its schedule')
  }

  earliest(cost: number): number {
    return this.#comes(this.#bucket.earliest(cost))
  }

  commit(cost: number, offset: number, lease: number): void {
    this.#bucket.commit(cost, this.#served(this.#now, this.#now + Math.ceil(offset)), lease)
    this.#change(offset)
  }

  settle(cost: number): void {
    this.#bucket.settle(cost)
    this.#change()
  }

  takeBack(cost: number, slot: number): boolean {
    if (this.#now + Math.ceil(this.#ahead()) !== slot) return false
    this.settle(-cost)
    return true
  }

  undo(cost: number): void {
    this.settle(-cost)
  }

  credit(cost: number, slot: number): number {
    const served = this.#served(slot, Math.max(slot, this.#now + Math.max(0, this.#ahead())))
    return Math.max(0, cost - served / (this.rule.interval as number))
  }

  view(): View {
    const { left, resetAt } = this.#bucket.view()
    const units = resetAt - this.#bucket.now
    return { left, resetAt: units > 0 ? this.#now + this.#comes(units) : this.#now }
  }

  lose(): void {
    this.#bucket.lose()
    this.#aheadUs = Number.NEGATIVE_INFINITY
    this.#changedAt = -1
  }

  extend(): number {
    throw new Error('only concurrency has leases')
  }

  release(): number {
    throw new Error('only concurrency has leases')
  }

  #served(from: number, to: number): number {
    return Number(this.#curve.at(to) - this.#curve.at(from)) / TICKS_PER_US
  }

  /** µs from now until so much is served, and the rate is above 0. */
  #comes(units: number): number {
    const target = this.#curve.at(this.#now) + BigInt(Math.ceil(units * TICKS_PER_US))
    return Math.max(0, this.#curve.when(target) - this.#now)
  }

  #ahead(): number {
    return this.#aheadUs - Math.max(0, this.#now - this.#changedAt)
  }

  #change(offset = Number.NEGATIVE_INFINITY): void {
    this.#aheadUs = Math.max(this.#ahead(), offset)
    this.#changedAt = this.#now
  }
}
