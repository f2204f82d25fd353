import type { Redis } from 'ioredis'
import { captureBullmqScripts } from '../../src/bullmq-scripts.ts'
import type { Argument, Client } from '../../src/redis-commands.ts'
import { ScriptSet } from '../../src/scripts.ts'
import type { VirtualTime } from './virtual-time.ts'

/**
 * In front of each script: its clock is a key, what it publishes goes to a list, keys do not expire (real time passes by
 * another clock), and nothing is written for people.
 */
const PRELUDE = `
local redis = (function(real)
  local base = string.sub(KEYS[#KEYS], 1, -11)
  local now = tonumber(real.call('GET', base .. 'meta:virtual-now'))
  local handlers = {
    TIME = function() return { math.floor(now / 1000000), now % 1000000 } end,
    INFO = function() return 'run_id:0a' end,
    XADD = function() return false end,
    XTRIM = function() return 0 end,
    PUBLISH = function(_, message) return real.call('RPUSH', base .. 'meta:virtual-published', message) end,
    PSETEX = function(key, _, value) return real.call('SET', key, value) end,
    PEXPIRE = function() return 1 end,
    PEXPIREAT = function() return 1 end,
    SET = function(key, value, option, ...)
      if option == 'PX' then return real.call('SET', key, value) end
      return real.call('SET', key, value, option, ...)
    end,
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

interface Loaded {
  readonly sha: string
  readonly keys: number
}

/** The scripts of the library, BullMQ's text in them, by a clock that is a key. */
export class VirtualScripts {
  readonly set = new ScriptSet(captureBullmqScripts(), 'virtual')
  readonly client: Redis
  readonly #loaded = new Map<string, Promise<Loaded>>()

  constructor(client: Redis) {
    this.client = client
  }

  loaded(command: string): Promise<Loaded> {
    const name = command.split(':').at(-1) as string
    let loaded = this.#loaded.get(name)
    if (!loaded) {
      const definition = this.set.definitions().get(name)
      if (!definition) throw new Error(`no script ${name}`)
      const { lua, numberOfKeys: keys } = definition
      loaded = this.client.script('LOAD', PRELUDE + lua).then((sha) => ({ sha: sha as string, keys }))
      this.#loaded.set(name, loaded)
    }
    return loaded
  }
}

/** What a queue's clients share: its keys in a real Redis, in virtual time. */
export class VirtualRedis {
  readonly base: string
  readonly time: VirtualTime
  readonly scripts: VirtualScripts
  readonly #onPublished: (message: string) => void
  readonly #onMarked: () => void
  calls = 0

  constructor(
    base: string,
    time: VirtualTime,
    scripts: VirtualScripts,
    hear: { onPublished(message: string): void; onMarked(): void },
  ) {
    this.base = base
    this.time = time
    this.scripts = scripts
    this.#onPublished = hear.onPublished
    this.#onMarked = hear.onMarked
  }

  /** A client so far away: each call arrives after half a round trip, in its order, and so does its reply. */
  clientAt(halfTripUs: () => number): Client {
    let [arrivesUs, returnsUs] = [0, 0]
    const runCommand = async (command: string, args: Argument[]) => {
      arrivesUs = Math.max(arrivesUs, this.time.nowUs + halfTripUs())
      await this.time.until(arrivesUs)
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

  run(command: string, args: readonly Argument[]): Promise<unknown> {
    this.calls += 1
    return this.time.real(this.#run(command, args))
  }

  async #run(command: string, args: readonly Argument[]): Promise<unknown> {
    const { sha, keys } = await this.scripts.loaded(command)
    const published = `${this.base}meta:virtual-published`
    const replies = await this.scripts.client
      .pipeline()
      .set(`${this.base}meta:virtual-now`, Math.floor(this.time.nowUs).toFixed(0))
      .evalsha(sha, keys, ...(args.map((arg) => arg ?? '') as string[]))
      .lrange(published, 0, -1)
      .del(published)
      .exists(`${this.base}marker`)
      .exec()
    const [, [error, reply], [, messages], , [, marked]] = replies as [Error | null, unknown][] as [
      unknown,
      [Error | null, unknown],
      [null, string[]],
      unknown,
      [null, number],
    ]
    for (const message of messages) this.#onPublished(message)
    if (marked === 1) this.#onMarked()
    if (error) throw error
    return reply
  }
}
