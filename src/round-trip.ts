const RECENT = 8

/**
 * How long a call to Redis takes: the fastest of the last ones. One that waited for a connection, or for a busy moment
 * of this process, says nothing of the way there.
 */
export class RoundTrip {
  readonly #recent: number[] = []

  /** 0 before the first call. */
  get ms(): number {
    return this.#recent.length === 0 ? 0 : Math.min(...this.#recent)
  }

  add(ms: number): void {
    this.#recent.push(ms)
    if (this.#recent.length > RECENT) this.#recent.shift()
  }
}
