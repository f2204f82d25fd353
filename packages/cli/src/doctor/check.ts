import type { Redis } from 'ioredis'
import type { Inspector, QueueStatus } from 'sluice/inspect'
import type { Role } from 'sluice/internal'
import type { Finding } from './finding.ts'

/** The input of the checks. */
export interface Examined {
  /** A client of the user that is checked. */
  readonly client: Redis
  readonly inspector: Inspector
  readonly prefix: string
  readonly limitsPrefix: string
  /** The role whose rights the user needs. */
  readonly role: Role
  /** The queues to check; some of them may not exist. */
  readonly queues: readonly string[]
  /** How long a worker may be connected without having reported, s. */
  readonly newWorkerS: number
  /** The clock of this machine, ms. */
  readonly nowMs: () => number
}

export interface ExaminedQueue extends Examined {
  readonly queue: string
  readonly status: QueueStatus
}

/** A check of the server, or of this process. Rejects only if Redis is unavailable. */
export type Check = (examined: Examined) => Promise<Finding[]>

/** A check of a queue. */
export type QueueCheck = (examined: ExaminedQueue) => Promise<Finding[]>
