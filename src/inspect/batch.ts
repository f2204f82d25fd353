import type { Cluster, Redis } from 'ioredis'
import { readLuaFile } from '../redis/lua-files.ts'

export type BatchClient = Redis | Cluster

/** Redis's reply to a command, available once the batch has run; throws the error if the command failed. */
export type Answer<T> = () => T

type Command = readonly [name: string, ...args: (string | number)[]]
type Result = readonly [Error | null, unknown]

/**
 * From this many commands on, a script is worth it. Fewer would gain little, and a script blocks Redis while it runs.
 */
const MANY = 100

/** Clients whose user is not allowed to run scripts. */
const without = new WeakSet<BatchClient>()

/** Read commands that are sent together, in one round trip whatever their number, except on a cluster. */
export class Batch {
  readonly #redis: BatchClient
  readonly #commands: Command[] = []
  /** Indices of replies that hold bytes. */
  readonly #bytes = new Set<number>()
  #results: readonly Result[] | undefined

  constructor(redis: BatchClient) {
    this.#redis = redis
  }

  /** @param command in lower case: ioredis decodes replies by it */
  add<T>(command: string, ...args: (string | number)[]): Answer<T> {
    const index = this.#commands.push([command, ...args]) - 1
    return () => this.#answer(index) as T
  }

  /** The same for a string that holds bytes. */
  addBuffer(command: string, ...args: (string | number)[]): Answer<Buffer | null> {
    this.#bytes.add(this.#commands.length)
    return this.add(command, ...args)
  }

  #answer(index: number): unknown {
    const [error, value] = this.#results?.[index] ?? [new Error('the batch was not run'), undefined]
    if (error) throw error
    return value
  }

  async run(): Promise<void> {
    if (this.#commands.length === 0) return
    this.#results = (await this.#together()) ?? (await this.#oneByOne())
  }

  /**
   * Runs the batch as one script; undefined where that is not worth it, not possible or not allowed, or where a command
   * failed, since the script cannot say why.
   */
  async #together(): Promise<Result[] | undefined> {
    const redis = this.#redis
    if (this.#commands.length < MANY || this.#bytes.size > 0 || !mayRunScripts(redis)) return undefined
    try {
      const text = (await redis.call('eval', SCRIPT, 0, JSON.stringify(this.#commands))) as string
      const answers = JSON.parse(text) as unknown[]
      if (answers.some(isRefusal)) return undefined
      return answers.map((answer, i) => [null, asIoredis(answer, (this.#commands[i] as Command)[0])])
    } catch (error) {
      // Any other error shows up again when the commands are sent one by one.
      if (isRefusedCommand(error)) without.add(redis)
      return undefined
    }
  }

  async #oneByOne(): Promise<Result[]> {
    // A pipeline goes to one node, but the keys of queues and limits may be on several.
    if (this.#redis.isCluster) return Promise.all(this.#commands.map((command, i) => this.#callOf(command, i)))
    const pipeline = this.#redis.pipeline()
    for (const [i, [name, ...args]] of this.#commands.entries()) {
      if (this.#bytes.has(i)) pipeline.callBuffer(name, ...args)
      else pipeline.call(name, ...args)
    }
    return (await pipeline.exec()) ?? []
  }

  async #callOf([name, ...args]: Command, index: number): Promise<Result> {
    const redis = this.#redis
    try {
      return [null, await (this.#bytes.has(index) ? redis.callBuffer(name, ...args) : redis.call(name, ...args))]
    } catch (error) {
      return [error as Error, undefined]
    }
  }
}

/** Read from disk once. It is sent in full with each call, since it is short. */
const SCRIPT = readLuaFile('read-many')

/** On a cluster the keys of queues are on several nodes, and ioredis adds a `keyPrefix` only to keys that it sees. */
function mayRunScripts(redis: BatchClient): boolean {
  return !redis.isCluster && !redis.options.keyPrefix && !without.has(redis)
}

function isRefusal(answer: unknown): boolean {
  return typeof answer === 'object' && answer !== null && 'err' in answer
}

/** The script cannot tell nil from false, nor an empty list from an empty object. */
function asIoredis(answer: unknown, command: string): unknown {
  if (answer === false) return null
  if (typeof answer !== 'object') return answer
  const list = Array.isArray(answer) ? (answer as unknown[]) : []
  if (command === 'hgetall') return byField(list as string[])
  for (let i = list.indexOf(false); i !== -1; i = list.indexOf(false, i)) list[i] = null
  return list
}

function byField(flat: readonly string[]): Record<string, string> {
  const fields: Record<string, string> = {}
  for (let i = 0; i + 1 < flat.length; i += 2) fields[flat[i] as string] = flat[i + 1] as string
  return fields
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
