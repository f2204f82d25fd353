import type { Redis } from 'ioredis'
import type { ShapedWorker } from 'sluice'
import { RedisOffset } from '../fleet/redis-offset.ts'
import type { Seen } from './protocol.ts'

/** How often the round trip to Redis is measured. */
const PING_MS = 10

interface LocalStart {
  readonly atMs: number
  readonly slotUs: number | undefined
}

/**
 * Records when the jobs of one process start, when pauses are committed, and Redis's round-trip times in the meantime.
 */
export class Observer {
  readonly #client: Redis
  readonly #offset: RedisOffset
  readonly #slots = new Map<string, number>()
  readonly #pinging: NodeJS.Timeout
  #starts: LocalStart[] = []
  #pausesUs: number[] = []
  #roundTrips: { atMs: number; ms: number }[] = []

  private constructor(client: Redis, offset: RedisOffset) {
    this.#client = client
    this.#offset = offset
    this.#pinging = setInterval(() => void this.#ping(), PING_MS)
  }

  static async start(client: Redis): Promise<Observer> {
    const offset = new RedisOffset(client)
    await offset.sample()
    return new Observer(client, offset)
  }

  watch(worker: ShapedWorker): void {
    worker.on('departed', (job, { departureTimeUs }) => this.#slots.set(job.id as string, departureTimeUs))
    worker.on('feedback', ({ kind, at }) => {
      if (kind === 'pause') this.#pausesUs.push(Number(at) * 1000)
    })
  }

  started(id: string): void {
    this.#starts.push({ atMs: performance.now(), slotUs: this.#slots.get(id) })
    this.#slots.delete(id)
  }

  async take(): Promise<Seen> {
    await this.#offset.sample()
    const starts = this.#starts.map(({ atMs, slotUs }) => {
      const startedUs = this.#offset.toRedisUs(atMs)
      return slotUs === undefined ? { startedUs } : { startedUs, slotUs }
    })
    const roundTrips = this.#roundTrips.map(({ atMs, ms }) => ({ atUs: this.#offset.toRedisUs(atMs), ms }))
    const pausesUs = this.#pausesUs
    this.#starts = []
    this.#pausesUs = []
    this.#roundTrips = []
    return { starts, pausesUs, roundTrips }
  }

  stop(): void {
    clearInterval(this.#pinging)
  }

  async #ping(): Promise<void> {
    const atMs = performance.now()
    await this.#client.ping()
    this.#roundTrips.push({ atMs, ms: performance.now() - atMs })
  }
}
