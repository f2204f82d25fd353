/** Delivers items after a delay, always in their original order, even when the delay changes in the meantime. */
export class DelayLine<Item> {
  readonly #deliver: (item: Item) => void
  readonly #waiting: { item: Item; dueMs: number }[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(deliver: (item: Item) => void) {
    this.#deliver = deliver
  }

  push(item: Item, delayMs: number): void {
    if (delayMs === 0 && this.#waiting.length === 0) {
      this.#deliver(item)
      return
    }
    const lastDueMs = this.#waiting.at(-1)?.dueMs ?? 0
    this.#waiting.push({ item, dueMs: Math.max(lastDueMs, performance.now() + delayMs) })
    this.#arm()
  }

  clear(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#waiting.length = 0
  }

  #arm(): void {
    const first = this.#waiting[0]
    if (this.#timer !== undefined || first === undefined) return
    this.#timer = setTimeout(() => this.#release(), Math.max(0, first.dueMs - performance.now()))
  }

  #release(): void {
    this.#timer = undefined
    // Timers have a resolution of 1 ms and may fire that much early.
    while (this.#waiting[0] !== undefined && this.#waiting[0].dueMs <= performance.now() + 1) {
      this.#deliver(this.#waiting.shift()!.item)
    }
    this.#arm()
  }
}
