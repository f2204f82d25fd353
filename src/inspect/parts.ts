import { failureKind } from '../redis/failures.ts'
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

/** What was read of a part, or why it could not be read. */
export type PartAnswer<T> = { readonly value: T } | { readonly error: Error }

/** So long a part that did not answer is not asked again, ms: its commands would pile up. */
const SILENT_MS = 5000

/** Reads parts of sharded queues, each on a node of its own, of which one may be away or silent. */
export class PartReads {
  readonly #waitMs: number
  /** The parts that did not answer, and when they were asked. */
  readonly #silentMs = new Map<string, number>()

  /** @param waitMs how long a part may take to answer */
  constructor(waitMs: number) {
    this.#waitMs = waitMs
  }

  /**
   * Rejects only if the node answered and the read failed nevertheless.
   * @param base the key prefix of the part
   */
  async read<T>(base: string, read: () => Promise<T>): Promise<PartAnswer<T>> {
    const askedMs = performance.now()
    const silentMs = this.#silentMs.get(base)
    if (silentMs !== undefined && askedMs < silentMs + SILENT_MS) return { error: this.#unanswered(base) }
    const asked = read().then(
      (value) => ({ value }),
      (error: Error) => {
        if (failureKind(error)) return { error }
        throw error
      },
    )
    const answer = await withinMs(this.#waitMs, asked)
    if (answer) return answer
    this.#silentMs.set(base, askedMs)
    const answered = () => this.#silentMs.delete(base)
    asked.then(answered, answered)
    return { error: this.#unanswered(base) }
  }

  #unanswered(base: string): Error {
    return new Error(`Command timed out: the node of ${base}* has not answered within ${this.#waitMs} ms`)
  }
}

/** Undefined if it takes longer. */
async function withinMs<T>(timeoutMs: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, timeoutMs, undefined)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
