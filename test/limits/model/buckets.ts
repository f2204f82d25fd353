import { BaseModel, type Model, type View } from './base.ts'

const TICKS_PER_US = 1024

/** Times in ticks of 1/1024 µs, as whole numbers: nothing is ever rounded but the cost of one decision, and that up. */
export class GcraModel extends BaseModel implements Model {
  /** Ticks until the bucket is empty, at the time of the last change. */
  #debt = 0n

  // A cost is a double, and so is its product with the interval: with 0.1 units the exact product would lie just above.
  #ticks(us: number): bigint {
    return BigInt(Math.ceil(us * TICKS_PER_US))
  }

  #debtNow(): bigint {
    return notNegative(this.#debt - BigInt(this.elapsed) * BigInt(TICKS_PER_US))
  }

  earliest(cost: number): number {
    const { burst = 0, interval = 0 } = this.rule
    return us(notNegative(this.#debtNow() + this.#ticks((Math.min(cost, burst) - burst) * interval)))
  }

  commit(cost: number, offset: number): void {
    const from = this.#ticks(offset)
    const debt = this.#debtNow()
    this.#change((debt > from ? debt : from) + this.#ticks(cost * (this.rule.interval ?? 0)))
  }

  settle(cost: number): void {
    this.#change(notNegative(this.#debtNow() + this.#ticks(cost * (this.rule.interval ?? 0))))
  }

  view(): View {
    const { burst = 0, interval = 0 } = this.rule
    const debt = us(this.#debtNow())
    return { left: burst - debt / interval, resetAt: this.now + Math.ceil(debt) }
  }

  lose(): void {
    this.#debt = 0n
  }

  #change(debt: bigint): void {
    this.#debt = debt
    this.changedAt = this.now
  }
}

function us(ticks: bigint): number {
  return Number(ticks) / TICKS_PER_US
}

function notNegative(ticks: bigint): bigint {
  return ticks > 0n ? ticks : 0n
}

/** Tokens and levels are doubles: they are equal to the last bit only with the same operations in the same order. */
export class TokenModel extends BaseModel implements Model {
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
    this.#change(Math.min(this.#tokens(), this.#burst - offset / this.#interval) - cost)
  }

  settle(cost: number): void {
    this.#change(Math.min(this.#burst, this.#tokens() - cost))
  }

  view(): View {
    const lacking = this.#burst - (this.#stored ?? this.#burst)
    const untilFull = Math.max(0, Math.ceil(lacking * this.#interval - this.elapsed))
    return { left: this.#tokens(), resetAt: this.now + untilFull }
  }

  lose(): void {
    this.#stored = undefined
  }

  #change(tokens: number): void {
    this.#stored = tokens
    this.changedAt = this.now
  }
}

/** As for tokens: the same operations in the same order. */
export class LeakyModel extends BaseModel implements Model {
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
    this.#change(Math.max(this.#level(), offset / this.#interval) + cost)
  }

  settle(cost: number): void {
    this.#change(Math.max(0, this.#level() + cost))
  }

  view(): View {
    const untilDry = Math.max(0, Math.ceil(this.#stored * this.#interval - this.elapsed))
    return { left: this.#burst - this.#level(), resetAt: this.now + untilDry }
  }

  lose(): void {
    this.#stored = 0
  }

  #change(level: number): void {
    this.#stored = level
    this.changedAt = this.now
  }
}
