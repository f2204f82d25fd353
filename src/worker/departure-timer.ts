import { MAX_TIMER_MS } from '../max-timer.ts'
import type { RedisClock } from '../redis/clock.ts'

/** Anything with a slot. */
export interface Timed {
  readonly slotUs: number
}

/**
 * Holds granted jobs until their slots, with one timer for the first of them. Node's timers can fire up to a
 * millisecond early, so the clock is checked again when one fires.
 */
export class DepartureTimer<T extends Timed> {
  readonly #clock: RedisClock
  readonly #onDue: (item: T) => void
  #items: T[] = []
  #stopTimer: (() => void) | undefined

  constructor(clock: RedisClock, onDue: (item: T) => void) {
    this.#clock = clock
    this.#onDue = onDue
  }

  get size(): number {
    return this.#items.length
  }

  /** In the order of the slots. */
  get items(): readonly T[] {
    return this.#items
  }

  /** Adds an item, behind those with the same slot; it fires at {@link fireDue}, or once an earlier item is due. */
  hold(item: T): void {
    let at = this.#items.length
    while (at > 0 && (this.#items[at - 1] as T).slotUs > item.slotUs) at -= 1
    this.#items.splice(at, 0, item)
  }

  /** Takes everything out, in the order of the slots. */
  takeAll(): T[] {
    const items = this.#items
    this.#items = []
    this.fireDue()
    return items
  }

  /** Fires what is due, even if this process was too busy for the timer, and sets it for the next. */
  fireDue(): void {
    this.#stopTimer?.()
    this.#stopTimer = undefined
    for (let first = this.#items[0]; first; first = this.#items[0]) {
      const waitMs = this.#clock.untilMs(first.slotUs)
      if (waitMs > 0) {
        this.#stopTimer = this.#clock.time.after(Math.min(Math.ceil(waitMs), MAX_TIMER_MS), () => this.fireDue())
        return
      }
      this.#items.shift()
      this.#onDue(first)
    }
  }
}
