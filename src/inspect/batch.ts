import type { Cluster, Redis } from 'ioredis'
import { ReadTimeoutError } from '../errors.ts'
import { withinMs } from '../redis/deadlines.ts'

export type BatchClient = Redis | Cluster

/** Redis's reply to a command, available once the batch has run; throws the error if the command failed. */
export type Deferred<T> = () => T

type Command = readonly [name: string, ...args: (string | number)[]]

/** Redis is silent if nothing of an answer arrives for this time, ms. */
const SILENT_MS = 5000

/** Read commands that are sent together, in one round trip whatever their number, except on a cluster. */
export class Batch {
  readonly #redis: BatchClient
  readonly #commands: Command[] = []
  /** Commands that run a script, by their indices: their form for a Redis that does not know the script yet. */
  readonly #scripts = new Map<number, Command>()
  /** The replies, an Error for a command that failed. */
  #replies: readonly unknown[] | undefined
  /** On a cluster: how many commands were answered. */
  #answered = 0

  constructor(redis: BatchClient) {
    this.#redis = redis
  }

  get isCluster(): boolean {
    return this.#redis.isCluster === true
  }

  /** @param command its name in lower case, by which ioredis decodes the reply, and its arguments */
  add<T>(...command: Command): Deferred<T> {
    const index = this.#commands.push(command) - 1
    return () => this.#answer(index) as T
  }

  /** A script that writes nothing. args: the number of its keys, these, and the others */
  addScript<T>(text: string, sha: string, args: readonly (string | number)[]): Deferred<T> {
    this.#scripts.set(this.#commands.length, ['eval_ro', text, ...args])
    return this.add('evalsha_ro', sha, ...args)
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
    const asked = this.#ask().then((value) => ({ value }))
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

  /** Grows while data arrives: an answer may be long, and its connection slow. */
  get #received(): number {
    if (this.#redis.isCluster) return this.#answered
    return (this.#redis as unknown as Receiving).stream?.bytesRead ?? 0
  }

  async #ask(): Promise<unknown[]> {
    const replies = await this.#send(this.#commands)
    const unknown = [...this.#scripts].filter(([index]) => isUnknownScript(replies[index]))
    const again = await this.#send(unknown.map(([, command]) => command))
    for (const [i, [index]] of unknown.entries()) replies[index] = again[i]
    return replies
  }

  async #send(commands: readonly Command[]): Promise<unknown[]> {
    if (commands.length === 0) return []
    // A pipeline goes to one node, but the keys of queues may be on several.
    if (this.#redis.isCluster) return Promise.all(commands.map((command) => this.#callOf(command)))
    const pipeline = this.#redis.pipeline()
    for (const [name, ...args] of commands) pipeline.call(name, ...args)
    return ((await pipeline.exec()) ?? []).map(([error, reply]) => error ?? reply)
  }

  async #callOf([name, ...args]: Command): Promise<unknown> {
    try {
      return await this.#redis.call(name, ...args)
    } catch (error) {
      return error
    } finally {
      this.#answered += 1
    }
  }
}

/** The parts of ioredis that we use beyond its types. */
interface Receiving {
  readonly stream?: { readonly bytesRead: number }
}

function isUnknownScript(reply: unknown): boolean {
  return reply instanceof Error && reply.message.startsWith('NOSCRIPT')
}

/** Sends all that `ask` adds to a batch, in one round trip. */
export async function inBatch<T>(redis: BatchClient, ask: (batch: Batch) => Deferred<T>): Promise<T> {
  const batch = new Batch(redis)
  const answer = ask(batch)
  await batch.run()
  return answer()
}

/** Redis's reply, or undefined if it refused the command. */
export function tolerant<T>(answer: Deferred<T>): T | undefined {
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
