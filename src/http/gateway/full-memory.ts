import { QueueFullError } from '../../errors.ts'

/** While one asks anew, the others are refused for so long at most. ms */
const MOST_ASKING_MS = 50
/** A place that becomes free earlier than the schedule says (a job removed, a rate raised) is found after so long. ms */
const MOST_MS = 50

/**
 * Knows for moments that a queue is full: whoever is refused then costs neither Redis nor the reading of his body. Where
 * the schedule says that a place is due and nobody takes the job, it is remembered for a ms, and twice as long each time
 * that the queue is found as full as before. When that is over one request asks, and the others wait for its answer as
 * refused: in overload Redis is asked for twenty refusals a second and no more.
 */
export class FullMemory {
  readonly #now: () => number
  #refusal: QueueFullError | undefined
  #untilMs = 0
  #heldMs = 0
  #askedMs = Number.NEGATIVE_INFINITY

  /** @param now a monotonic clock, ms */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** The refusal that stands now; undefined for one who is to ask. */
  standing(): QueueFullError | undefined {
    if (!this.#refusal) return undefined
    const nowMs = this.#now()
    if (nowMs < this.#untilMs || nowMs < this.#askedMs + MOST_ASKING_MS) return this.#refusal
    this.#askedMs = nowMs
    return undefined
  }

  /** Remembers a refusal for lack of any place; one of many jobs, or of another error, says nothing of the next request. */
  refused(error: unknown): void {
    if (!(error instanceof QueueFullError) || error.depth < error.capacity) {
      this.#forget()
      return
    }
    // Those that were under way together are one.
    if (this.#now() < this.#untilMs) return
    this.#askedMs = Number.NEGATIVE_INFINITY
    this.#refusal = error
    this.#heldMs = Math.min(MOST_MS, Math.max(error.retryAfterMs, this.#heldMs * 2))
    this.#untilMs = this.#now() + this.#heldMs
  }

  /** There was a place. */
  admitted(): void {
    this.#forget()
    this.#heldMs = 0
  }

  #forget(): void {
    this.#refusal = undefined
    this.#untilMs = 0
    this.#askedMs = Number.NEGATIVE_INFINITY
  }
}
