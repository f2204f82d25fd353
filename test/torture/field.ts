import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { onTestFinished } from 'vitest'
import { QueueUnavailableError, ShapedQueue } from '../../src/index.ts'
import type { RedisService, StartRedisOptions } from '../../workers/services/redis.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { storedMeter } from '../support/meter.ts'
import type { Processes } from '../support/processes.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { RateChange } from './audit.ts'
import { Crew } from './crew.ts'
import type { OlderVersion } from './older-version.ts'
import { SHAPE } from './shape.ts'

const WORKERS = 3
const PRODUCERS = 3
const QUEUE = 'torture'
const DECLARED = Number.parseInt(SHAPE.rate, 10)

/** So many jobs wait when Redis loses its data, if that is so within a while. */
const BACKLOG = 30
const BACKLOG_MS = 5000
/** A change of the rate is known to every process after so long: its own connection may have been cut just before. */
const KNOWN_AFTER_MS = 2000
/** For so long no fault follows a loss of data. */
const AFTERWARDS_MS = 1000

/** Every command is on disk before it is answered. */
export const REDIS: StartRedisOptions = {
  persistence: 'aof',
  args: ['--appendfsync', 'always', '--repl-diskless-sync-delay', '0'],
}

export interface FieldOptions {
  /** Default: all processes are of this version. */
  readonly older?: OlderVersion | undefined
  /** A folder in which the logs of all processes stay. Default: they are removed. */
  readonly keep?: string | undefined
}

/**
 * Everything that faults happen to. All processes reach Redis through a proxy, which a failover moves; faults of
 * connections happen to every other process. Every other pair of processes is of the older version, if there is one.
 */
export class Field {
  service: RedisService
  readonly front: RedisProxy
  /** The one whose connections fail. */
  readonly proxy: RedisProxy
  readonly admin: Redis
  readonly queue: ShapedQueue
  readonly workers: Crew
  readonly producers: Crew
  /** No fault ends these. */
  readonly witnesses: readonly Crew[]
  readonly rates: RateChange[] = [{ perSecond: DECLARED, begunUs: 0, doneUs: 0 }]
  /** Jobs that Redis lost with its data, and those that a failover set back to what they had been. */
  readonly forgotten = new Set<string>()
  readonly setBack = new Set<string>()
  readonly #kept: string | undefined
  readonly #logs: string

