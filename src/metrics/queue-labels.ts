/** The label of the queues beyond the limit, all together. */
export const OTHER = 'other'

/** Which queues have a label of their own: those that were there first. */
export class QueueLabels {
  readonly #max: number
  readonly #own = new Set<string>()

  constructor(max: number) {
    this.#max = max
  }

  /** Whether a queue has a label of its own; gives it one as long as there are some. */
  claim(name: string): boolean {
    if (this.#own.has(name)) return true
    if (this.#own.size >= this.#max || name === OTHER) return false
    this.#own.add(name)
    return true
  }

  /** Queues that are gone leave their labels to others. */
  keep(queues: { has(name: string): boolean }): void {
    for (const name of this.#own) if (!queues.has(name)) this.#own.delete(name)
  }
}
