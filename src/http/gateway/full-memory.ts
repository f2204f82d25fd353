import { QueueFullError } from '../../errors.ts'

/** A place that becomes free earlier than the schedule says (a job removed, a rate raised) is found after so long. ms */
const MOST_MS = 50

/**
 * Knows for moments that a queue is full: whoever is refused then costs neither Redis nor the reading of his body. Where
 * the schedule says that a place is due and nobody takes the job, it is remembered for a ms, and twice as long each time
 * that the queue is found as full as before; in overload Redis is asked for twenty refusals a second and no more.
 */
export class FullMemory {
  readonly #now: () => number
  #refusal: QueueFullError | undefined
  #untilMs = 0
  #heldMs = 0

  /** @param now a monotonic clock, ms */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** The refusal that stands now. */
  get refusal(): QueueFullError | undefined {
    return this.#refusal && this.#now() < this.#untilMs ? this.#refusal : undefined
  }

  /** Remembers a refusal for lack of any place; one of many jobs, or of another error, says nothing of the next request. */
  refused(error: unknown): void {
    if (!(error instanceof QueueFullError) || error.depth < error.capacity) return
    // Those that were under way together are one.
    if (this.#now() < this.#untilMs) return
    this.#refusal = error
    this.#heldMs = Math.min(MOST_MS, Math.max(error.retryAfterMs, this.#heldMs * 2))
    this.#untilMs = this.#now() + this.#heldMs
  }

  /** There was a place. */
  admitted(): void {
    this.#refusal = undefined
    this.#untilMs = 0
    this.#heldMs = 0
  }
}
