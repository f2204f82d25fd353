/** What the gateway says of jobs and queues. Times are ISO 8601 in UTC. */

export type GatewayJobState =
  | 'waiting'
  | 'prioritized'
  | 'delayed'
  | 'waiting-children'
  | 'active'
  | 'completed'
  | 'failed'

/** A job that was let in. */
export interface EnqueuedJob {
  readonly id: string
  /** `removed`: an earlier call with the same key had brought it, and it is not there any more. */
  readonly state: GatewayJobState | 'removed'
  /** Jobs ahead of it, where that is known. */
  readonly position?: number
  /** When it will start, as far as is known. */
  readonly startsAt?: string
  /** What it returned, where `waitMs` was long enough. */
  readonly result?: unknown
  readonly failedReason?: string
  /** Whether an earlier call with the same key had brought it. */
  readonly replayed: boolean
}

export interface GatewayJob {
  readonly id: string
  readonly state: GatewayJobState
  /** Jobs ahead of it, where that is known. */
  readonly position?: number
  readonly startsAt?: string
  /** What a completed job returned, where the gateway tells. */
  readonly result?: unknown
  /** Why it failed, where the gateway tells. */
  readonly failedReason?: string
  /** When to ask again, ms; undefined: it has ended. */
  readonly pollAfterMs?: number
}

export interface GatewayMeter {
  readonly at: string
  /** Jobs that hold a place. */
  readonly depth: number
  readonly capacity?: number
  readonly waiting: number
  readonly delayed: number
  readonly active: number
  readonly refusedTotal: number
  /** In force now, such as '50/s'. */
  readonly rate?: string
  readonly burst?: number
  /** Units of cost that the bucket holds. */
  readonly level: number
  /** Why the rate is that. */
  readonly cause: string
  readonly nextDepartureAt?: string
  readonly paused: boolean
  readonly pausedUntil?: string
}
