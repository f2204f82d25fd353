import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import type { RedisAddress } from '../fleet/protocol.ts'
import { argumentsOf, commandOf, endOfMessage } from './resp.ts'
import { ownName } from './script-names.ts'
import { median } from './statistics.ts'

/** One call of one command. */
export interface Work {
  /** The command, or the digest of the script that it runs. */
  readonly name: string
  /**
   * How long it kept Redis busy: the CPU time of its main thread or, if that is less, the time that Redis counts for the
   * command itself. What else the machine does meanwhile is in the second only, and what Redis does between commands
   * (its timers, which also expire keys) in the first only.
   */
  readonly us: number
}

interface Reading {
  readonly cpuUs: number
  /** By command. */
  readonly spentUs: ReadonlyMap<string, number>
}

/** They wait in Redis, so others have to pass. */
const WAITS = /^(b[lrz]|xread|subscribe|psubscribe|unsubscribe)/
const BASELINES = 200

/**
 * What each command costs Redis. Clients connect to `address`, and their commands reach Redis one at a time, between two
 * readings of its clocks.
 */
export class RedisWork {
  readonly #redis: RedisAddress
  readonly #meter: Redis
  readonly #sockets = new Set<Socket>()
  readonly #server: Server
  #found: Work[] | undefined
  #turn: Promise<unknown> = Promise.resolve()
  #readingUs = 0

  private constructor(redis: RedisAddress) {
    this.#redis = redis
    this.#meter = new Redis({ ...redis, maxRetriesPerRequest: null })
    this.#server = createServer({ noDelay: true }, (socket) => this.#pass(socket))
  }

  static async start(redis: RedisAddress): Promise<RedisWork> {
    const work = new RedisWork(redis)
    work.#server.listen(0, '127.0.0.1')
    await once(work.#server, 'listening')
    const readings: number[] = []
    for (let i = 0; i < BASELINES; i++) readings.push(-(await work.#read()).cpuUs + (await work.#read()).cpuUs)
    work.#readingUs = median(readings)
    return work
  }

  get address(): RedisAddress {
    return { host: '127.0.0.1', port: (this.#server.address() as AddressInfo).port }
  }

  /** All commands that were sent meanwhile. */
  async during(deed: () => Promise<unknown>): Promise<Work[]> {
    const found: Work[] = []
    this.#found = found
    try {
      await deed()
    } finally {
      // A reply passes before its work is known.
      await this.#turn
      this.#found = undefined
    }
    return found
  }

  stop(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    this.#meter.disconnect()
  }

  async #read(): Promise<Reading> {
    const info = await this.#meter.info('cpu', 'commandstats')
    const of = (what: string) => Number(new RegExp(`^used_cpu_${what}_main_thread:([\\d.]+)`, 'm').exec(info)?.[1])
    const spentUs = new Map<string, number>()
    for (const [, command = '', us] of info.matchAll(/^cmdstat_([^:|]+)[^:]*:calls=\d+,usec=(\d+)/gm))
      spentUs.set(command, (spentUs.get(command) ?? 0) + Number(us))
    return { cpuUs: Math.round((of('user') + of('sys')) * 1e6), spentUs }
  }

  #pass(client: Socket): void {
    const redis = connect({ ...this.#redis, noDelay: true })
    for (const [one, other] of [
      [client, redis],
      [redis, client],
    ] as const) {
      this.#sockets.add(one)
      one.on('error', () => {})
      one.on('close', () => {
        this.#sockets.delete(one)
        other.end()
      })
    }
    const replies = new Replies(redis, client)
    let rest: Buffer = Buffer.alloc(0)
    let before: Promise<unknown> = Promise.resolve()
    client.on('data', (bytes) => {
      rest = Buffer.concat([rest, bytes])
      for (let end = endOfMessage(rest); end !== undefined; end = endOfMessage(rest)) {
        const request = rest.subarray(0, end)
        rest = rest.subarray(end)
        before = before.then(() => this.#send(redis, request, replies))
      }
    })
  }

  async #send(redis: Socket, request: Buffer, replies: Replies): Promise<void> {
    const [command = '', first = ''] = commandOf(request)
    if (WAITS.test(command) || !this.#found) {
      void replies.send(redis, request)
      return
    }
    const turn = this.#turn.then(async () => {
      const before = await this.#read()
      await replies.send(redis, request)
      const after = await this.#read()
      const cpuUs = Math.max(0, after.cpuUs - before.cpuUs - this.#readingUs)
      const spentUs = (after.spentUs.get(command) ?? 0) - (before.spentUs.get(command) ?? 0)
      this.#found?.push({ name: digestOf(command, request, first) ?? command, us: Math.min(cpuUs, spentUs) })
    })
    this.#turn = turn.catch(() => {})
    await turn
  }
}

/** Of the script that FCALL, EVALSHA or EVAL runs: ioredis sends the text with the first call on each connection. */
function digestOf(command: string, request: Buffer, first: string): string | undefined {
  if (command === 'fcall') return ownName(first)
  if (command === 'evalsha') return first
  return command === 'eval'
    ? createHash('sha1')
        .update(argumentsOf(request)[1] as Buffer)
        .digest('hex')
    : undefined
}

/** The replies on one connection, in the order of the requests. */
class Replies {
  readonly #due: (() => void)[] = []
  #isClosed = false

  constructor(redis: Socket, client: Socket) {
    let rest: Buffer = Buffer.alloc(0)
    redis.on('data', (bytes) => {
      client.write(bytes)
      rest = Buffer.concat([rest, bytes])
      for (let end = endOfMessage(rest); end !== undefined; end = endOfMessage(rest)) {
        rest = rest.subarray(end)
        this.#due.shift()?.()
      }
    })
    redis.on('close', () => {
      this.#isClosed = true
      for (const arrived of this.#due.splice(0)) arrived()
    })
  }

  /** Resolves when the reply has arrived, or can no longer come. */
  send(redis: Socket, request: Buffer): Promise<void> {
    if (this.#isClosed) return Promise.resolve()
    return new Promise((resolve) => {
      this.#due.push(resolve)
      redis.write(request)
    })
  }
}