  private constructor(
    service: RedisService,
    proxies: readonly [RedisProxy, RedisProxy],
    processes: Processes,
    { older, keep }: FieldOptions,
  ) {
    this.service = service
    this.#kept = keep
    this.#logs = keep === undefined ? temporaryFolder() : join(keep, 'logs')
    if (keep !== undefined) {
      mkdirSync(keep, { recursive: true })
      // Not recursive: the logs of another run would be taken for those of this one.
      mkdirSync(this.#logs)
    }
    const [front, proxy] = proxies
    this.front = front
    this.proxy = proxy
    this.admin = adminOf(front.url)
    this.queue = new ShapedQueue(QUEUE, { connection: quickConnection(front.url), shape: SHAPE, declarer: 'torture' })
    this.queue.on('error', () => {})
    const options = (n: number, name: string, ...more: string[]) => ({
      args: [n % 2 === 0 ? front.url : proxy.url, QUEUE, ...more, join(this.#logs, name)],
      ...(older && n % 4 >= 2 ? { folder: older.folder } : {}),
    })
    const [worker, producer] = ['worker', 'producer'].map((name) => new URL(`./programs/${name}.ts`, import.meta.url))
    this.workers = new Crew(processes, worker!, (n) => options(n, `w${n}`))
    this.producers = new Crew(processes, producer!, (n) => options(n, `p${n}`, `p${n}`))
    const witness = (name: string, ...more: string[]) => ({
      args: [proxy.url, QUEUE, ...more, join(this.#logs, name), 'witness'],
    })
    this.witnesses = [
      new Crew(processes, worker!, () => witness('ww')),
      new Crew(processes, producer!, () => witness('pw', 'pw')),
    ]
  }

  static async open(processes: Processes, options: FieldOptions): Promise<Field> {
    const service = await startOwnRedis(REDIS)
    const proxies = [await startProxy(service.url), await startProxy(service.url)] as const
    const field = new Field(service, proxies, processes, options)
    onTestFinished(async () => {
      await Promise.all(field.#crews.map((crew) => crew.end('SIGKILL')))
      await field.queue.close()
      await Promise.all(proxies.map((proxy) => proxy.stop()))
    })
    await field.queue.waitUntilReady()
    await Promise.all(Array.from({ length: WORKERS }, () => field.workers.add()))
    await Promise.all(Array.from({ length: PRODUCERS }, () => field.producers.add()))
    await Promise.all(field.witnesses.map((crew) => crew.add()))
    return field
  }

  get #crews(): Crew[] {
    return [this.workers, this.producers, ...this.witnesses]
  }

  get crashes(): string[] {
    return this.#crews.flatMap(({ crashes }) => crashes)
  }

  async endProducers(): Promise<void> {
    await Promise.all([this.producers.end(), this.witnesses[1]!.end()])
  }

  async endWorkers(): Promise<void> {
    await Promise.all([this.workers.end(), this.witnesses[0]!.end()])
  }

  /** Everyone's connections lead to another server from now on. */
  async moveTo(service: RedisService): Promise<void> {
    const before = this.service
    this.service = service
    for (const proxy of [this.front, this.proxy]) {
      proxy.redirect(service.url)
      proxy.cut()
    }
    await before.stop()
  }

  /** Sets the rate, however often that has to be tried. */
  async setRate(perSecond: number): Promise<void> {
    const begunUs = Date.now() * 1000
    const aheadUs = await this.#longestHorizonUs()
    await insist(() => this.queue.setShape({ rate: `${perSecond}/s` }, { by: 'torture', reason: 'torture' }))
    this.rates.push({ perSecond, begunUs, doneUs: Date.now() * 1000, aheadUs })
  }

  /** Of all workers, in the last minute: distant ones are granted slots further ahead than the shape says. */
  async #longestHorizonUs(): Promise<number> {
    const { horizon } = await storedMeter(this.admin, `bull:${QUEUE}:`)
    return Math.max(SHAPE.horizonMs * 1000, Number(horizon ?? 0))
  }

  /**
   * Lets Redis lose its data while the bucket is full, so that a start too many is one above the bound. Before and after
   * that the rate is the declared one: whichever process puts the shape back, and whatever it remembers. A change that
   * only its caller knows is lost with the data, as docs/high-availability.md says.
   */
  async loseData(lose: () => Promise<void>, perSecond: number): Promise<void> {
    await this.setRate(DECLARED)
    await sleep(KNOWN_AFTER_MS)
    for (const end = performance.now() + BACKLOG_MS; performance.now() < end; await sleep(50)) {
      if ((await this.unfinished()) > BACKLOG) break
    }
    await lose()
    await sleep(AFTERWARDS_MS)
    await this.setRate(perSecond)
  }

  /** Pauses the meter, however often that has to be tried. */
  async pause(lastsMs: number): Promise<void> {
    await insist(() => this.queue.pauseUntil(Date.now() + lastsMs, { reason: 'torture' }))
  }

  /** Jobs that have not ended. */
  unfinished(): Promise<number> {
    return this.queue.getJobCountByTypes('wait', 'prioritized', 'delayed', 'active')
  }

  /** Puts these lines beside the logs that are kept, if they are. */
  keep(name: string, lines: readonly string[]): void {
    if (this.#kept !== undefined) writeFileSync(join(this.#kept, `${name}.jsonl`), `${lines.join('\n')}\n`)
  }

  /** What all processes wrote; one that was killed may have left half a line. */
  lines(): string[] {
    return readdirSync(this.#logs).flatMap((name) => {
      const text = readFileSync(join(this.#logs, name), 'utf8')
      return text
        .slice(0, text.lastIndexOf('\n') + 1)
        .split('\n')
        .filter((line) => line !== '')
    })
  }
}

async function insist(change: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await change()
      return
    } catch (error) {
      if (!(error instanceof QueueUnavailableError)) throw error
    }
  }
}
