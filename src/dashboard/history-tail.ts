import type { HistoryEntry } from '../inspect/index.ts'

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
