import { QueueFullError } from '../../errors.ts'
import type { HttpResponse } from '../middleware.ts'
import type { Given } from '../responses/problem.ts'

/** While one request asks again, the others are refused for at most this long. ms */
const MOST_ASKING_MS = 50
/** A place that becomes free earlier than scheduled (a job removed, a rate raised) is found after this long. ms */
const MOST_MS = 50

/**
 * Remembers for moments that a queue is full, so that a refusal costs neither a call to Redis nor reading the body.
 * If a place is due by the schedule but no worker takes the job, the refusal is remembered for a ms, and twice as
 * long each time the queue is found full again. After that one request asks, and the others are refused until it has an
 * answer: under overload Redis is asked for at most twenty refusals a second.
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

  /** The refusal in force; undefined if this request has to ask. */
  standing(): QueueFullError | undefined {
    if (!this.#refusal) return undefined
    const nowMs = this.#now()
    if (nowMs < this.#untilMs || nowMs < this.#askedMs + MOST_ASKING_MS) return this.#refusal
    this.#askedMs = nowMs
    return undefined
  }

  /**
   * Remembers a refusal for lack of any place. One of many jobs, or another error, says nothing about the next request.
   */
  refused(error: unknown): void {
    if (!(error instanceof QueueFullError) || error.depth < error.capacity) {
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

/** How many responses with different jitter there are; more would cost more than they spread. */
const VARIANTS = 32

/** The responses to one remembered refusal, each built once: under overload they are most of the work. */
export class FullResponses {
  #error: QueueFullError | undefined
  #instance: string | undefined
  #responses: (HttpResponse | undefined)[] = []

  /** @param make builds one, with a random number drawn here */
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
