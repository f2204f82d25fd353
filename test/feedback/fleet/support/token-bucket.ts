/** What a bucket holds at a moment. */
export interface BucketLevel {
  /** ms since 1970 */
  readonly nowMs: number
  readonly burst: number
  /** Calls that are left, parts of one included. */
  readonly left: number
  /** ms until one call is let in, and until the bucket is full. */
  readonly freeInMs: number
  readonly fullInMs: number
}

/** A token bucket on this machine's clock. */
export class TokenBucket {
  readonly #perSecond: number
  readonly #burst: number
  #left: number
  #atMs = Date.now()

  constructor(perSecond: number, burst: number) {
    this.#perSecond = perSecond
    this.#burst = burst
    this.#left = burst
  }

  /** Whether one more call is let in. @param nowMs since 1970, as everywhere here */
  take(nowMs: number): boolean {
    const { left } = this.level(nowMs)
    this.#atMs = nowMs
    this.#left = left >= 1 ? left - 1 : left
    return left >= 1
  }

  /** Somebody else takes what is left. */
  drain(nowMs: number): void {
    this.#atMs = nowMs
    this.#left = 0
  }

  level(nowMs: number): BucketLevel {
    const burst = this.#burst
    const left = Math.min(burst, this.#left + ((nowMs - this.#atMs) * this.#perSecond) / 1000)
    const inMs = (wanted: number) => (Math.max(0, wanted - left) / this.#perSecond) * 1000
    return { nowMs, burst, left, freeInMs: inMs(1), fullInMs: inMs(burst) }
  }
}
