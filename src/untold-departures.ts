/** Departures are counted in Redis at most this often by one process: a count for each would cost as much as a job. */
const TELL_EVERY_MS = 250

/** Instead of a count: none is told with this call. */
export const NOT_NOW = -1

/**
 * Departures that nothing held and that Redis has not counted yet. A slow queue tells of each with the call that fetches
 * it, a fast one of many with one of its calls.
 */
export class UntoldDepartures {
  #count = 0
  #toldAtMs = Number.NEGATIVE_INFINITY

  /** @returns how many to tell with the next call, which counts its own departures too; -1: it is to tell none */
  take(): number {
    const now = performance.now()
    if (now - this.#toldAtMs < TELL_EVERY_MS) return NOT_NOW
    this.#toldAtMs = now
    const count = this.#count
    this.#count = 0
    return count
  }

  /** @param told what {@link take} gave to the call that fetched them */
  add(count: number, told: number): void {
    if (told === NOT_NOW) this.#count += count
  }
}
