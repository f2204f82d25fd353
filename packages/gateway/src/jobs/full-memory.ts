import { GroupFullError, QueueFullError } from 'sluice/internal'
import type { HttpResponse } from '../middleware.ts'
import type { Given } from '../responses/problem.ts'

/** While one request asks Redis again, the others are refused for at most this long. ms */
const MOST_ASKING_MS = 50
/** A place that is freed ahead of schedule (a job removed, the rate raised) is noticed within this time. ms */
const MOST_MS = 50

/**
 * Remembers briefly that a queue is full, so that a refusal costs neither a call to Redis nor reading the body. If a
 * place is due by the schedule but no worker takes the job, the refusal is remembered for 1 ms, and twice as long each
 * time the queue is found full again. After that, one request asks Redis, and the others are refused until it has the
 * reply: under overload Redis decides at most twenty refusals a second.
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

  /** The refusal in force; undefined if this request must ask Redis. */
  standing(): QueueFullError | undefined {
    if (!this.#refusal) return undefined
    const nowMs = this.#now()
    if (nowMs < this.#untilMs || nowMs < this.#askedMs + MOST_ASKING_MS) return this.#refusal
    this.#askedMs = nowMs
    return undefined
  }

  /**
   * Remembers a refusal by a queue without any free place. Where many jobs needed more places than were free, where only a
   * group is full, or for another error, the next request may still be admitted.
   */
  refused(error: unknown): void {
    if (!(error instanceof QueueFullError) || error instanceof GroupFullError || error.depth < error.capacity) {
      this.#forget()
      return
    }
    // Refusals of concurrent requests count once.
    if (this.#now() < this.#untilMs) return
    this.#askedMs = Number.NEGATIVE_INFINITY
    this.#refusal = error
    this.#heldMs = Math.min(MOST_MS, Math.max(error.retryAfterMs, this.#heldMs * 2))
    this.#untilMs = this.#now() + this.#heldMs
  }

  /** A place was found. */
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

/** Number of responses with different jitter: enough to spread the retries. */
const VARIANTS = 32

/** The responses to one remembered refusal, each built once: under overload, building them is most of the work. */
export class FullResponses {
  #error: QueueFullError | undefined
  #instance: string | undefined
  #responses: (HttpResponse | undefined)[] = []

  /** @param make builds a response with the given random number */
  of(
    error: QueueFullError,
    instance: string | undefined,
    make: (given: Given) => HttpResponse | undefined,
  ): HttpResponse | undefined {
    if (error !== this.#error || instance !== this.#instance) {
      this.#error = error
      this.#instance = instance
      this.#responses = []
    }
    const variant = Math.floor(Math.random() * VARIANTS)
    this.#responses[variant] ??= make({ random: () => (variant + Math.random()) / VARIANTS })
    return this.#responses[variant]
  }
}
