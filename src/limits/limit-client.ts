import { absentKey, untilKnown } from '../redis/commands.ts'
import { installedScripts, type LimitScript } from '../redis/scripts.ts'

/** The parts of an ioredis client that we use, `Redis` or `Cluster`, version 5 or 6. */
export interface LimitRedis {
  readonly status: string
  readonly isCluster?: boolean
  defineCommand(name: string, definition: { lua: string }): void
  connect(): Promise<void>
  once(event: string, listener: () => void): unknown
  removeListener(event: string, listener: () => void): unknown
}

export type Arguments = readonly (string | number)[]
type Command = (keys: number, ...keysAndArguments: (string | number)[]) => Promise<unknown>

const clients = new WeakMap<LimitRedis, LimitClient>()

/** Runs the scripts of limits on a client that the user passed in. There is one instance per client. */
export class LimitClient {
  readonly redis: LimitRedis
  readonly #commands: ReadonlyMap<LimitScript, string>
  #living: Promise<void> | undefined

  private constructor(redis: LimitRedis) {
    this.redis = redis
    this.#commands = installedScripts().defineLimits(redis)
  }

  static of(redis: LimitRedis): LimitClient {
    const found = clients.get(redis) ?? new LimitClient(redis)
    clients.set(redis, found)
    return found
  }

  /** Sends a script without waiting for the connection: call it only while that is live. */
  run<T>(script: LimitScript, keys: readonly string[], args: Arguments): Promise<T> {
    const redis = this.redis as unknown as Record<string, Command>
    const command = this.#commands.get(script) as string
    const all = this.redis.isCluster ? [...keys, absentKey(keys.at(-1))] : keys
    return untilKnown(() => redis[command]?.(all.length, ...all, ...args) as Promise<T>)
  }

  get isLive(): boolean {
    return this.redis.status === 'ready'
  }

  /**
   * Resolves as soon as the connection is live; rejects if it was closed finally. Concurrent callers share a listener.
   */
  live(): Promise<void> {
    this.#living ??= this.#untilLive().finally(() => {
      this.#living = undefined
    })
    return this.#living
  }

  async #untilLive(): Promise<void> {
    const { redis } = this
    if (redis.status === 'ready') return
    if (redis.status === 'end') throw new Error('Connection is closed')
    if (redis.status === 'wait') redis.connect().catch(() => {})
    await new Promise<void>((resolve, reject) => {
      const ready = () => {
        redis.removeListener('end', ended)
        resolve()
      }
      const ended = () => {
        redis.removeListener('ready', ready)
        reject(new Error('Connection is closed'))
      }
      redis.once('ready', ready)
      redis.once('end', ended)
    })
  }
}
