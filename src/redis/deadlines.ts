/** One wait, linked to its neighbours. */
interface Pending {
  readonly deadlineMs: number
  readonly onDeadline: () => void
  before: Pending | undefined
  after: Pending | undefined
}

/**
 * Many deadlines of equal length with one timer: a timer per command of a busy producer would cost as much as the
 * command. The timer does not keep the process alive: the awaited command does.
 */
export class Deadlines {
  readonly #lengthMs: number
  /**
   * A linked list of the waits, in order. Not a Set: in V8 each outgrown table of a Set points to the next, so that
   * eventually all waits of a busy program survive the minor garbage collections.
   */
  #first: Pending | undefined
  #last: Pending | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs
  }

  /** @returns cancels the deadline */
  add(onDeadline: () => void, nowMs = performance.now()): () => void {
    const deadlineMs = nowMs + this.#lengthMs
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
    // A removed entry must not keep others alive.
    entry.before = undefined
    entry.after = undefined
  }

  #arm(ms: number): void {
    // In a busy process the reply may have arrived but not been read yet.
    this.#timer = setTimeout(() => setImmediate(() => this.#fire()), Math.ceil(ms))
    this.#timer.unref()
  }

  #fire(): void {
    this.#timer = undefined
    const now = performance.now()
    // All have the same length: the first added is the first to expire.
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

/** Undefined if it takes longer. */
export async function withinMs<T>(timeoutMs: number, promise: Promise<T> | undefined): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    // In a busy process the reply may have arrived but not been read yet.
    timer = setTimeout(() => setImmediate(resolve, undefined), timeoutMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** The result of a promise. @throws what `late` returns, if it takes longer */
export async function orLate<T>(timeoutMs: number, promise: Promise<T>, late: () => Error): Promise<T> {
  const answer = await withinMs(
    timeoutMs,
    promise.then((value) => ({ value })),
  )
  if (!answer) throw late()
  return answer.value
}
