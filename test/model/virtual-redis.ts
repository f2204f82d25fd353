import type { Redis } from 'ioredis'
import { captureBullmqScripts } from '../../src/redis/bullmq-scripts.ts'
import type { Argument, Client } from '../../src/redis/commands.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import { ScriptSet } from '../../src/redis/scripts.ts'
import { heldExpiries } from './held-expiries.ts'
import { VirtualTime } from './virtual-time.ts'

/**
 * Prepended to each script: the clock is its last argument, by which keys expire too, published messages go to a list, and streams
 * are not written.
 */
const PRELUDE = `
local redis = (function(redis)
  local now = tonumber(table.remove(ARGV))
  local world = table.remove(ARGV)
  local real, expire = ${heldExpiries({ nowUs: 'now', index: "world .. 'virtual-expiring'", locksExpire: true })}
  expire()
  local handlers = {
    TIME = function() return { math.floor(now / 1000000), now % 1000000 } end,
    INFO = function() return 'run_id:' .. (real.call('GET', world .. 'virtual-run') or '0a') end,
    XADD = function() return false end,
    XTRIM = function() return 0 end,
    PUBLISH = function(channel, message) return real.call('RPUSH', world .. 'virtual-published', channel .. ' ' .. message) end,
  }
  return setmetatable({
    call = function(command, ...)
      local handler = handlers[command]
      if handler then return handler(...) end
      return real.call(command, ...)
    end,
  }, { __index = real })
end)(redis)
`

/** More than one script publishes. */
const MOST_MESSAGES = 10_000

interface Loaded {
  readonly sha: string
  readonly keys: number
}

/** The library's scripts, including BullMQ's text, on the clock that each call gives. */
export class VirtualScripts {
  readonly set = new ScriptSet(captureBullmqScripts(), 'virtual')
  readonly client: Redis
  readonly #texts = this.set.texts()
  readonly #loaded = new Map<string, Promise<Loaded>>()

  constructor(client: Redis) {
    this.client = client
  }

  loaded(command: string): Promise<Loaded> {
    const name = command.split(':').at(-1) as string
    let loaded = this.#loaded.get(name)
    if (!loaded) {
      const text = this.#texts.get(name)
      if (text === undefined) throw new Error(`no script ${name}`)
      const { keys } = this.set.command(name)
      loaded = this.client.script('LOAD', PRELUDE + text).then((sha) => ({ sha: sha as string, keys }))
      this.#loaded.set(name, loaded)
    }
    return loaded
  }
}

/** Queues that share a Redis and its clock, and receive each other's messages. */
export class VirtualWorld {
  readonly scripts: VirtualScripts
  readonly time: VirtualTime
  /** Prefix of the world's own keys; passed to each script. */
  readonly prefix: string
  readonly channels = new Map<string, (message: string) => void>()

  /** How far this Redis's clock is ahead of the time of the world, µs. */
  aheadUs = 0

  /** Until then, in the time of the world, it answers nothing: calls wait as for a replica that takes over. µs */
  downUntilUs = 0

  /** @param time of several worlds, each with its Redis */
  constructor(base: string, scripts: VirtualScripts, startUs: number, time = new VirtualTime(startUs)) {
    this.prefix = `${base}world:`
    this.scripts = scripts
    this.time = time
  }

  /** Redis's clock, µs. */
  get redisUs(): number {
    return this.time.nowUs + this.aheadUs
  }

  /** @param message the channel, a space, and the published message */
  hear(message: string): void {
    const at = message.indexOf(' ')
    this.channels.get(message.slice(0, at))?.(message.slice(at + 1))
  }
}

export interface Hearing {
  onPublished(message: string): void
  onMarked(): void
  /** A feedback report was applied. */
  onFeedback(request: string, shape: readonly string[]): void
}

/** The shared part of a queue's clients: its keys in a real Redis, in virtual time. */
export class VirtualRedis {
  readonly base: string
  readonly world: VirtualWorld
  readonly #hear: Hearing
  calls = 0

  constructor(base: string, world: VirtualWorld, hear: Hearing) {
    this.base = base
    this.world = world
    this.#hear = hear
    world.channels.set(wakeChannel(base), (message) => hear.onPublished(message))
  }

  get time(): VirtualTime {
    return this.world.time
  }

  get scripts(): VirtualScripts {
    return this.world.scripts
  }

  /**
   * A client with latency: each call arrives after half a round trip, in order, and so does its reply.
   * @param onArrival called when one of its calls arrives
   */
  clientAt(halfTripUs: () => number, onArrival?: () => void): Client {
    let [arrivesUs, returnsUs] = [0, 0]
    const runCommand = async (command: string, args: Argument[]) => {
      arrivesUs = Math.max(arrivesUs, this.time.nowUs + halfTripUs())
      await this.time.until(arrivesUs)
      onArrival?.()
      const reply = await this.run(command, args).then(
        (value) => () => value,
        (error: Error) => () => {
          throw error
        },
      )
      returnsUs = Math.max(returnsUs, this.time.nowUs + halfTripUs())
      await this.time.until(returnsUs)
      return reply()
    }
    return { runCommand, sadd: async () => 0 } as unknown as Client
  }

  async run(command: string, args: readonly Argument[]): Promise<unknown> {
    this.calls += 1
    if (this.world.downUntilUs > this.time.nowUs) await this.time.until(this.world.downUntilUs)
    return this.time.real(this.#run(command, args))
  }

  async #run(command: string, args: readonly Argument[]): Promise<unknown> {
    const { sha, keys } = await this.scripts.loaded(command)
    const { prefix } = this.world
    const nowUs = Math.floor(this.world.redisUs).toFixed(0)
    const replies = await this.scripts.client
      .pipeline()
      .evalsha(sha, keys, ...(args.map((arg) => arg ?? '') as string[]), prefix, nowUs)
      .lpop(`${prefix}virtual-published`, MOST_MESSAGES)
      .exists(`${this.base}marker`)
      .exec()
    const [[error, reply], [, messages], [, marked]] = replies as [
      [Error | null, unknown],
      [null, string[] | null],
      [null, number],
    ]
    for (const message of messages ?? []) this.world.hear(message)
    if (marked === 1) this.#hear.onMarked()
    if (error) throw error
    if (command.endsWith(':apply-feedback')) this.#hear.onFeedback(String(args[1]), (reply as [number, string[]])[1])
    return reply
  }
}
