import type { Inspector, QueueStatus, Replication } from '../inspect/index.ts'
import { SharedReads } from './shared-reads.ts'

/** All queues at one moment. */
export interface Fleet {
  readonly at: Date
  /** Which side of a replication answers. */
  readonly read: Replication
  readonly queues: readonly QueueStatus[]
}

/** Less than a second: each turn of the ticker reads anew. */
const MAX_AGE_MS = 500

/** The queues, read once for all who ask within half a second. */
export class FleetReader {
  readonly #inspector: Inspector
  readonly #reads = new SharedReads(MAX_AGE_MS)

  constructor(inspector: Inspector) {
    this.#inspector = inspector
  }

  fleet(): Promise<Fleet> {
    return this.#reads.read('fleet', () => this.#readFleet())
  }

  /** Names of the queues that have a shape. */
  names(): Promise<readonly string[]> {
    return this.#reads.read('names', () => this.#inspector.queues())
  }

  /** A queue of the fleet; undefined where there is none of that name. */
  async status(name: string): Promise<QueueStatus | undefined> {
    const { queues } = await this.fleet()
    return queues.find((queue) => queue.name === name)
  }

  async #readFleet(): Promise<Fleet> {
    const [names, read] = await Promise.all([this.names(), this.#inspector.replication()])
    const found = names.length === 0 ? [] : await this.#inspector.status(names)
    const queues = found.filter((status) => status !== undefined)
    return { at: queues[0]?.at ?? new Date(), read, queues }
  }
}
