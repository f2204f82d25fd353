import type { Redis } from 'ioredis'
import type { Role } from '../acl/roles.ts'
import type { Inspector } from '../inspect/inspector.ts'
import type { QueueStatus } from '../inspect/queue-status.ts'
import type { Finding } from './finding.ts'

/** What the checks look at. */
export interface Examined {
  /** A client with the rights of the user that is examined. */
  readonly client: Redis
  readonly inspector: Inspector
  /** The prefix of the queues. */
  readonly prefix: string
  /** The prefix of limits. */
  readonly limitsPrefix: string
  /** What the user is for: whose rights it has to have. */
  readonly role: Role
  /** The queues that are examined; one that does not exist may be among them. */
  readonly queues: readonly string[]
  /** How long a worker may be connected without having reported itself, s. */
  readonly newWorkerS: number
  /** The clock of this machine, ms. */
  readonly nowMs: () => number
}

/** A queue that is examined. */
export interface ExaminedQueue extends Examined {
  readonly queue: string
  readonly status: QueueStatus
}

/** A check of the server, or of this process. Rejects only where Redis is gone. */
export type Check = (examined: Examined) => Promise<Finding[]>

/** A check of a queue. */
export type QueueCheck = (examined: ExaminedQueue) => Promise<Finding[]>
