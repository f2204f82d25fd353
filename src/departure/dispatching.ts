import type { DepartureReply, FetchedJob } from './reply.ts'

/** A worker that starts jobs at their slots, as its backend sees it. */
export interface Dispatching {
  readonly workerId: string
  readonly allowUnshaped: boolean
  /** µs */
  readonly horizonUs: number
  /** Jobs that it runs now. */
  readonly running: number
  /** Its monotonic clock, ms. */
  readonly nowMs: number
  nextToken(): string
  /**
   * Keeps renewing the lock of a job whose end is not stored yet.
   * @returns stops that; undefined if no such job runs here
   */
  keepLock(jobId: string): (() => void) | undefined
  /**
   * Jobs that may start now: BullMQ's own code hands them on.
   * @param nowUs Redis's time, if the reply has it
   * @param sentMs when the call was sent, by {@link nowMs}
   */
  onFetched(jobs: readonly FetchedJob[], nowUs: number | undefined, sentMs: number): void
  /**
   * The reply of a finish that also fetched, or of a fetch; the job follows through BullMQ's own code.
   * @param sentMs when the call was sent, by {@link nowMs}
   */
  onDeparture(reply: DepartureReply, sentMs: number): void
  /**
   * The reply of a batch of finishes, without the jobs that were handed on.
   * @param token of the call, which locks the first job of the reply
   * @param sentMs when the call was sent, by {@link nowMs}
   * @param handedOn whether any were handed on
   */
  onBatch(reply: DepartureReply, token: string, sentMs: number, handedOn: boolean): void
}
