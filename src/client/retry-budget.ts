/** Finagle's RetryBudget: 20 % of the calls and 10 a second, over 10 s. In calls, so that the sums are whole. */
const PER_REPEAT = 5
const PER_SECOND = 10 * PER_REPEAT
const MOST = 10 * PER_SECOND

/**
 * Bounds the retries after failures that name no time: when everything fails, retries must not multiply the load. A
 * token bucket instead of Finagle's window.
 */
export class RetryBudget {
  #calls = MOST
  #filledMs: number | undefined

  /** Counts a call. */
  deposit(): void {
    this.#calls = Math.min(MOST, this.#calls + 1)
  }

  /** Takes a retry, if one is left. @returns whether one was */
  withdraw(nowMs: number): boolean {
    const elapsedMs = nowMs - (this.#filledMs ?? nowMs)
    this.#filledMs = nowMs
    this.#calls = Math.min(MOST, this.#calls + (elapsedMs / 1000) * PER_SECOND)
    if (this.#calls < PER_REPEAT) return false
    this.#calls -= PER_REPEAT
    return true
  }
}
