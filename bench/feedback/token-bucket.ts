import type { Limit } from './protocol.ts'

/** A token bucket that is full at first. */
export class TokenBucket {
  readonly #limit: Limit
  #tokens: number
  #atMs: number

  constructor(limit: Limit, nowMs: number) {
    this.#limit = limit
    this.#tokens = limit.burst
    this.#atMs = nowMs
  }

  /** @returns undefined where there was a token, else the ms until there is one */
  take(nowMs: number): number | undefined {
    const { perSecond, burst } = this.#limit
    this.#tokens = Math.min(burst, this.#tokens + ((nowMs - this.#atMs) * perSecond) / 1000)
    this.#atMs = nowMs
    if (this.#tokens < 1) return ((1 - this.#tokens) / perSecond) * 1000
    this.#tokens -= 1
    return undefined
  }
}
