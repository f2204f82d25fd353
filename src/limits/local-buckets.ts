import { CostTooHighError } from '../errors.ts'
import { intervalUs, parseRate } from '../rate.ts'
import type { LimitAnswer } from './answer.ts'
import type { Limit } from './limit.ts'
import { DEFAULT_MAX_LOCAL_KEYS, type LocalOptions, shareOf } from './local-options.ts'
import { LocalTable } from './local-table.ts'

/** The resolution of the monotonic clock; sums of its readings are rounded. */
const PRECISION_MS = 1e-6

interface Bucket {
  /** When all its tokens are available again, on the monotonic clock. */
  fullAtMs: number
}

/** A token bucket for each key, in this process. (Envoy: local rate limit) */
export class LocalBuckets {
  readonly #intervalMs: number
  readonly #options: LocalOptions
  readonly #nowMs: () => number
  readonly #buckets: LocalTable<Bucket>

  /** @param nowMs the clock of answers, ms since 1970 */
  constructor(options: LocalOptions, nowMs: () => number) {
    this.#options = options
    this.#nowMs = nowMs
    this.#intervalMs = intervalUs(parseRate(options.rate)) / 1000
    this.#buckets = new LocalTable(options.maxLocalKeys ?? DEFAULT_MAX_LOCAL_KEYS)
  }

  /**
   * Takes from the bucket of a key.
   * @returns the refusal; undefined if it passes
   * @throws CostTooHighError
   */
  refusal(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const burst = this.#options.burst ?? shareOf(limit.quota, this.#options.share ?? 1)
    if (cost > burst) throw new CostTooHighError(cost, burst, limit.name)
    const bucket = this.#buckets.get(name)
    const fullAtMs = Math.max(bucket?.fullAtMs ?? 0, nowMs)
    const waitMs = fullAtMs - nowMs + (cost - burst) * this.#intervalMs
    if (waitMs > PRECISION_MS) return this.#refuse(limit, burst, fullAtMs - nowMs, waitMs)
    const chargedMs = fullAtMs + cost * this.#intervalMs
    if (bucket) bucket.fullAtMs = chargedMs
    else this.#buckets.set(name, { fullAtMs: chargedMs })
    return undefined
  }

  forget(name: string): void {
    this.#buckets.delete(name)
  }

  /** @param fullInMs until the bucket is full */
  #refuse({ name }: Limit, burst: number, fullInMs: number, waitMs: number): LimitAnswer {
    const nowMs = this.#nowMs()
    return {
      allowed: false,
      limit: burst,
      remaining: Math.max(0, Math.floor(burst - fullInMs / this.#intervalMs)),
      retryAfterMs: Math.ceil(waitMs),
      retryAt: new Date(Math.ceil(nowMs + waitMs)),
      resetAt: new Date(Math.ceil(nowMs + fullInMs)),
      policy: name,
    }
  }
}
