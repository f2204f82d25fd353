import type { FeedbackChange } from 'sluice'
import type { RedisAddress, Start } from '../fleet/protocol.ts'

/** The server's limit: a token bucket. */
export interface Limit {
  readonly perSecond: number
  readonly burst: number
}

/** Calls that reached the server within `ms`. */
export interface Arrivals {
  readonly ms: number
  readonly sent: number
  /** Of those, answered with 429. */
  readonly refused: number
  /** Of those, calls of jobs that are never accepted. */
  readonly bad: number
}

/** The methods of the server's process. */
export interface ServerMethods {
  /** @returns its URL */
  listen(): Promise<string>
  /** Sets the limit from now on; undefined: none. @returns the calls since the last call of this or `arrivals` */
  impose(limit: Limit | undefined): Promise<Arrivals>
  /** From now on, one in `oneIn` jobs is never accepted: 503, without a Retry-After. */
  spoil(oneIn: number): Promise<void>
  /** The calls since the last call of this or `impose`. */
  arrivals(): Promise<Arrivals>
  /** Jobs accepted so far, and how often a job was accepted that had been accepted before. */
  jobs(): Promise<{ readonly accepted: number; readonly twice: number }>
}

/** The clients of the server, which differ in how they treat a refusal. */
export const CONTENDERS = ['adapting', 'pausing', 'bullmq windowed', 'bullmq spaced', 'bottleneck'] as const
export type Contender = (typeof CONTENDERS)[number]

export interface SenderSpec {
  readonly contender: Contender
  /** The queue that is drained; for Bottleneck, which has none, the id that its processes share. */
  readonly queue: string
  readonly redis: RedisAddress
  readonly url: string
  readonly perSecond: number
  /** Per process; and the number of processes. */
  readonly concurrency: number
  readonly processes: number
  /** Whether to record the data for {@link SenderMethods.seen}. */
  readonly observed: boolean
}

/** The observations of one process. Times are µs on Redis's clock. */
export interface Seen {
  readonly starts: readonly Start[]
  /**
   * When the pauses that this process was the first to learn of were committed, in whole ms: the script's own time,
   * rounded down.
   */
  readonly pausesUs: readonly number[]
  readonly roundTrips: readonly RoundTrip[]
}

export interface RoundTrip {
  readonly atUs: number
  readonly ms: number
}

export interface Closed {
  /** Jobs that the process created itself, without a queue. */
  readonly given: number
  /** All feedback changes that its worker reported. */
  readonly changes: readonly FeedbackChange[]
}

/** The methods of a sender's process. */
export interface SenderMethods {
  /** Resolves when it is connected and waits for jobs. */
  open(spec: SenderSpec): Promise<void>
  /** What was recorded since the last call. */
  seen(): Promise<Seen>
  /** Lets running calls finish, then closes. */
  close(): Promise<Closed>
}
