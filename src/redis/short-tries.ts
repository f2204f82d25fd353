/** While a short script leaves its calls to the full one, at least every 65th call tries it. */
const MOST_PASSED = 64

/** Decides when to try a short script: less and less often while it keeps leaving its calls to the full one. */
export class ShortTries {
  #passes = 0
  #left = 0

  take(): boolean {
    if (this.#left === 0) return true
    this.#left -= 1
    return false
  }

  /** @param reply of a short script; @returns whether it did what was asked */
  served(reply: unknown): boolean {
    const served = reply !== null
    this.#passes = served ? 0 : Math.min(MOST_PASSED, 2 * this.#passes || 1)
    this.#left = this.#passes
    return served
  }
}
