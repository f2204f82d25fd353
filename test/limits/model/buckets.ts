import type { LimitWire } from '../../../src/limits/definition.ts'
import { BaseModel, type Model, type View } from './base.ts'

const TICKS_PER_US = 1024

/** What the three have in common: how a debt takes another rate. */
export abstract class BucketModel extends BaseModel {
  /** µs from the last change of the state to the last slot that was charged for; below 0 where that was before it. */
  #aheadUs = Number.NEGATIVE_INFINITY

  get aheadUs(): number {
    return this.#aheadUs
  }

  override change(rule: LimitWire, certain: boolean): void {
    const before = this.rule.interval ?? 0
    super.change(rule, certain)
    const after = rule.interval ?? 0
    if ((after === before && !certain) || this.changedAt < 0) return
    // A debt is one of units. A higher rate counts once those have left that were granted ahead of it, a lower one at once.
    const passedUs = certain || before > after ? this.elapsed : (this.elapsed * before) / after
    const debtUs = Math.max(0, this.debtOf(rule, before) - passedUs)
    this.changeState(this.changedAt + this.elapsed)
    const grantedUs = before > after ? Math.max(0, Math.min(this.#aheadUs, debtUs)) : 0
    this.owe(((debtUs - grantedUs) * after) / before + grantedUs, rule)
  }

  /** It is another one from now on that owes so much, µs. */
  restart(rule: LimitWire, debtUs: number, aheadUs: number): void {
    super.change(rule, true)
    this.owe(debtUs, rule)
    this.changedAt = this.now
    this.#aheadUs = aheadUs
  }

  override skipTo(us: number): void {
    this.#aheadUs -= us - this.changedAt
    this.changedAt = us
  }

  /** Only of the last slot: what was charged behind others would be there twice. */
  takeBack(cost: number, slot: number): boolean {
    if (this.now + Math.ceil(this.#aheadUs - this.elapsed) !== slot) return false
    this.settle(-cost)
    return true
  }

  credit(cost: number, slot: number): number {
    const passedUs = this.now + Math.max(0, this.#aheadUs - this.elapsed) - slot
    return Math.max(0, cost - Math.max(0, passedUs) / (this.rule.interval ?? 0))
  }

  lose(): void {
    this.#aheadUs = Number.NEGATIVE_INFINITY
    this.changedAt = -1
  }

  /** What was owed at the last change of the state, µs at an interval. */
  abstract debtOf(rule: LimitWire, intervalUs: number): number
  protected abstract owe(debtUs: number, rule: LimitWire): void

  protected changeState(at: number, offset = Number.NEGATIVE_INFINITY): void {
    this.#aheadUs = Math.max(this.#aheadUs - this.elapsed, offset)
    this.changedAt = at
  }
}

/** Times in ticks of 1/1024 µs, as whole numbers: nothing is ever rounded but the cost of one decision, and that up. */
export class GcraModel extends BucketModel implements Model {
  /** Ticks until the bucket is empty, at the time of the last change. */
  #debt = 0n

  // A cost is a double, and so is its product with the interval: with 0.1 units the exact product would lie just above.
  #ticks(us: number): bigint {
    return BigInt(Math.ceil(us * TICKS_PER_US))
  }

  #debtNow(): bigint {
    return notNegative(this.#debt - this.#ticks(this.elapsed))
  }

  earliest(cost: number): number {
    const { burst = 0, interval = 0 } = this.rule
    return us(notNegative(this.#debtNow() + this.#ticks((Math.min(cost, burst) - burst) * interval)))
  }

  commit(cost: number, offset: number): void {
    const from = this.#ticks(offset)
    const debt = this.#debtNow()
    this.#change((debt > from ? debt : from) + this.#ticks(cost * (this.rule.interval ?? 0)), offset)
  }

  settle(cost: number): void {
    this.#change(notNegative(this.#debtNow() + this.#ticks(cost * (this.rule.interval ?? 0))))
  }

  view(): View {
    const { burst = 0, interval = 0 } = this.rule
    const debt = us(this.#debtNow())
    return { left: burst - debt / interval, resetAt: this.now + Math.ceil(debt) }
  }

  override lose(): void {
    super.lose()
    this.#debt = 0n
  }

  override debtOf(): number {
    return us(this.#debt)
  }

  protected override owe(debtUs: number): void {
    this.#debt = this.#ticks(debtUs)
  }

  #change(debt: bigint, offset?: number): void {
    this.#debt = debt
    this.changeState(this.now, offset)
  }
}

function us(ticks: bigint): number {
  return Number(ticks) / TICKS_PER_US
}

function notNegative(ticks: bigint): bigint {
  return ticks > 0n ? ticks : 0n
}

/** Tokens and levels are doubles: they are equal to the last bit only with the same operations in the same order. */
export class TokenModel extends BucketModel implements Model {
  /** At the last change; undefined while the bucket is full. */
  #stored: number | undefined

  get #burst(): number {
    return this.rule.burst as number
  }

  get #interval(): number {
    return this.rule.interval as number
  }

  #tokens(): number {
    return Math.min(this.#burst, (this.#stored ?? this.#burst) + this.elapsed / this.#interval)
  }

  earliest(cost: number): number {
    const lacking = Math.min(cost, this.#burst) - Math.min(this.#stored ?? this.#burst, this.#burst)
    return Math.max(0, lacking * this.#interval - this.elapsed)
  }

  // At the time of the departure at most a full bucket is there; what drops in until then is seen from now.
  commit(cost: number, offset: number): void {
    this.#change(Math.min(this.#tokens(), this.#burst - offset / this.#interval) - cost, offset)
  }

  settle(cost: number): void {
    this.#change(Math.min(this.#burst, this.#tokens() - cost))
  }

  view(): View {
    const lacking = this.#burst - (this.#stored ?? this.#burst)
    const untilFull = Math.max(0, Math.ceil(lacking * this.#interval - this.elapsed))
    return { left: this.#tokens(), resetAt: this.now + untilFull }
  }

  override lose(): void {
    super.lose()
    this.#stored = undefined
  }

  override debtOf({ burst = 1 }: LimitWire, intervalUs: number): number {
    return (burst - (this.#stored ?? burst)) * intervalUs
  }

  protected override owe(debtUs: number, { burst = 1, interval = 1 }: LimitWire): void {
    if (this.#stored !== undefined) this.#stored = burst - debtUs / interval
  }

  #change(tokens: number, offset?: number): void {
    this.#stored = tokens
    this.changeState(this.now, offset)
  }
}

/** As for tokens: the same operations in the same order. */
export class LeakyModel extends BucketModel implements Model {
  /** At the last change. */
  #stored = 0

  get #burst(): number {
    return this.rule.burst as number
  }

  get #interval(): number {
    return this.rule.interval as number
  }

  #level(): number {
    return Math.max(0, this.#stored - this.elapsed / this.#interval)
  }

  earliest(cost: number): number {
    const tooMuch = this.#stored + Math.min(cost, this.#burst) - this.#burst
    return Math.max(0, tooMuch * this.#interval - this.elapsed)
  }

  // At the time of the departure the bucket is dry at most; what leaks out until then is seen from now.
  commit(cost: number, offset: number): void {
    this.#change(Math.max(this.#level(), offset / this.#interval) + cost, offset)
  }

  settle(cost: number): void {
    this.#change(Math.max(0, this.#level() + cost))
  }

  view(): View {
    const untilDry = Math.max(0, Math.ceil(this.#stored * this.#interval - this.elapsed))
    return { left: this.#burst - this.#level(), resetAt: this.now + untilDry }
  }

  override lose(): void {
    super.lose()
    this.#stored = 0
  }

  override debtOf(_rule: LimitWire, intervalUs: number): number {
    return this.#stored * intervalUs
  }

  protected override owe(debtUs: number, { interval = 1 }: LimitWire): void {
    this.#stored = debtUs / interval
  }

  #change(level: number, offset?: number): void {
    this.#stored = level
    this.changeState(this.now, offset)
  }
}
