import { BaseModel, type Model, type View } from './base.ts'

/** The counts of a window and of the one before it. */
interface Counts {
  readonly start: number
  readonly used: number
  readonly before: number
}

/** The estimate is a quotient of doubles: the same operations in the same order, to be equal to the last bit. */
export class CounterModel extends BaseModel implements Model {
  #stored: Counts | undefined

  get #window(): number {
    return this.rule.window as number
  }

  #windowOf(at: number): number {
    return Math.floor(at / this.#window) * this.#window
  }

  /** The counts of whoever comes now. */
  #current(): Counts {
    const own = this.#windowOf(this.now)
    if (!this.#stored) return { start: own, used: 0, before: 0 }
    const { start, used, before } = this.#stored
    if (this.now >= this.changedAt) return this.#movedOn(this.#stored, own)
    // The clock went back: the window that was current stays current, one that was ahead stays as far ahead.
    const moved = start > this.changedAt ? this.#windowOf(start - this.changedAt + this.now) : own
    return { start: moved, used, before }
  }

  #movedOn(counts: Counts, window: number): Counts {
    const { start, used } = counts
    if (window <= start) return counts
    return { start: window, used: 0, before: window === start + this.#window ? used : 0 }
  }

  earliest(cost: number): number {
    const limit = this.rule.limit as number
    const counted = Math.min(cost, limit)
    const { start, used, before } = this.#current()
    // In this window, in the next one, or in the one after, which is empty.
    const windows = [
      [used, before],
      [0, used],
    ] as const
    for (const [i, [inIt, inLast]] of windows.entries()) {
      const wait = inIt + counted > limit ? Number.POSITIVE_INFINITY : this.#until(limit - inIt - counted, inLast)
      if (wait < this.#window) return Math.max(0, start + i * this.#window - this.now + Math.ceil(wait))
    }
    return start + 2 * this.#window - this.now
  }

  /** µs into a window after which the last one's units that still reach into it are no more than the room. */
  #until(room: number, before: number): number {
    return before === 0 ? 0 : Math.max(0, 1 - room / before) * this.#window
  }

  commit(cost: number, offset: number): void {
    const { start, used, before } = this.#movedOn(this.#current(), this.#windowOf(this.now + Math.ceil(offset)))
    this.#change({ start, used: used + cost, before })
  }

  settle(cost: number): void {
    const { start, used, before } = this.#current()
    this.#change({ start, used: Math.max(0, used + cost), before })
  }

  takeBack(cost: number, slot: number): boolean {
    const counts = this.#current()
    const window = this.#windowOf(slot)
    if (window === counts.start) this.#change({ ...counts, used: Math.max(0, counts.used - cost) })
    else if (window === counts.start - this.#window)
      this.#change({ ...counts, before: Math.max(0, counts.before - cost) })
    else return false
    return true
  }

  credit(cost: number, slot: number): number {
    return slot >= this.#current().start ? cost : 0
  }

  view(): View {
    const { start, used, before } = this.#current()
    const reaches = Math.min(1, Math.max(0, 1 - (this.now - start) / this.#window))
    const windows = used > 0 ? 2 : before > 0 ? 1 : 0
    return {
      left: (this.rule.limit as number) - used - before * reaches,
      resetAt: windows === 0 ? this.now : start + windows * this.#window,
    }
  }

  lose(): void {
    this.#stored = undefined
    this.changedAt = -1
  }

  #change(counts: Counts): void {
    this.#stored = counts
    this.changedAt = this.now
  }
}
