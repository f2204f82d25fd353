import type { Feedback } from './feedback.ts'

/** The outcome of a processor's call. */
export type CallOutcome = { readonly threw: unknown } | { readonly returned: unknown }

/** When the answer arrived, and how long it took, by this machine's clock. */
export interface AnswerTime {
  /** ms since 1970 */
  readonly receivedAtMs: number
  readonly latencyMs: number
}

/** A rule takes effect at the n-th match within this period, counted over the whole fleet. */
export interface Trigger {
  readonly count: number
  /** ms */
  readonly periodMs: number
}

/** One finding in an answer, and the rule behind it. */
export interface Found {
  readonly feedback: Feedback
  /**
   * Target of the call, if known, such as the origin and path of a URL or the domain of a recipient: a target that
   * keeps refusing while others succeed holds its own jobs and no others.
   */
  readonly target?: string
  readonly rule?: {
    /** Part of a Redis key. */
    readonly id: string
    readonly trigger?: Trigger
  }
}

/** Number of calls that may be open at once, derived from their latency. */
export interface ConcurrencyLimit {
  /** Whole, >= 1. */
  readonly limit: number
  /** A call succeeded after `latencyMs`; `inflight` calls were open when it began, including itself. */
  sample(latencyMs: number, inflight: number): void
  /** A call was refused because the downstream was at capacity. */
  dropped(): void
}

/** Interprets answers: a profile of `sluice/egress`, or user code. */
export interface FeedbackSource {
  /** For people and logs. */
  readonly name: string
  /** Must not throw, and must only read its arguments. No findings: the outcome is the processor's own. */
  listen(outcome: CallOutcome, time: AnswerTime): readonly Found[]
  /**
   * For workers that adapt, if rising latency indicates too many calls at once. `most`: the worker's own concurrency.
   */
  concurrencyLimit?(most: number): ConcurrencyLimit
}
