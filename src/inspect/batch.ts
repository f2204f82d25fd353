import type { Cluster, Redis } from 'ioredis'
import { readLuaFile } from '../redis/lua-files.ts'

/** An ioredis client. */
export type BatchClient = Redis | Cluster

/** What Redis answered to a command, once the batch has run; throws what it was refused with. */
export type Answer<T> = () => T

/** A command with its arguments. */
type Command = readonly [name: string, ...args: (string | number)[]]
type Result = readonly [Error | null, unknown]

/** So many commands are worth a script. Fewer would gain little, and it keeps Redis from others as long as it runs. */
const MANY = 100

/** Clients whose user may run no script. */
const without = new WeakSet<BatchClient>()

/** Read commands that go out together: one round trip, whatever their number, but on a cluster. */
export class Batch {
  readonly #redis: BatchClient
  readonly #commands: Command[] = []
  /** Indices of answers that hold bytes. */
  readonly #bytes = new Set<number>()
  #results: readonly Result[] | undefined

  constructor(redis: BatchClient) {
    this.#redis = redis
  }

  /** @param command in small letters: ioredis knows by them how to read an answer */
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

  /** By one script; undefined where that is not worth it, not possible or not allowed, or where it can not say why a command failed. */
  async #together(): Promise<Result[] | undefined> {
    const redis = this.#redis
    if (this.#commands.length < MANY || this.#bytes.size > 0 || !mayRunScripts(redis)) return undefined
    try {
      const text = (await redis.call('eval', SCRIPT, 0, JSON.stringify(this.#commands))) as string
      const answers = JSON.parse(text) as unknown[]
      if (answers.some(isRefusal)) return undefined
      return answers.map((answer, i) => [null, asIoredis(answer, (this.#commands[i] as Command)[0])])
    } catch (error) {
      // What else went wrong each command says by itself.
      if (isRefusedCommand(error)) without.add(redis)
      return undefined
    }
  }

  async #oneByOne(): Promise<Result[]> {
    // A pipeline goes to one node, and the keys of queues and limits may be on several.
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

/** Read once: it is sent each time, and is short. */
const SCRIPT = readLuaFile('read-many')

/** On a cluster the keys of queues are in many places. ioredis puts a `keyPrefix` only before the keys that it sees. */
function mayRunScripts(redis: BatchClient): boolean {
  return !redis.isCluster && !redis.options.keyPrefix && !without.has(redis)
}

function isRefusal(answer: unknown): boolean {
  return typeof answer === 'object' && answer !== null && 'err' in answer
}

/** Lua has no nil in a list, and one kind of empty table. */
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

/** What Redis answered, or undefined where it refused the command. */
export function tolerant<T>(answer: Answer<T>): T | undefined {
  try {
    return answer()
  } catch (error) {
    if (isRefusedCommand(error)) return undefined
    throw error
  }
}

/** The user may not run it, or this server does not know it. */
function isRefusedCommand(error: unknown): boolean {
  return error instanceof Error && /^NOPERM|denied|unknown command/i.test(error.message)
}
