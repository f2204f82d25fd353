import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Redis } from 'ioredis'
import { onTestFinished } from 'vitest'
import { QueueUnavailableError, ShapedQueue } from '../../src/index.ts'
import type { RedisService } from '../../workers/services/redis.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import type { Processes } from '../support/processes.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { RateChange } from './audit.ts'
import { Crew } from './crew.ts'
import { SHAPE } from './shape.ts'

const WORKERS = 3
const PRODUCERS = 3
const QUEUE = 'torture'

/** Everything that faults happen to. Every other process is connected through a proxy. */
export class Field {
  readonly service: RedisService
  readonly proxy: RedisProxy
  readonly admin: Redis
  readonly queue: ShapedQueue
  readonly workers: Crew
  readonly producers: Crew
  readonly rates: RateChange[] = [{ perSecond: Number.parseInt(SHAPE.rate, 10), begunUs: 0, doneUs: 0 }]
  readonly #logs = temporaryFolder()

  private constructor(service: RedisService, proxy: RedisProxy, processes: Processes) {
    this.service = service
    this.proxy = proxy
    this.admin = adminOf(service.url)
    this.queue = new ShapedQueue(QUEUE, { connection: quickConnection(service.url), shape: SHAPE, declarer: 'torture' })
    this.queue.on('error', () => {})
    const urlOf = (n: number) => (n % 2 === 0 ? service.url : proxy.url)
    const program = (name: string) => new URL(`./programs/${name}.ts`, import.meta.url)
    this.workers = new Crew(processes, program('worker'), (n) => [urlOf(n), QUEUE, join(this.#logs, `w${n}`)])
    this.producers = new Crew(processes, program('producer'), (n) => [
      ...[urlOf(n), QUEUE, `p${n}`, join(this.#logs, `p${n}`)],
    ])
  }

  static async open(processes: Processes): Promise<Field> {
    const service = await startOwnRedis({ persistence: 'aof', args: ['--appendfsync', 'always'] })
    const proxy = await startProxy(service.url)
    const field = new Field(service, proxy, processes)
    onTestFinished(async () => {
      await Promise.all([field.producers.end('SIGKILL'), field.workers.end('SIGKILL')])
      await field.queue.close()
      await proxy.stop()
    })
    await field.queue.waitUntilReady()
    await Promise.all(Array.from({ length: WORKERS }, () => field.workers.add()))
    await Promise.all(Array.from({ length: PRODUCERS }, () => field.producers.add()))
    return field
  }

  /** Sets the rate, however often that has to be tried. */
  async setRate(perSecond: number): Promise<void> {
    const begunUs = Date.now() * 1000
    while (!(await this.#trySetRate(perSecond)));
    this.rates.push({ perSecond, begunUs, doneUs: Date.now() * 1000 })
  }

  async #trySetRate(perSecond: number): Promise<boolean> {
    try {
      await this.queue.setShape({ rate: `${perSecond}/s` }, { by: 'torture', reason: 'torture' })
      return true
    } catch (error) {
      if (!(error instanceof QueueUnavailableError)) throw error
      return false
    }
  }

  /** Jobs that have not ended. */
  unfinished(): Promise<number> {
    return this.queue.getJobCountByTypes('wait', 'prioritized', 'delayed', 'active')
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
