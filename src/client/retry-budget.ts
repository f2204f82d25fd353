/** Finagle's RetryBudget: 20 % of the calls and 10 a second, over 10 s. In calls, so that the sums are whole. */
const PER_REPEAT = 5
const PER_SECOND = 10 * PER_REPEAT
const MOST = 10 * PER_SECOND

/**
 * How much repeating a client does where nobody asked it to wait: when everything fails, repeats do not multiply the load.
 * A token bucket in place of Finagle's window.
 */
export class RetryBudget {
  #calls = MOST
  #filledMs: number | undefined

  /** A call began. */
  deposit(): void {
    this.#calls = Math.min(MOST, this.#calls + 1)
  }

  /** Whether there is a repeat left. */
  withdraw(nowMs: number): boolean {
    const elapsedMs = nowMs - (this.#filledMs ?? nowMs)
    this.#filledMs = nowMs
    this.#calls = Math.min(MOST, this.#calls + (elapsedMs / 1000) * PER_SECOND)
    if (this.#calls < PER_REPEAT) return false
    this.#calls -= PER_REPEAT
    return true
  }
}
