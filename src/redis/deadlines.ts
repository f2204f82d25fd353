/** One wait, and those before and after it. */
interface Pending {
  readonly deadlineMs: number
  readonly onDeadline: () => void
  before: Pending | undefined
  after: Pending | undefined
}

/**
 * Many deadlines of one length under one timer: a timer for each command of a busy producer would cost as much as the
 * command. The timer keeps no process alive: what is waited for does.
 */
export class Deadlines {
  readonly #lengthMs: number
  /**
   * A list through the waits themselves, in their order. Not a Set: V8 leaves each outgrown table of one to point to the
   * next, so that after a while all waits of a busy program outlive the quick garbage collection.
   */
  #first: Pending | undefined
  #last: Pending | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs
  }

  /** @returns call it when the deadline does not matter any more */
  add(onDeadline: () => void): () => void {
    const deadlineMs = performance.now() + this.#lengthMs
    const entry: Pending = { deadlineMs, onDeadline, before: this.#last, after: undefined }
    if (this.#last) this.#last.after = entry
    else this.#first = entry
    this.#last = entry
    if (!this.#timer) this.#arm(this.#lengthMs)
    return () => this.#remove(entry)
  }

  #remove(entry: Pending): void {
    const { before, after } = entry
    if (before) before.after = after
    else if (this.#first === entry) this.#first = after
    if (after) after.before = before
    else if (this.#last === entry) this.#last = before
    // What is done with keeps nothing else alive.
    entry.before = undefined
    entry.after = undefined
  }

  #arm(ms: number): void {
    this.#timer = setTimeout(() => this.#fire(), Math.ceil(ms))
    this.#timer.unref()
  }

  #fire(): void {
    this.#timer = undefined
    const now = performance.now()
    // All have the same length: the first to come is the first to end.
    while (this.#first) {
      const entry = this.#first
      if (entry.deadlineMs > now) {
        this.#arm(entry.deadlineMs - now)
        return
      }
      this.#remove(entry)
      entry.onDeadline()
    }
  }
}
