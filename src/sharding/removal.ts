import { setTimeout as sleep } from 'node:timers/promises'
import { ShardsUnavailableError } from '../errors.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { answered } from './all-shards.ts'

/** As BullMQ's `obliterate`. */
export interface RemovalOptions {
  readonly force?: boolean
  readonly count?: number
}

/** For each batch. As in BullMQ. */
const DEFAULTS = { force: false, count: 1000 }

/** A removal may take as long as its jobs need; only the time without an answer of Redis is limited. */
export class Removal {
  readonly #queueName: string
  readonly #timeoutMs: number

  constructor(queueName: string, timeoutMs: number) {
    this.#queueName = queueName
    this.#timeoutMs = timeoutMs
  }

  /** A round trip to each part. @throws ShardsUnavailableError, or QueueUnavailableError if only the head is silent */
  async reach(head: ShapedQueue, shards: readonly ShapedQueue[]): Promise<void> {
    const [ofHead, ...ends] = await Promise.allSettled(
      [head, ...shards].map((queue) => this.#within(lookAt(queue), false)),
    )
    const failed = ends.flatMap(({ status }, shard) => (status === 'rejected' ? [shard] : []))
    const cause = ends.find((end) => end.status === 'rejected')?.reason as Error | undefined
    if (cause) throw new ShardsUnavailableError(this.#queueName, [], failed, { cause })
    if (ofHead?.status === 'rejected') throw ofHead.reason
  }

  /**
   * Removes a queue batch by batch, as BullMQ's `obliterate` does. Once Redis is silent no further batch is sent: it
   * would remove jobs that are added when Redis is back.
   * @throws QueueUnavailableError if Redis falls silent, and the errors of BullMQ
   */
  async run(queue: ShapedQueue, options: RemovalOptions = {}): Promise<void> {
    await this.#whileAnswering(queue, () => queue.pause())
    const batch = { ...DEFAULTS, ...options }
    while (await this.#whileAnswering(queue, () => queue.backend.obliterate(batch)));
  }

  async #whileAnswering<T>(queue: ShapedQueue, act: () => Promise<T>): Promise<T> {
    const over = new AbortController()
    try {
      return await Promise.race([act(), this.#silence(queue, over.signal)])
    } finally {
      over.abort()
    }
  }

  #within<T>(call: Promise<T>, mayChange: boolean): Promise<T> {
    return answered(this.#queueName, call, this.#timeoutMs, { mayChange })
  }

  /** Rejects once Redis does not answer. */
  async #silence(queue: ShapedQueue, over: AbortSignal): Promise<never> {
    for (;;) {
      await sleep(this.#timeoutMs, undefined, { signal: over })
      await this.#within(pingAll(queue), true)
    }
  }
}

async function lookAt(queue: ShapedQueue): Promise<void> {
  await (await queue.backend.client).llen(queue.toKey('wait'))
}

async function pingAll(queue: ShapedQueue): Promise<void> {
  const client = await queue.backend.client
  // On a cluster, every node is searched for keys of the queue.
  const nodes = (client.nodes?.() ?? [client]) as unknown as readonly { ping(): Promise<unknown> }[]
  await Promise.all(nodes.map((node) => node.ping()))
}
