import {
  type ConnectionOptions,
  createRedisBackend,
  Queue,
  type QueueBaseOptions,
  type RedisQueueBackend,
} from 'bullmq'
import type { Redis } from 'ioredis'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { ShapedBackend } from '../../src/backend/backend.ts'
import { type DepartureRequest, Departures } from '../../src/departure/exchange.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { encodeShape, type Shape } from '../../src/shape/shape.ts'
import { FAR_MS, heldExpiries } from './held-expiries.ts'

const COPY = `
for _, key in ipairs(redis.call('KEYS', ARGV[2] .. '*')) do redis.call('UNLINK', key) end
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local copy = ARGV[2] .. string.sub(key, #ARGV[1] + 1)
  redis.call('COPY', key, copy)
  local at = redis.call('ZSCORE', ARGV[3], key)
  if at then redis.call('ZADD', ARGV[3], at, copy) end
end
`

/** Start of the clock, µs: not a round number. */
export const START_US = 1_764_000_000_000_017

/**
 * A queue with the real scripts, except for their clock, which stands still until it is moved; keys expire by
 * that clock, except locks. Jobs are fetched by explicit calls, as a worker would fetch them.
 */
export class HeldQueue {
  readonly base: string
  readonly queue: Queue
  readonly backend: ShapedBackend
  readonly #departures: Departures
  readonly #client: Redis
  readonly #clockKey: string
  nowUs = START_US

  /** @param expires whether its keys expire */
  constructor(redis: { prefix: string; connection: ConnectionOptions }, client: Redis, name: string, expires = true) {
    const { prefix, connection } = redis
    this.base = `${prefix}:${name}:`
    this.#client = client
    this.#clockKey = `${prefix}:clock`
    const scripts = heldScripts(this.#clockKey, expires)
    // As a worker would set it: the scripts lock jobs for this long.
    const options = { connection, prefix, lockDuration: 30_000 }
    this.queue = new Queue(name, options, (queueName, opts, connections) => {
      const plain = createRedisBackend(queueName, opts as QueueBaseOptions, connections) as RedisQueueBackend
      plain.on('error', () => {})
      const family = { scripts, stores: new Map(), options: {} }
      const toKey = (type: string) => plain.toKey(type)
      const { keys, blockingConnection } = plain
      return new ShapedBackend(plain.connection, queueName, keys, toKey, opts, blockingConnection, true, family)
    })
    this.backend = this.queue.backend as unknown as ShapedBackend
    const { store } = this.backend
    this.#departures = new Departures(
      scripts,
      store,
      () => this.backend.client,
      (_, send) => send(),
      options.lockDuration,
    )
  }

  /** Empties the queue, and resets its clock and its shape. */
  async reset(shape: Shape): Promise<void> {
    const keys = await this.#client.keys(`${this.base}*`)
    if (keys.length > 0) await this.#client.unlink(...keys)
    this.backend.store.forget()
    await this.advanceTo(START_US)
    this.backend.store.declare({ ...encodeShape(shape), declarer: 'test' })
    await this.backend.waitUntilReady()
  }

  /** Makes this queue the same as another one is now; nothing is done to that one. */
  async copy(from: HeldQueue): Promise<void> {
    this.backend.store.memory.forget()
    this.nowUs = from.nowUs
    await this.#client.eval(COPY, 0, from.base, this.base, indexOf(this.#clockKey))
  }

  async advanceTo(us: number): Promise<void> {
    this.nowUs = us
    await this.#client.set(this.#clockKey, us)
  }

  /** When a key expires, ms from now on the held clock. */
  async expiryMs(key: string): Promise<number> {
    return (await this.#client.pexpiretime(key)) - FAR_MS - this.nowUs / 1000
  }

  add(opts: ShapedJobsOptions = {}): Promise<{ id?: string | undefined }> {
    return this.queue.add('job', {}, opts)
  }

  /**
   * Asks for jobs with slots up to a horizon (µs) from now.
   * @param longestHorizonUs the longest horizon that the caller knows of
   */
  depart(jobs: number, horizonUs = 0, longestHorizonUs = horizonUs): Promise<DepartureReply> {
    return this.departAs('held', { jobs, horizonUs, longestHorizonUs })
  }

  /** As the loop of the worker with this id. */
  departAs(id: string, request: DepartureRequest): Promise<DepartureReply> {
    return this.#departures.ask({ id, allowUnshaped: false }, request)
  }

  /** Grants all waiting jobs, moving the clock to each wake-up. Returns ids and slots in order. */
  async drain(jobs: number, horizonUs: number): Promise<{ id: string; slotUs: number }[]> {
    const departures: { id: string; slotUs: number }[] = []
    for (;;) {
      const { grants, stop, nextUs } = await this.depart(jobs, horizonUs)
      for (const { id, slotUs } of grants) departures.push({ id, slotUs })
      if (stop === 'empty') return departures
      if (stop === 'closed') await this.advanceTo((nextUs as number) - horizonUs)
    }
  }

  /** @param ttlMs '' without end */
  async override(shape: Shape, ttlMs: number | '' = ''): Promise<void> {
    const fields = JSON.stringify(encodeShape(shape).fields)
    await this.backend.store.run('override-shape', [fields, 'test', 'test', ttlMs, '0', ''])
  }

  close(): Promise<void> {
    return this.queue.close()
  }
}

/** Which keys expire. */
function indexOf(clockKey: string): string {
  return `${clockKey}:expiries`
}

function heldScripts(clockKey: string, expires: boolean): ScriptSet {
  const expiries = heldExpiries({ nowUs: `real.call('GET', '${clockKey}')`, index: `'${indexOf(clockKey)}'` })
  const held: Readonly<Record<string, string>> = {
    'held-expiries': `local expire\nredis, expire = ${expiries}\nreturn expire`,
    'redis/redis-now': `return function()\n  return tonumber(redis.call('GET', '${clockKey}'))\nend`,
  }
  const begin = `local expire = use 'held-expiries'\n${expires ? 'expire()\n' : ''}`
  const readLua = (file: string) => held[file] ?? (file.startsWith('verbs/') ? begin : '') + readLuaFile(file)
  return new ScriptSet(captureBullmqScripts(), 'held', readLua)
}
