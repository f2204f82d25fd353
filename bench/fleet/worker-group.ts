import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Job, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { ShapedWorker } from 'sluice'
import type { DrainReport, GroupSpec, Start, StartsReport } from './protocol.ts'
import { RedisOffset } from './redis-offset.ts'

const DRAIN_TIMEOUT_MS = 60_000

interface LocalStart {
  readonly atMs: number
  readonly slotUs: number | undefined
}

/** The workers of one group, and their observations. */
export class WorkerGroup {
  readonly #spec: GroupSpec
  readonly #client: Redis
  readonly #offset: RedisOffset
  readonly #workers: Worker[] = []
  readonly #slots = new Map<string, number>()
  readonly #drained: Promise<DrainReport>
  #resolveDrained: (report: DrainReport) => void = () => {}
  #starts: LocalStart[] = []
  #wentBack = 0
  #started = 0
  #completed = 0
  #firstStartMs = 0
  #cpuAtFirstStart = process.cpuUsage()

  constructor(spec: GroupSpec) {
    this.#spec = spec
    this.#client = new Redis({ ...(spec.clock ?? spec.redis), maxRetriesPerRequest: null })
    this.#offset = new RedisOffset(this.#client)
    this.#drained = new Promise((resolve) => {
      this.#resolveDrained = resolve
    })
  }

  async open(): Promise<void> {
    await this.#offset.sample()
    for (let i = 0; i < this.#spec.workers; i++) this.#workers.push(this.#worker())
    await Promise.all(this.#workers.map((worker) => worker.waitUntilReady()))
  }

  async takeStarts(): Promise<StartsReport> {
    await this.#offset.sample()
    const starts = this.#starts.map(({ atMs, slotUs }): Start => {
      const startedUs = this.#offset.toRedisUs(atMs)
      return slotUs === undefined ? { startedUs } : { startedUs, slotUs }
    })
    const report = { starts, wentBack: this.#wentBack, clockErrorUs: this.#offset.errorUs }
    this.#starts = []
    this.#wentBack = 0
    return report
  }

  /** @throws if it takes so long that jobs must be missing */
  async drained(): Promise<DrainReport> {
    const giveUp = new AbortController()
    const stuck = sleep(DRAIN_TIMEOUT_MS, undefined, { signal: giveUp.signal }).then(() => {
      const counts = `${this.#started} started and ${this.#completed} completed of ${this.#spec.expected}`
      throw new Error(`${this.#spec.queue}: ${counts} after ${DRAIN_TIMEOUT_MS} ms`)
    })
    try {
      return await Promise.race([this.#drained, stuck])
    } finally {
      giveUp.abort()
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.close()))
    this.#client.disconnect()
  }

  #worker(): Worker {
    const { system, queue, redis, concurrency, limiter, expected, report = true, removeOnComplete } = this.#spec
    const connection = { ...redis, maxRetriesPerRequest: null }
    const keep = removeOnComplete === undefined ? {} : { removeOnComplete }
    const options = { connection, concurrency, ...keep }
    const processor = expected === undefined ? this.#timed() : this.#counted()
    const worker: Worker =
      system === 'sluice'
        ? this.#shaped(new ShapedWorker(queue, processor, { ...options, report }))
        : new Worker(queue, processor, { ...options, ...(limiter ? { limiter } : {}) })
    worker.on('error', (error) => console.error(`${queue}: ${error.stack ?? error}`))
    if (expected !== undefined) worker.on('completed', () => this.#completedOne(expected))
    return worker
  }

  #shaped(worker: ShapedWorker): ShapedWorker {
    if (this.#spec.expected !== undefined) return worker
    worker.on('departed', (job, { departureTimeUs }) => this.#slots.set(job.id as string, departureTimeUs))
    worker.on('late', () => {
      this.#wentBack += 1
    })
    return worker
  }

  /** Records when each job starts, and its slot. */
  #timed(): (job: Job) => Promise<void> {
    const { jobMs } = this.#spec
    return async (job) => {
      const atMs = performance.now()
      const id = job.id as string
      this.#starts.push({ atMs, slotUs: this.#slots.get(id) })
      this.#slots.delete(id)
      if (jobMs > 0) await sleep(jobMs)
    }
  }

  /** The cheapest possible processor: only the first start matters. */
  #counted(): () => Promise<void> {
    return async () => {
      this.#started += 1
      if (this.#started > 1) return
      this.#firstStartMs = performance.now()
      this.#cpuAtFirstStart = process.cpuUsage()
    }
  }

  #completedOne(expected: number): void {
    this.#completed += 1
    if (this.#completed !== expected) return
    const { user, system } = process.cpuUsage(this.#cpuAtFirstStart)
    this.#resolveDrained({ elapsedMs: performance.now() - this.#firstStartMs, cpuMs: (user + system) / 1000 })
  }
}
