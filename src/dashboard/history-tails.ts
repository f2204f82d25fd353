import type { HistoryEntry, Inspector } from '../inspect/index.ts'

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

  /** Reads new entries; if many queues are followed, only of those whose last read is oldest. */
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

const MAX_KEPT = 200

/** The newest changes of one queue. */
export class HistoryTail {
  /** Newest first. */
  #entries: readonly HistoryEntry[] = []

  get newestId(): string | undefined {
    return this.#entries[0]?.id
  }

  /** @param found newest first, as they are read */
  add(found: readonly HistoryEntry[]): void {
    const { newestId } = this
    const later = newestId === undefined ? found : found.filter(({ id }) => isAfter(id, newestId))
    this.#entries = [...later, ...this.#entries].slice(0, MAX_KEPT)
  }

  /** The entries after an id, newest first. */
  after(id: string): readonly HistoryEntry[] {
    return this.#entries.filter((entry) => isAfter(entry.id, id))
  }
}

/** Whether a stream id comes after another. */
function isAfter(id: string, other: string): boolean {
  const [ms = 0, sequence = 0] = id.split('-').map(Number)
  const [otherMs = 0, otherSequence = 0] = other.split('-').map(Number)
  return ms === otherMs ? sequence > otherSequence : ms > otherMs
}
