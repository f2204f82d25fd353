import type { LimitWire } from '../../../src/limits/definition.ts'
import type { StoredRate } from '../../../src/limits/schedule.ts'
import { ServiceCurve } from '../../../src/shape/service-curve.ts'
import type { Model, View } from './base.ts'
import type { BucketModel } from './buckets.ts'

const TICKS_PER_US = 1024
/** What the clock of the bucket shows at first: it may go back, and sums of its ticks are exact. */
const FIRST_US = 2n ** 42n

/** Shows what a rate that follows the clock has served, µs at its fastest rate. */
class ServiceClock {
  readonly #curve: ServiceCurve
  readonly #origin: bigint

  constructor({ schedule, interval }: LimitWire, startUs: number) {
    this.#curve = new ServiceCurve([1, 1, schedule] as unknown as StoredRate, interval as number, startUs)
    this.#origin = this.#curve.at(startUs) - FIRST_US * BigInt(TICKS_PER_US)
  }

  at(us: number): number {
    return Number(this.#curve.at(us) - this.#origin) / TICKS_PER_US
  }

  served(from: number, to: number): number {
    return to > from ? Number(this.#curve.at(to) - this.#curve.at(from)) / TICKS_PER_US : 0
  }

  /** µs from a time until so much is served, and the rate is above 0. */
  comes(units: number, from: number): number {
    return Math.max(0, this.#curve.when(this.#curve.at(from) + BigInt(Math.ceil(units * TICKS_PER_US))) - from)
  }

  /** When its speed changes between two times. */
  changes(from: number, to: number): number[] {
    return this.#curve.speeds(from, to).flatMap(([us]) => (us > from ? [us] : []))
  }
}

/** A rate: at a fixed one, the clock shows the time. */
interface Pace {
  readonly interval: number
  readonly clock: ServiceClock | undefined
}

/**
 * A bucket whose rate may follow the clock. While it does, it is one of a fixed rate whose clock shows what the rate has
 * served.
 */
export class ScheduledModel implements Model {
  readonly #bucket: BucketModel & Model
  #rule: LimitWire
  #clock: ServiceClock | undefined
  #now = 0
  /** While the rate follows the clock: µs from the last change to the last slot that was charged for. */
  #aheadUs = Number.NEGATIVE_INFINITY
  #changedAt = -1

  /** @param bucket of the same rule, without its schedule */
  constructor(bucket: BucketModel & Model) {
    this.#bucket = bucket
    this.#rule = bucket.rule
  }

  get rule(): LimitWire {
    return this.#rule
  }

  get changedUs(): number {
    return this.#rule.schedule ? this.#changedAt : this.#bucket.changedUs
  }

  get now(): number {
    return this.#now
  }

  set now(now: number) {
    this.#now = now
    if (this.#rule.schedule) this.#clock ??= new ServiceClock(this.#rule, now)
    this.#bucket.now = this.#shown(now)
  }

  change(rule: LimitWire, certain: boolean, forgottenUntil?: number): void {
    const before = this.#rule
    this.#rule = rule
    const isFixed = !before.schedule && !rule.schedule
    if (isFixed || (isSameRate(before, rule) && !certain)) this.#bucket.change(rule, certain)
    else this.#retime(before, certain, forgottenUntil)
  }

  skipTo(us: number): void {
    this.#bucket.skipTo(this.#shown(us))
    this.#aheadUs -= us - this.#changedAt
    this.#changedAt = us
  }

  earliest(cost: number): number {
    const units = this.#bucket.earliest(cost)
    return this.#clock ? this.#clock.comes(units, this.#now) : units
  }

  commit(cost: number, offset: number, lease: number): void {
    const units = this.#clock ? this.#clock.served(this.#now, this.#now + Math.ceil(offset)) : offset
    this.#bucket.commit(cost, units, lease)
    this.#change(offset)
  }

  settle(cost: number): void {
    this.#bucket.settle(cost)
    this.#change()
  }

  takeBack(cost: number, slot: number): boolean {
    if (!this.#clock) return this.#bucket.takeBack(cost, slot)
    if (this.#now + Math.ceil(this.#ahead()) !== slot) return false
    this.settle(-cost)
    return true
  }

  undo(cost: number): void {
    this.settle(-cost)
  }

  credit(cost: number, slot: number): number {
    if (!this.#clock) return this.#bucket.credit(cost, slot)
    const passed = this.#clock.served(slot, this.#now + Math.max(0, this.#ahead()))
    return Math.max(0, cost - passed / (this.#rule.interval as number))
  }

  view(): View {
    const { left, resetAt } = this.#bucket.view()
    if (!this.#clock) return { left, resetAt }
    const units = resetAt - this.#bucket.now
    return { left, resetAt: units > 0 ? this.#now + this.#clock.comes(units, this.#now) : this.#now }
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

  #retime(before: LimitWire, certain: boolean, forgottenUntil: number | undefined): void {
    const rule = this.#rule
    const seen = before.schedule ? this.#changedAt : this.#bucket.changedUs
    const from = Math.max(seen, this.#now)
    const ahead = (before.schedule ? this.#aheadUs : this.#bucket.aheadUs) - (from - seen)
    const old = { interval: before.interval as number, clock: this.#clock }
    this.#clock = rule.schedule && new ServiceClock(rule, this.#now)
    const now = { interval: rule.interval as number, clock: this.#clock }
    const isForgotten = forgottenUntil !== undefined && before.schedule !== undefined
    const debt = this.#bucket.debtOf(rule, old.interval)
    let paid = 0
    if (isForgotten) paid = (served(now, Math.max(seen, forgottenUntil), from) * old.interval) / now.interval
    else paid = certain ? served(old, seen, from) : slower(old, now, { from: seen, to: from, most: debt })
    const owed = Math.max(0, debt - paid)
    // What was granted ahead stays: it is paid at the old rate, and no debt but that is one of units.
    const last = from + Math.max(0, Math.ceil(ahead))
    const promised = Math.min(owed, served(isForgotten ? now : old, from, last))
    const granted = owed > 0 ? served(now, from, last) : 0
    this.#bucket.now = this.#shown(from)
    this.#bucket.restart(rule, ((owed - promised) * now.interval) / old.interval + granted, ahead)
    this.#bucket.now = this.#shown(this.#now)
    this.#aheadUs = ahead
    this.#changedAt = seen < 0 ? -1 : from
  }

  #shown(us: number): number {
    return this.#clock ? this.#clock.at(us) : us
  }

  #ahead(): number {
    return this.#aheadUs - Math.max(0, this.#now - this.#changedAt)
  }

  #change(offset = Number.NEGATIVE_INFINITY): void {
    this.#aheadUs = Math.max(this.#ahead(), offset)
    this.#changedAt = this.#now
  }
}

export function isSameRate(one: LimitWire, other: LimitWire): boolean {
  return one.interval === other.interval && JSON.stringify(one.schedule) === JSON.stringify(other.schedule)
}

/** What a rate serves between two times, µs at its interval. */
function served({ clock }: Pace, from: number, to: number): number {
  return clock ? clock.served(from, to) : Math.max(0, to - from)
}

/** What the lower of two rates serves at each time, µs at the first one's interval; at least `most` if it is more. */
function slower(one: Pace, other: Pace, { from, to, most }: { from: number; to: number; most: number }): number {
  const changes = [one, other].flatMap(({ clock }) => clock?.changes(from, to) ?? [])
  const ends = [...new Set([...changes, to])].sort((a, b) => a - b)
  let [sum, begins] = [0, from]
  for (const end of ends) {
    if (sum >= most) break
    sum += Math.min(served(one, begins, end), (served(other, begins, end) * one.interval) / other.interval)
    begins = end
  }
  return sum
}
