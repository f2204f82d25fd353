import type { RedisAddress } from '../fleet/protocol.ts'

/**
 * Servers that admit jobs: the gateway; the same handler on BullMQ's `queue.add` with the same answer; and one that
 * answers with the id only.
 */
export const JOB_SERVERS = ['gateway', 'queue.add', 'queue.add, the id alone'] as const
/** Servers that limit a route of their framework; each has the same limit, by the same header. */
export const LIMITED_SERVERS = [
  'rateLimit on Fastify',
  '@fastify/rate-limit',
  'rateLimit on Express',
  'express-rate-limit',
] as const
export type JobServer = (typeof JOB_SERVERS)[number]
export type LimitedServer = (typeof LIMITED_SERVERS)[number]

/** The body of a posted job: a typical mail. */
export const JOB_BODY = JSON.stringify({
  data: { to: 'ada@example.com', subject: 'Welcome', text: 'x'.repeat(200) },
})

export interface ServerSpec {
  readonly server: JobServer | LimitedServer
  readonly redis: RedisAddress
  /** The queue of the jobs, and its capacity. */
  readonly queue: string
  readonly capacity: number
  /** Calls that a limited route allows per minute and key. */
  readonly perMinute: number
}

/** The methods of a server's process. */
export interface ServerMethods {
  /** @returns the URL to call */
  open(spec: ServerSpec): Promise<string>
  /** CPU that the process has used, µs. */
  cpuUs(): Promise<number>
  /** Heap in use after a full collection, bytes. */
  heapBytes(): Promise<number>
  close(): Promise<void>
}
