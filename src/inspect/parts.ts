import { ReadTimeoutError } from '../errors.ts'
import { withinMs } from '../redis/deadlines.ts'
import { isPassing } from '../redis/failures.ts'
import { headPrefix, shardPrefix } from '../redis/shards.ts'

/** The key prefixes of a sharded queue's parts, with their colons. */
export interface QueueParts {
  readonly head: string
  readonly shards: readonly string[]
}

export function partsOf(prefix: string, name: string, count: number): QueueParts {
  return {
    head: baseIn(headPrefix(prefix, name), name),
    shards: Array.from({ length: count }, (_, shard) => baseIn(shardPrefix(prefix, name, shard), name)),
  }
}

export function baseIn(prefix: string, name: string): string {
  return `${prefix}:${name}:`
}

/** The answer of a part, or why it could not be read. */
export type PartAnswer<T> = { readonly value: T } | { readonly error: Error }

/** A node that did not answer is not asked again for this time after the wait, ms: its commands would pile up. */
const SILENT_MS = 5000

/** Reads queues and parts of sharded ones on the nodes of a cluster, one of which may be unavailable or silent. */
export class PartReads {
  readonly #waitMs: number
  readonly #nodeOf: (key: string) => string
  /** The nodes that did not answer, and when the last wait for each ended. */
  readonly #silentMs = new Map<string, number>()

  /**
   * @param waitMs how long a node may take to answer
   * @param nodeOf the node with a key. Default: each key has its own
   */
  constructor(waitMs: number, nodeOf: (key: string) => string = (key) => key) {
    this.#waitMs = waitMs
    this.#nodeOf = nodeOf
  }

  /**
   * Rejects only if the node answered and the read failed nevertheless, such as without permission.
   * @param key the key prefix of the queue or the part, or the one key that is read
   */
  async read<T>(key: string, read: () => Promise<T>): Promise<PartAnswer<T>> {
    const node = this.#nodeOf(key)
    const silentMs = this.#silentMs.get(node)
    if (silentMs !== undefined && performance.now() < silentMs + SILENT_MS) return { error: this.#unanswered(key) }
    const asked = read().then(
      (value) => ({ value }),
      (error: Error) => {
        if (isPassing(error)) return { error }
        throw error
      },
    )
    const answer = await withinMs(this.#waitMs, asked)
    if (answer && !isSilence(answer)) return answer
    this.#silentMs.set(node, performance.now())
    const answered = () => this.#silentMs.delete(node)
    asked.then((late) => isSilence(late) || answered(), answered)
    return { error: this.#unanswered(key) }
  }

  #unanswered(key: string): Error {
    return new ReadTimeoutError(`the node of ${key}*`, this.#waitMs)
  }
}

function isSilence(answer: PartAnswer<unknown>): boolean {
  return 'error' in answer && answer.error instanceof ReadTimeoutError
}
