const MAX_KEPT = 200

interface Kept {
  readonly value: Promise<unknown>
  /** undefined while it is under way. */
  readonly readAtMs: number | undefined
}

/**
 * Reads that several callers ask for at once, or within a moment, are one: so many pages may be open, and Redis is asked no
 * more often.
 */
export class SharedReads {
  readonly #maxAgeMs: number
  readonly #nowMs: () => number
  readonly #kept = new Map<string, Kept>()

  constructor(maxAgeMs: number, nowMs: () => number = () => performance.now()) {
    this.#maxAgeMs = maxAgeMs
    this.#nowMs = nowMs
  }

  /** How many answers are remembered. */
  get size(): number {
    return this.#kept.size
  }

  /** What `read` answers, or what it answered to another caller a moment ago. A failure is not remembered. */
  read<T>(key: string, read: () => Promise<T>): Promise<T> {
    this.#forgetOld()
    const kept = this.#kept.get(key)
    if (kept) return kept.value as Promise<T>
    const value = read()
    this.#kept.set(key, { value, readAtMs: undefined })
    value.then(
      () => this.#kept.set(key, { value, readAtMs: this.#nowMs() }),
      () => this.#kept.delete(key),
    )
    return value
  }

  #forgetOld(): void {
    const nowMs = this.#nowMs()
    for (const [key, { readAtMs }] of this.#kept) {
      if (readAtMs !== undefined && (nowMs - readAtMs >= this.#maxAgeMs || this.#kept.size >= MAX_KEPT)) {
        this.#kept.delete(key)
      }
    }
  }
}
