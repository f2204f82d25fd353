/** How many wrong tokens one caller may send in a burst, and after how long it may send another one. */
const BURST = 10
const INTERVAL_MS = 6000
const MAX_CALLERS = 10_000

/**
 * Counts wrong tokens by their address: after too many, further ones are answered with 429 for a while. A token has 256
 * random bits and cannot be guessed; this slows down attempts and makes them show up in logs. It is a leaky bucket that
 * counts attempts (GCRA).
 */
export class WrongTokens {
  readonly #fullAtMs = new Map<string, number>()
  readonly #nowMs: () => number

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  /** For how long another wrong token of a caller is answered with 429, ms; 0: not at all. */
  retryAfterMs(caller: string): number {
    const arrivalMs = this.#fullAtMs.get(caller)
    return arrivalMs === undefined ? 0 : Math.max(0, arrivalMs - this.#nowMs() - (BURST - 1) * INTERVAL_MS)
  }

  note(caller: string): void {
    const nowMs = this.#nowMs()
    const arrivalMs = Math.max(this.#fullAtMs.get(caller) ?? nowMs, nowMs) + INTERVAL_MS
    // Moves the caller to the end, so that expired entries are at the front.
    this.#fullAtMs.delete(caller)
    this.#fullAtMs.set(caller, arrivalMs)
    for (const [oldest, endMs] of this.#fullAtMs) {
      if (endMs > nowMs && this.#fullAtMs.size <= MAX_CALLERS) break
      this.#fullAtMs.delete(oldest)
    }
  }
}
