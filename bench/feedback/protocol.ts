import type { FeedbackChange } from 'sluice'
import type { RedisAddress, Start } from '../fleet/protocol.ts'

/** What a server lets in: a token bucket. */
export interface Limit {
  readonly perSecond: number
  readonly burst: number
}

/** What came to the server in so many ms. */
export interface Arrivals {
  readonly ms: number
  readonly sent: number
  /** Of those, answered with 429. */
  readonly refused: number
  /** Of those, calls of jobs that are never let in. */
  readonly bad: number
}

/** What the server can be asked to do. */
export interface ServerMethods {
  /** @returns its URL */
  listen(): Promise<string>
  /** From now on; undefined: lets everything in. @returns what came until now since the last time that it was asked */
  impose(limit: Limit | undefined): Promise<Arrivals>
  /** From now on one job in so many is never let in: 503, without a time. */
  spoil(oneIn: number): Promise<void>
  /** What came since the last time that it was asked. */
  arrivals(): Promise<Arrivals>
  /** Jobs that it let in since it listens, and how often it let in one that it had let in before. */
  jobs(): Promise<{ readonly accepted: number; readonly twice: number }>
}

/** Who calls the server, and what it does with a refusal. */
export const CONTENDERS = ['adapting', 'pausing', 'bullmq windowed', 'bullmq spaced', 'bottleneck'] as const
export type Contender = (typeof CONTENDERS)[number]

export interface SenderSpec {
  readonly contender: Contender
  /** The queue that is drained; for Bottleneck, which has none, the id that its processes share. */
  readonly queue: string
  readonly redis: RedisAddress
  readonly url: string
  readonly perSecond: number
  /** Of this process, and how many processes there are. */
  readonly concurrency: number
  readonly processes: number
  /** Whether to note what {@link SenderMethods.seen} tells. */
  readonly observed: boolean
}

/** What one process has seen. Times are µs on Redis's clock. */
export interface Seen {
  readonly starts: readonly Start[]
  /** When pauses that this process heard of first were committed, in whole ms: the script's own time, rounded down. */
  readonly pausesUs: readonly number[]
  readonly roundTrips: readonly RoundTrip[]
}

export interface RoundTrip {
  readonly atUs: number
  readonly ms: number
}

export interface Closed {
  /** Jobs that it was given by itself and not by a queue. */
  readonly given: number
  /** What its worker said of feedback, all the time. */
  readonly changes: readonly FeedbackChange[]
}

/** What a process that calls the server can be asked to do. */
export interface SenderMethods {
  /** Resolves when it is connected, and waits for jobs. */
  open(spec: SenderSpec): Promise<void>
  /** Since the last time that it was asked. */
  seen(): Promise<Seen>
  /** Ends what it has begun. */
  close(): Promise<Closed>
}
