import { QueueFullError } from '../../errors.ts'

/** A place that becomes free earlier than the schedule says (a job removed, a rate raised) is found after so long. ms */
const REMEMBERED_MS = 50

/**
 * Knows for moments that a queue is full: whoever is refused at once then costs neither Redis nor the reading of his
 * body. It never refuses later than the refusal said, and in overload Redis is asked twenty times a second and no more.
 */
export class FullMemory {
  readonly #now: () => number
  #refusal: QueueFullError | undefined
  #untilMs = 0

  /** @param now a monotonic clock, ms */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** The refusal that stands now. */
  get refusal(): QueueFullError | undefined {
    return this.#refusal && this.#now() < this.#untilMs ? this.#refusal : undefined
  }

  /** Remembers a refusal for lack of any place; one of many jobs, or of another error, says nothing of the next request. */
  note(error: unknown): void {
    if (!(error instanceof QueueFullError) || error.depth < error.capacity) return
    this.#refusal = error
    this.#untilMs = this.#now() + Math.min(error.retryAfterMs, REMEMBERED_MS)
  }
}
