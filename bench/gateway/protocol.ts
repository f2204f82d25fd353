import type { RedisAddress } from '../fleet/protocol.ts'

/**
 * Doors that let jobs in: the gateway; the same handler on `queue.add` of BullMQ, which gives the same answer; and one that
 * answers with nothing but the id.
 */
export const JOB_DOORS = ['gateway', 'queue.add', 'queue.add, the id alone'] as const
/** Doors that limit a route of their framework; each has the same limit, by the same header. */
export const LIMITED_DOORS = [
  'rateLimit on Fastify',
  '@fastify/rate-limit',
  'rateLimit on Express',
  'express-rate-limit',
] as const
export type JobDoor = (typeof JOB_DOORS)[number]
export type LimitedDoor = (typeof LIMITED_DOORS)[number]

/** What is posted to doors that let jobs in: as an order for a mail would be. */
export const JOB_BODY = JSON.stringify({
  data: { to: 'ada@example.com', subject: 'Welcome', text: 'x'.repeat(200) },
})

export interface DoorSpec {
  readonly door: JobDoor | LimitedDoor
  readonly redis: RedisAddress
  /** The queue that jobs go to, and its capacity. */
  readonly queue: string
  readonly capacity: number
  /** Calls that a limited route lets in per minute and key. */
  readonly perMinute: number
}

/** What the process of a door can be asked to do. */
export interface DoorMethods {
  /** @returns the URL to call */
  open(spec: DoorSpec): Promise<string>
  /** CPU that the process has used, µs. */
  cpuUs(): Promise<number>
  /** What is in use after a full collection, bytes. */
  heapBytes(): Promise<number>
  close(): Promise<void>
}
