import type { Cluster, Redis } from 'ioredis'
import { ReadTimeoutError } from '../errors.ts'
import { withinMs } from '../redis/deadlines.ts'
import { readLuaFile } from '../redis/lua-files.ts'
import { slotOfKey } from '../redis/shards.ts'

export type BatchClient = Redis | Cluster

/** Redis's reply to a command, available once the batch has run; throws the error if the command failed. */
export type Answer<T> = () => T

type Command = readonly [name: string, ...args: (string | number)[]]

/**
 * From this many commands on, they are sent as one script. For fewer it gains little, and a script blocks Redis while
 * it runs.
 */
const MANY = 100

/** How long a read that goes to replicas waits for the clock of their master, ms. */
const MASTER_WAIT_MS = 200
/** Redis is silent if nothing of an answer arrives for so long, ms. */
const SILENT_MS = 5000

/** Clients whose user is not allowed to run scripts. */
const noScripts = new WeakSet<BatchClient>()

/** Read commands that are sent together, in one round trip whatever their number, except on a cluster. */
export class Batch {
  readonly #redis: BatchClient
  readonly #near: string | undefined
  readonly #commands: Command[] = []
  /** Indices of replies that hold bytes. */
  readonly #bytes = new Set<number>()
  /** The replies, an Error for a command that failed. */
  #replies: readonly unknown[] | undefined
  /** On a cluster: how many commands were answered. */
  #answered = 0

  /** @param near on a cluster: a key prefix, to whose node commands without a key are sent */
  constructor(redis: BatchClient, near?: string) {
    this.#redis = redis
    this.#near = near
  }

  /** @param command its name in lower case, by which ioredis decodes the reply, and its arguments */
  add<T>(...command: Command): Answer<T> {
    const index = this.#commands.push(command) - 1
    return () => this.#answer(index) as T
  }

  /** The same for a string that holds bytes, or several. */
  addBuffer<T = Buffer | null>(...command: Command): Answer<T> {
    this.#bytes.add(this.#commands.length)
    return this.add(...command)
  }

  #answer(index: number): unknown {
    if (!this.#replies) throw new Error('the batch was not run')
    const reply = this.#replies[index]
    if (reply instanceof Error) throw reply
    return reply
  }

