interface Pending {
  readonly deadlineMs: number
  readonly onDeadline: () => void
}

/**
 * Many deadlines of one length under one timer: a timer for each command of a busy producer would cost as much as the
 * command. The timer keeps no process alive: what is waited for does.
 */
export class Deadlines {
  readonly #lengthMs: number
  readonly #pending = new Set<Pending>()
  #timer: NodeJS.Timeout | undefined

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs
  }

  /** @returns call it when the deadline does not matter any more */
  add(onDeadline: () => void): () => void {
    const entry = { deadlineMs: performance.now() + this.#lengthMs, onDeadline }
    this.#pending.add(entry)
    if (!this.#timer) this.#arm(this.#lengthMs)
    return () => this.#pending.delete(entry)
  }

  #arm(ms: number): void {
    this.#timer = setTimeout(() => this.#fire(), Math.ceil(ms))
    this.#timer.unref()
  }

  #fire(): void {
    this.#timer = undefined
    const now = performance.now()
    // All have the same length: the first to come is the first to end.
    for (const entry of this.#pending) {
      if (entry.deadlineMs > now) {
        this.#arm(entry.deadlineMs - now)
        return
      }
      this.#pending.delete(entry)
      entry.onDeadline()
    }
  }
}
