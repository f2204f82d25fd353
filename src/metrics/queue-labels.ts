/** The label of the queues beyond the limit, all together. */
export const OTHER = 'other'

/** Which queues have a label of their own: those that were there first. */
export class QueueLabels {
  readonly #max: number
  #own = new Set<string>()

  constructor(max: number) {
    this.#max = max
  }

  /** The labels of all queues that there are; a queue that is gone leaves its label to another. */
  of(names: readonly string[]): ReadonlyMap<string, string> {
    const stay = names.filter((name) => this.#own.has(name))
    const come = names.filter((name) => !this.#own.has(name)).toSorted()
    this.#own = new Set([...stay, ...come].slice(0, this.#max))
    return new Map(names.map((name) => [name, this.#own.has(name) ? name : OTHER]))
  }
}