  /** @throws ReadTimeoutError if Redis is silent */
  async run(): Promise<void> {
    if (this.#commands.length === 0) return
    const asked = this.#ask()
    for (;;) {
      const before = this.#received
      const answer = await withinMs(SILENT_MS, asked)
      if (answer) {
        this.#replies = answer.value
        return
      }
      if (this.#received > before) continue
      asked.catch(() => {})
      throw new ReadTimeoutError('Redis', SILENT_MS)
    }
  }

  async #ask(): Promise<{ readonly value: readonly unknown[] }> {
    return { value: (await this.#together()) ?? (await this.#oneByOne()) }
  }

  /** Grows while something arrives: an answer may be long, and its way slow. */
  get #received(): number {
    if (this.#redis.isCluster) return this.#answered
    return (this.#redis as unknown as Receiving).stream?.bytesRead ?? 0
  }

  /**
   * Runs the batch as one script; undefined where that is not worth it, not possible or not allowed, or where a command
   * failed, since the script cannot say why.
   */
  async #together(): Promise<unknown[] | undefined> {
    const redis = this.#redis
    if (this.#commands.length < MANY || !mayRunScripts(redis)) return undefined
    try {
      // The indices of Lua.
      const bytes = [...this.#bytes].map((index) => index + 1)
      const args = [this.#commands, bytes].map((list) => JSON.stringify(list))
      const replies = JSON.parse((await redis.call('eval', SCRIPT, 0, ...args)) as string) as unknown[]
      if (replies.some(isRefusal)) return undefined
      return replies.map((reply, i) => (this.#bytes.has(i) ? asBuffers(reply) : asIoredis(reply)))
    } catch (error) {
      // Any other error shows up again when the commands are sent one by one.
      if (isRefusedCommand(error)) noScripts.add(redis)
      return undefined
    }
  }

  async #oneByOne(): Promise<unknown[]> {
    // A pipeline goes to one node, but the keys of queues and limits may be on several.
    if (this.#redis.isCluster) return Promise.all(this.#commands.map((command, i) => this.#callOf(command, i)))
    const pipeline = this.#redis.pipeline()
    for (const [i, [name, ...args]] of this.#commands.entries()) {
      if (this.#bytes.has(i)) pipeline.callBuffer(name, ...args)
      else pipeline.call(name, ...args)
    }
    return ((await pipeline.exec()) ?? []).map(([error, reply]) => error ?? reply)
  }

  async #callOf([name, ...args]: Command, index: number): Promise<unknown> {
    const redis = this.#redis
    try {
      if (args.length === 0 && this.#near !== undefined)
        return await (asksMasters(redis) ? this.#callNear(name, this.#near) : this.#callNode(name, this.#near))
      return await (this.#bytes.has(index) ? redis.callBuffer(name, ...args) : redis.call(name, ...args))
    } catch (error) {
      return error
    } finally {
      this.#answered += 1
    }
  }

  /** ioredis sends a pipeline to the node of its keys. */
  async #callNear(name: string, base: string): Promise<unknown> {
    const pipeline = this.#redis.pipeline()
    pipeline.call(name)
    pipeline.call('llen', `${base}wait`)
    const [answer] = (await pipeline.exec()) ?? []
    return answer?.[0] ?? answer?.[1]
  }

  /** Asks the master with the keys although reads do not go there: its clock counts. A replica's is the next best. */
  async #callNode(name: string, base: string): Promise<unknown> {
    const cluster = this.#redis as Cluster & Slotted
    const nodes = cluster.nodes()
    for (const key of cluster.slots?.[slotOfKey(base)] ?? []) {
      const node = nodes.find(({ options }) => `${options.host}:${options.port}` === key)
      const answer = await withinMs(
        MASTER_WAIT_MS,
        node?.call(name).catch(() => undefined),
      )
      if (answer !== undefined) return answer
    }
    return cluster.call(name)
  }
}

/** What is used of ioredis beyond its types. */
interface Slotted {
  /** The nodes with each slot, the master first, as `host:port`. */
  readonly slots?: readonly (readonly string[] | undefined)[]
}
interface Receiving {
  readonly stream?: { readonly bytesRead: number }
}

/** To ioredis, a pipeline with a command that takes no key is a write: it would go to a master although reads do not. */
function asksMasters(redis: BatchClient): boolean {
  return (redis as Partial<Cluster>).options?.scaleReads === 'master'
}

/** Read from disk once. It is sent in full with each call, since it is short. */
const SCRIPT = readLuaFile('verbs/read-many')

/** On a cluster the keys of queues are on several nodes, and ioredis adds a `keyPrefix` only to keys that it sees. */
function mayRunScripts(redis: BatchClient): boolean {
  return !redis.isCluster && !redis.options.keyPrefix && !noScripts.has(redis)
}

function isRefusal(reply: unknown): boolean {
  return typeof reply === 'object' && reply !== null && 'err' in reply
}

/** The script cannot tell nil from false, nor an empty list from an empty object. */
function asIoredis(reply: unknown): unknown {
  if (reply === false) return null
  if (typeof reply !== 'object' || reply === null) return reply
  if (!Array.isArray(reply)) return 'map' in reply ? reply.map : []
  for (let i = reply.indexOf(false); i !== -1; i = reply.indexOf(false, i)) reply[i] = null
  return reply
}

/** Bytes that the script has written as hexadecimal digits. */
function asBuffers(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(asBuffers)
  return typeof reply === 'string' ? Buffer.from(reply, 'hex') : null
}

/** Redis's reply, or undefined where it refused the command. */
export function tolerant<T>(answer: Answer<T>): T | undefined {
  try {
    return answer()
  } catch (error) {
    if (isRefusedCommand(error)) return undefined
    throw error
  }
}

/** The user is not allowed to run the command, or this server does not know it. */
function isRefusedCommand(error: unknown): boolean {
  return error instanceof Error && /^NOPERM|denied|unknown command/i.test(error.message)
}
