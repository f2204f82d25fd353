/** What a server that has had enough answers; undefined: nothing of when to come back. */
export interface Refusal {
  readonly retryAfterMs: number | undefined
}

/** A server whose limit nobody knows, and that may change. Times are ms. */
export interface LimitedServer {
  /** Calls a second. */
  limit: number
  /** @returns undefined where the call is let in */
  answer(atMs: number): Refusal | undefined
}

/** How a server says when to come back. */
export type Tells = 'seconds' | 'exactly' | 'nothing'

/** A token bucket. */
export class BucketServer implements LimitedServer {
  readonly #burst: number
  readonly #tells: Tells
  #tokens: number
  #atMs = 0
  limit: number

  constructor(limit: number, burst: number, tells: Tells) {
    this.limit = limit
    this.#burst = burst
    this.#tokens = burst
    this.#tells = tells
  }

  answer(atMs: number): Refusal | undefined {
    this.#tokens = Math.min(this.#burst, this.#tokens + ((atMs - this.#atMs) * this.limit) / 1000)
    this.#atMs = atMs
    if (this.#tokens < 1) return refusal(this.#tells, ((1 - this.#tokens) / this.limit) * 1000)
    this.#tokens -= 1
    return undefined
  }
}

/** So many calls in each window of the clock. */
export class WindowServer implements LimitedServer {
  readonly #windowMs: number
  readonly #tells: Tells
  #window = 0
  #count = 0
  limit: number

  constructor(limit: number, windowMs: number, tells: Tells) {
    this.limit = limit
    this.#windowMs = windowMs
    this.#tells = tells
  }

  answer(atMs: number): Refusal | undefined {
    const window = Math.floor(atMs / this.#windowMs)
    if (window !== this.#window) this.#count = 0
    this.#window = window
    if (this.#count >= (this.limit * this.#windowMs) / 1000) {
      return refusal(this.#tells, (window + 1) * this.#windowMs - atMs)
    }
    this.#count += 1
    return undefined
  }
}

/** Retry-After has whole seconds, and is not too early. */
function refusal(tells: Tells, waitMs: number): Refusal {
  if (tells === 'nothing') return { retryAfterMs: undefined }
  return { retryAfterMs: tells === 'exactly' ? Math.ceil(waitMs) : Math.ceil(waitMs / 1000) * 1000 }
}
