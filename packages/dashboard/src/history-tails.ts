import type { HistoryEntry, Inspector } from 'sluice/inspect'
import { compareIds, isPassing, withinMs } from 'sluice/internal'

/** Queues read in one turn, which bounds the load on Redis however many are followed. */
const READS_PER_TURN = 6
const COUNT = 100
/** A turn waits no longer for a history, ms: what comes later is sent with a later one. */
const WAIT_MS = 500

/** The newest changes of the queues that clients follow. */
export class HistoryTails {
  readonly #inspector: Inspector
  readonly #tails = new Map<string, HistoryTail>()
  readonly #reading = new Set<string>()

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
    const free = [...unread, ...this.#tails.keys()].filter((queue) => !this.#reading.has(queue))
    const reads = free.slice(0, READS_PER_TURN).map((queue) => this.#read(queue))
    await withinMs(WAIT_MS, Promise.all(reads))
  }

  /** Of a queue on a node that does not answer, nothing is new; the others have their events. */
  async #read(queue: string): Promise<void> {
    const tail = this.#tails.get(queue) ?? new HistoryTail()
    const { readAfter } = tail
    const only = readAfter === undefined ? {} : { after: readAfter }
    this.#reading.add(queue)
    try {
      tail.add(await this.#inspector.history(queue, { count: COUNT, ...only }))
    } catch (error) {
      if (!isPassing(error as Error)) throw error
      return
    } finally {
      this.#reading.delete(queue)
    }
    // Moves the queue to the end of the order.
    this.#tails.delete(queue)
    this.#tails.set(queue, tail)
  }
}

const MAX_KEPT = 200
/** The shards of a queue may be on servers whose clocks differ by this much: an id may come after greater ones. */
const OVERLAP_MS = 10_000

interface Arrival {
  readonly entry: HistoryEntry
  /** Streams of several shards may use an id twice. */
  readonly key: string
  /** How many came before it. */
  readonly place: number
}

/** The newest changes of one queue. */
export class HistoryTail {
  /** Newest first. */
  #arrivals: readonly Arrival[] = []
  /** How many entries have arrived. */
  count = 0

  /** From where new entries are read: some of those after it are known. */
  get readAfter(): string | undefined {
    const newest = this.#arrivals[0]?.entry
    return newest && `${Math.max(0, Number.parseInt(newest.id, 10) - OVERLAP_MS)}-0`
  }

  /** @param found newest first, as they are read */
  add(found: readonly HistoryEntry[]): void {
    const known = new Set(this.#arrivals.map(({ key }) => key))
    const news = found.map((entry) => ({ entry, key: JSON.stringify(entry) })).filter(({ key }) => !known.has(key))
    const arrivals = news.reverse().map((one) => ({ ...one, place: this.count++ }))
    const all = [...arrivals, ...this.#arrivals].sort((one, other) => compareIds(other.entry.id, one.entry.id))
    this.#arrivals = all.slice(0, MAX_KEPT)
  }

  /**
   * The entries that a client does not have, newest first.
   * @param id of the last one it has
   * @param count how many had arrived when it was sent the last ones; undefined if it was sent none of this tail
   */
  after(id: string, count?: number): readonly HistoryEntry[] {
    const isNew = ({ entry, place }: Arrival) => (count === undefined ? compareIds(entry.id, id) > 0 : place >= count)
    return this.#arrivals.filter(isNew).map(({ entry }) => entry)
  }
}
