/** A worker that takes a share of the places of a process. */
export interface Sharer {
  concurrency: number
  /** Jobs that it runs, holds for their slots or has asked for. */
  placesTaken(): number
}

/**
 * Divides the places of a process among the workers of its shards, at least one for each. A worker's place goes to
 * another only once it is free, so the total of jobs in hand never exceeds the places.
 */
export class Permits {
  readonly #total: number
  readonly #sharers: Sharer[] = []

  constructor(total: number) {
    this.#total = total
  }

  /** Adds a worker that has one place. */
  add(sharer: Sharer): void {
    this.#sharers.push(sharer)
  }

  rebalance(): void {
    if (this.#sharers.length === 0) return
    const wanted = this.#wanted(this.#total)
    for (const [i, sharer] of this.#sharers.entries()) {
      const less = wanted[i] as number
      if (less < sharer.concurrency) sharer.concurrency = less
    }
    let free = this.#free()
    for (const [i, sharer] of this.#sharers.entries()) {
      const more = Math.min(free, (wanted[i] as number) - sharer.concurrency)
      if (more <= 0) continue
      sharer.concurrency += more
      free -= more
    }
  }

  #free(): number {
    const held = this.#sharers.map((sharer) => Math.max(sharer.concurrency, sharer.placesTaken()))
    return this.#total - held.reduce((sum, one) => sum + one, 0)
  }

  /**
   * A worker that uses all of its places wants as many as it can get, any other one more than it uses. All get as much,
   * if they want it.
   */
  #wanted(total: number): number[] {
    const wants = this.#sharers.map((sharer) => {
      const taken = sharer.placesTaken()
      return taken >= sharer.concurrency ? total : Math.max(1, taken + 1)
    })
    const given = wants.map(() => 0)
    let [left, open] = [total, wants.map((_, i) => i)]
    while (left > 0 && open.length > 0) {
      const even = Math.max(1, Math.floor(left / open.length))
      for (const i of open) {
        const more = Math.min(even, left, (wants[i] as number) - (given[i] as number))
        given[i] = (given[i] as number) + more
        left -= more
      }
      open = open.filter((i) => (given[i] as number) < (wants[i] as number))
    }
    // Unwanted places are spread, ready for the next jobs of any worker.
    for (let i = 0; left > 0; i = (i + 1) % given.length, left--) given[i] = (given[i] as number) + 1
    return given.map((n) => Math.max(1, n))
  }
}
