/** The shared label of the queues beyond the limit. */
export const OTHER = 'other'

/** Which queues have a label of their own: the first ones that were read. */
export class QueueLabels {
  readonly #max: number
  readonly #own = new Set<string>()

  constructor(max: number) {
    this.#max = max
  }

  /** Whether a queue has a label of its own; assigns one while some are left. */
  claim(name: string): boolean {
    if (this.#own.has(name)) return true
    if (this.#own.size >= this.#max || name === OTHER) return false
    this.#own.add(name)
    return true
  }

  /** Frees the labels of queues that no longer exist. */
  keep(queues: { has(name: string): boolean }): void {
    for (const name of this.#own) if (!queues.has(name)) this.#own.delete(name)
  }
}
