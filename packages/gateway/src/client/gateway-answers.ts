/** The gateway's answers about jobs and queues. Times are ISO 8601 in UTC. */

export type GatewayJobState =
  | 'waiting'
  | 'prioritized'
  | 'delayed'
  | 'waiting-children'
  | 'active'
  | 'completed'
  | 'failed'

interface KnownJob {
  readonly id: string
  /** Jobs ahead of it, if known. */
  readonly position?: number
  /** When it will start, as far as is known. */
  readonly startsAt?: string
  /** What a completed job returned, if the gateway reports it. */
  readonly result?: unknown
  /** Why it failed, if the gateway reports it. */
  readonly failedReason?: string
}

/** An admitted job; with its result if `waitMs` was long enough. */
export interface EnqueuedJob extends KnownJob {
  /** `removed`: an earlier call with the same key had added it, and it no longer exists. */
  readonly state: GatewayJobState | 'removed'
  /** Whether an earlier call with the same key had added it. */
  readonly replayed: boolean
}

export interface GatewayJob extends KnownJob {
  readonly state: GatewayJobState
  /** When to ask again, ms; undefined if it has ended. */
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
  /** The current rate, such as '50/s'. */
  readonly rate?: string
  readonly burst?: number
  /** Units of cost that the bucket holds. */
  readonly level: number
  /** The reason for the current rate. */
  readonly cause: string
  readonly nextDepartureAt?: string
  readonly paused: boolean
  readonly pausedUntil?: string
}
