import { LRUCache } from 'lru-cache'

const MAX_KEPT = 200

/**
 * Reads of the same key are shared if they are concurrent or shortly after one another, so that many open pages add no
 * load to Redis.
 */
export class SharedReads {
  readonly #maxAgeMs: number
  readonly #kept: LRUCache<string, Promise<unknown>>

  constructor(maxAgeMs: number, nowMs: () => number = () => performance.now()) {
    this.#maxAgeMs = maxAgeMs
    this.#kept = new LRUCache({ max: MAX_KEPT, ttlResolution: 0, perf: { now: nowMs } })
  }

  get size(): number {
    return this.#kept.size
  }

  /** The result of `read`, or its result for another caller a moment ago. A failure is not kept. */
  read<T>(key: string, read: () => Promise<T>): Promise<T> {
    // Results may be large.
    this.#kept.purgeStale()
    const kept = this.#kept.get(key)
    if (kept) return kept as Promise<T>
    const value = read()
    this.#kept.set(key, value)
    const isKept = () => this.#kept.peek(key) === value
    value.then(
      () => isKept() && this.#kept.set(key, value, { ttl: this.#maxAgeMs }),
      () => isKept() && this.#kept.delete(key),
    )
    return value
  }

  /** What is read from now on is read anew: something was changed. */
  clear(): void {
    this.#kept.clear()
  }
}
