/** A process reports departures to Redis at most this often: a report for each would cost as much as a job. */
const REPORT_EVERY_MS = 250
/** At first more often, then less and less: a report includes how long a job took, which retry hints need early. */
const FIRST_EVERY_MS = 8

/** Instead of a count: this call reports none. */
export const NOT_NOW = -1

/**
 * Departures that nothing held and that Redis has not counted yet. A slow queue reports each with the call that fetches
 * it; a fast one reports many with one call.
 */
export class UnreportedDepartures {
  #count = 0
  #everyMs = FIRST_EVERY_MS
  #reportedAtMs = Number.NEGATIVE_INFINITY

  /**
   * @param nowMs on a monotonic clock
   * @returns how many to report with the next call, which also counts its own departures; -1: it reports none
   */
  take(nowMs = performance.now()): number {
    if (nowMs - this.#reportedAtMs < this.#everyMs) return NOT_NOW
    if (this.#reportedAtMs > Number.NEGATIVE_INFINITY) this.#everyMs = Math.min(1.5 * this.#everyMs, REPORT_EVERY_MS)
    this.#reportedAtMs = nowMs
    const count = this.#count
    this.#count = 0
    return count
  }

  /** @param reported the result of {@link take} for the call that fetched them */
  add(count: number, reported: number): void {
    if (reported === NOT_NOW) this.#count += count
  }
}
