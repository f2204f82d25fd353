/** Wrong tokens that one caller may show at once, and how long it takes until he may show another. */
const BURST = 10
const INTERVAL_MS = 6000
const MAX_CALLERS = 10_000

/**
 * Wrong tokens, by the address that they come from: where there were too many, more of them are answered with 429 for a
 * while. A token has 256 random bits and is never guessed; this makes whoever tries wait, and shows in logs. It is a leaky
 * bucket that counts attempts (GCRA).
 */
export class WrongTokens {
  readonly #fullAtMs = new Map<string, number>()
  readonly #nowMs: () => number

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  /** How long another wrong token of a caller is answered with 429, ms; 0: not at all. */
  retryAfterMs(caller: string): number {
    const arrivalMs = this.#fullAtMs.get(caller)
    return arrivalMs === undefined ? 0 : Math.max(0, arrivalMs - this.#nowMs() - (BURST - 1) * INTERVAL_MS)
  }

  note(caller: string): void {
    const nowMs = this.#nowMs()
    const arrivalMs = Math.max(this.#fullAtMs.get(caller) ?? nowMs, nowMs) + INTERVAL_MS
    // Behind all others: what is over is found at the front.
    this.#fullAtMs.delete(caller)
    this.#fullAtMs.set(caller, arrivalMs)
    for (const [oldest, endMs] of this.#fullAtMs) {
      if (endMs > nowMs && this.#fullAtMs.size <= MAX_CALLERS) break
      this.#fullAtMs.delete(oldest)
    }
  }
}
