import type { Redis } from 'ioredis'
import type { ShapedWorker } from 'sluice'

const SAMPLES = 40

/** Redis's time, µs. */
export async function redisTimeUs(client: Redis): Promise<number> {
  const [seconds, microseconds] = await client.time()
  return Number(seconds) * 1e6 + Number(microseconds)
}

/** One start of a job, µs on Redis's clock. */
export interface Start {
  readonly startedUs: number
  /** The slot that the meter granted; only Sluice's jobs have one. */
  readonly slotUs: number | undefined
}

/** What was to add to a local time, at one moment. */
interface Sample {
  readonly atUs: number
  readonly offsetUs: number
}

/**
 * When the jobs of a process start, on Redis's clock. Unlike a worker, a bench can look back: it samples the clock before
 * and after, and every reply of Redis lies between its request and its arrival.
 */
export class StartLog {
  readonly #client: Redis
  readonly #samples: Sample[] = []
  readonly #slots = new Map<string, number>()
  #starts: { readonly atMs: number; readonly slotUs: number | undefined }[] = []
  #wentBack = 0

  constructor(client: Redis) {
    this.#client = client
  }

  watch(worker: ShapedWorker): void {
    worker.on('departed', (job, { departureTimeUs }) => this.#slots.set(job.id as string, departureTimeUs))
    worker.on('late', () => {
      this.#wentBack += 1
    })
  }

  started(id: string): void {
    this.#starts.push({ atMs: performance.now(), slotUs: this.#slots.get(id) })
    this.#slots.delete(id)
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
    this.#samples.push({ atUs: performance.now() * 1000, offsetUs: (least + most) / 2 })
  }

  /** Since the last call; `wentBack` counts jobs that were too late for their slot. */
  async take(): Promise<{ readonly starts: readonly Start[]; readonly wentBack: number }> {
    await this.sample()
    const starts = this.#starts.map(({ atMs, slotUs }) => ({ startedUs: this.#toRedisUs(atMs), slotUs }))
    const wentBack = this.#wentBack
    this.#starts = []
    this.#wentBack = 0
    return { starts, wentBack }
  }

  /** A local instant (ms of `performance.now()`) on Redis's clock, µs; between two samples by interpolation. */
  #toRedisUs(atMs: number): number {
    const atUs = atMs * 1000
    const after = this.#samples.findIndex((sample) => sample.atUs >= atUs)
    const next = this.#samples.at(after) as Sample
    const before = this.#samples[after - 1] ?? next
    const share = next === before ? 0 : (atUs - before.atUs) / (next.atUs - before.atUs)
    return atUs + before.offsetUs + share * (next.offsetUs - before.offsetUs)
  }
}
