import type { Inspector } from '../inspect/index.ts'
import { HistoryTail } from './history-tail.ts'

/** Queues read in one turn, which bounds the load on Redis however many are followed. */
const READS_PER_TURN = 6
const COUNT = 100

/** The newest changes of the queues that clients follow. */
export class HistoryTails {
  readonly #inspector: Inspector
  readonly #tails = new Map<string, HistoryTail>()

  constructor(inspector: Inspector) {
    this.#inspector = inspector
  }

  /** undefined where the queue has not been read yet. */
  of(queue: string): HistoryTail | undefined {
    return this.#tails.get(queue)
  }

  /** Reads new entries; of many queues, those that were not read for longest. */
  async readNext(followed: ReadonlySet<string>): Promise<void> {
    for (const queue of this.#tails.keys()) if (!followed.has(queue)) this.#tails.delete(queue)
    const unread = [...followed].filter((queue) => !this.#tails.has(queue))
    const longest = [...unread, ...this.#tails.keys()].slice(0, READS_PER_TURN)
    await Promise.all(longest.map((queue) => this.#read(queue)))
  }

  async #read(queue: string): Promise<void> {
    const tail = this.#tails.get(queue) ?? new HistoryTail()
    const { newestId } = tail
    const only = newestId === undefined ? {} : { after: newestId }
    tail.add(await this.#inspector.history(queue, { count: COUNT, ...only }))
    // Moves the queue to the end of the order.
    this.#tails.delete(queue)
    this.#tails.set(queue, tail)
  }
}
