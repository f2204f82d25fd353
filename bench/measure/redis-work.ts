import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { Redis } from 'ioredis'
import type { RedisAddress } from '../fleet/protocol.ts'
import { argumentsOf, commandOf, endOfMessage } from './resp.ts'
import { median } from './statistics.ts'

/** One call of one command, and the CPU time of Redis's main thread for it. */
export interface Work {
  /** The command, or the digest of the script that it runs. */
  readonly name: string
  readonly us: number
}

/** They wait in Redis, so others have to pass. */
const WAITS = /^(b[lrz]|xread|subscribe|psubscribe|unsubscribe)/
const BASELINES = 200

/**
 * What each command costs Redis, in CPU time of its main thread: what else the machine does is not in it. Clients
 * connect to `address`, and their commands reach Redis one at a time, between two readings of that time.
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
    for (let i = 0; i < BASELINES; i++) readings.push(-(await work.#cpuUs()) + (await work.#cpuUs()))
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

  async #cpuUs(): Promise<number> {
    const info = await this.#meter.info('cpu')
    const of = (what: string) => Number(new RegExp(`^used_cpu_${what}_main_thread:([\\d.]+)`, 'm').exec(info)?.[1])
    return Math.round((of('user') + of('sys')) * 1e6)
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
      const before = await this.#cpuUs()
      await replies.send(redis, request)
      const us = Math.max(0, (await this.#cpuUs()) - before - this.#readingUs)
      this.#found?.push({ name: digestOf(command, request, first) ?? command, us })
    })
    this.#turn = turn.catch(() => {})
    await turn
  }
}

/** Of the script that EVALSHA or EVAL runs: ioredis sends the text with the first call on each connection. */
function digestOf(command: string, request: Buffer, first: string): string | undefined {
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
