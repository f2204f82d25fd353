const MAX_KEPT = 200

interface Kept {
  readonly value: Promise<unknown>
  /** undefined while the read is in progress. */
  readonly readAtMs: number | undefined
}

/**
 * Reads of the same key are shared if they are concurrent or shortly after one another, so that many open pages add no
 * load to Redis.
 */
export class SharedReads {
  readonly #maxAgeMs: number
  readonly #nowMs: () => number
  readonly #kept = new Map<string, Kept>()

  constructor(maxAgeMs: number, nowMs: () => number = () => performance.now()) {
    this.#maxAgeMs = maxAgeMs
    this.#nowMs = nowMs
  }

  get size(): number {
    return this.#kept.size
  }

  /** The result of `read`, or its result for another caller a moment ago. A failure is not kept. */
  read<T>(key: string, read: () => Promise<T>): Promise<T> {
    this.#forgetOld()
    const kept = this.#kept.get(key)
    if (kept) return kept.value as Promise<T>
    const value = read()
    this.#kept.set(key, { value, readAtMs: undefined })
    const isKept = () => this.#kept.get(key)?.value === value
    value.then(
      () => isKept() && this.#kept.set(key, { value, readAtMs: this.#nowMs() }),
      () => isKept() && this.#kept.delete(key),
    )
    return value
  }

  /** What is read from now on is read anew: something was changed. */
  clear(): void {
    this.#kept.clear()
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
