import type { Redis } from 'ioredis'
import type { ShapedWorker } from 'sluice'

const SAMPLES = 40

/** Redis's time, µs. */
export async function redisTimeUs(client: Redis): Promise<number> {
  const [seconds, microseconds] = await client.time()
  return Number(seconds) * 1e6 + Number(microseconds)
}

/** What was to add to a local time, at one moment. */
interface Sample {
  readonly atUs: number
  readonly offsetUs: number
  readonly errorUs: number
}

/**
 * Maps instants of this process to Redis's clock. Unlike a worker, a bench can look back: it samples before and after,
 * and every reply of Redis lies between its request and its arrival.
 */
export class RedisClock {
  readonly #client: Redis
  readonly #samples: Sample[] = []

  constructor(client: Redis) {
    this.#client = client
  }

  /** The largest error of the samples so far, µs. */
  get errorUs(): number {
    return Math.max(...this.#samples.map(({ errorUs }) => errorUs))
  }

  async sample(): Promise<void> {
    let least = Number.NEGATIVE_INFINITY
    let most = Number.POSITIVE_INFINITY
    for (let i = 0; i < SAMPLES; i++) {
      const sentUs = performance.now() * 1000
      const redisUs = await redisTimeUs(this.#client)
      least = Math.max(least, redisUs - performance.now() * 1000)
      most = Math.min(most, redisUs - sentUs)
    }
    const atUs = performance.now() * 1000
    this.#samples.push({ atUs, offsetUs: (least + most) / 2, errorUs: Math.abs(most - least) / 2 })
  }

  /** A local instant (ms of `performance.now()`) on Redis's clock, µs; between two samples by interpolation. */
  toRedisUs(atMs: number): number {
    const atUs = atMs * 1000
    const after = this.#samples.findIndex((sample) => sample.atUs >= atUs)
    const next = this.#samples.at(after) as Sample
    const before = this.#samples[after - 1] ?? next
    const share = next === before ? 0 : (atUs - before.atUs) / (next.atUs - before.atUs)
    return atUs + before.offsetUs + share * (next.offsetUs - before.offsetUs)
  }
}

/** One start of a job, µs on Redis's clock. */
export interface Start {
  readonly startedUs: number
  /** The slot that the meter granted; only Sluice's jobs have one. */
  readonly slotUs: number | undefined
}

/** When the jobs of a process start. */
export class StartLog {
  readonly clock: RedisClock
  readonly #slots = new Map<string, number>()
  #starts: { readonly atMs: number; readonly slotUs: number | undefined }[] = []

  constructor(client: Redis) {
    this.clock = new RedisClock(client)
  }

  watch(worker: ShapedWorker): void {
    worker.on('departed', (job, { departureTimeUs }) => this.#slots.set(job.id as string, departureTimeUs))
  }

  started(id: string): void {
    this.#starts.push({ atMs: performance.now(), slotUs: this.#slots.get(id) })
    this.#slots.delete(id)
  }

  /** Those since the last call. */
  async take(): Promise<Start[]> {
    await this.clock.sample()
    const starts = this.#starts.map(({ atMs, slotUs }) => ({ startedUs: this.clock.toRedisUs(atMs), slotUs }))
    this.#starts = []
    return starts
  }
}
