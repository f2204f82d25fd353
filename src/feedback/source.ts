import type { Feedback } from './feedback.ts'

/** What a processor's call ended with. */
export type CallOutcome = { readonly threw: unknown } | { readonly returned: unknown }

/** When the answer came, and how long it took, by this machine's clock. */
export interface AnswerTime {
  /** ms since 1970 */
  readonly receivedAtMs: number
  readonly latencyMs: number
}

/** A rule acts from the n-th match within so long on, counted over the whole fleet. */
export interface Trigger {
  readonly count: number
  /** ms */
  readonly periodMs: number
}

/** One finding in an answer, and the rule that made it. */
export interface Found {
  readonly feedback: Feedback
  /**
   * What the call was made to, such as the origin and path of a URL or the domain of a recipient, where it is known: a
   * target that goes on being refused while others go well holds its own jobs and no others.
   */
  readonly target?: string
  readonly rule?: {
    /** Part of a Redis key. */
    readonly id: string
    readonly trigger?: Trigger
  }
}

/** How many calls may be open at once, found from how long they take. */
export interface ConcurrencyLimit {
  /** Whole, >= 1. */
  readonly limit: number
  /** A call ended well after so many ms; so many were open when it began, itself included. */
  sample(latencyMs: number, inflight: number): void
  /** A call was refused for want of room. */
  dropped(): void
}

/** Whatever can tell what an answer says: the profiles of `sluice/egress`, or code of the user's own. */
export interface FeedbackSource {
  /** For people and logs. */
  readonly name: string
  /** Must not throw, and must not look at more than it is given. Nothing found: the outcome is the processor's own. */
  listen(outcome: CallOutcome, time: AnswerTime): readonly Found[]
  /** For workers that adapt, where rising latency tells of too much at once. `most`: the worker's own concurrency. */
  concurrencyLimit?(most: number): ConcurrencyLimit
}
