import { performance } from 'node:perf_hooks'
import type { Redis } from 'ioredis'

const SAMPLES = 40

/** The offset between Redis's clock and this process's `performance.now()` at one moment. All in µs. */
interface Offset {
  readonly atUs: number
  readonly offsetUs: number
  readonly errorUs: number
}

const localUs = (): number => performance.now() * 1000

/** Redis's time, µs. */
export async function redisTimeUs(client: Redis): Promise<number> {
  const [seconds, microseconds] = await client.time()
  return Number(seconds) * 1e6 + Number(microseconds)
}

/**
 * Maps instants of this process to Redis's clock. Unlike a worker, a benchmark can look back: it samples before and
 * after, and every reply of Redis lies between its request and its arrival.
 */
export class RedisOffset {
  readonly #client: Redis
  readonly #offsets: Offset[] = []

  constructor(client: Redis) {
    this.#client = client
  }

  /** The largest error of the samples so far, µs. */
  get errorUs(): number {
    return Math.max(...this.#offsets.map(({ errorUs }) => errorUs))
  }

  async sample(): Promise<void> {
    let least = Number.NEGATIVE_INFINITY
    let most = Number.POSITIVE_INFINITY
    for (let i = 0; i < SAMPLES; i++) {
      const sentUs = localUs()
      const redisUs = await redisTimeUs(this.#client)
      least = Math.max(least, redisUs - localUs())
      most = Math.min(most, redisUs - sentUs)
    }
    this.#offsets.push({ atUs: localUs(), offsetUs: (least + most) / 2, errorUs: Math.abs(most - least) / 2 })
  }

  /** A local instant (ms of `performance.now()`) on Redis's clock, µs; between two samples by interpolation. */
  toRedisUs(atMs: number): number {
    const atUs = atMs * 1000
    const after = this.#offsets.findIndex((offset) => offset.atUs >= atUs)
    const next = this.#offsets[after] ?? (this.#offsets.at(-1) as Offset)
    const before = this.#offsets[after - 1] ?? next
    const share = next === before ? 0 : (atUs - before.atUs) / (next.atUs - before.atUs)
    return atUs + before.offsetUs + share * (next.offsetUs - before.offsetUs)
  }
}
