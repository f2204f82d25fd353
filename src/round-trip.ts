const RECENT = 8

/**
 * How long a call to Redis takes: the fastest of the last ones. One that waited for a connection, or for a busy moment
 * of this process, says nothing of the way there. The first does not count: it connects and loads its script.
 */
export class RoundTrip {
  readonly #recent: number[] = []
  #isFirst = true

  /** 0 before the second call. */
  get ms(): number {
    return this.#recent.length === 0 ? 0 : Math.min(...this.#recent)
  }

  add(ms: number): void {
    if (!this.#isFirst) this.#recent.push(ms)
    this.#isFirst = false
    if (this.#recent.length > RECENT) this.#recent.shift()
  }
}
