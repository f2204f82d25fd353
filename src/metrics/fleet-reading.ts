import type { HeldMs, QueueStatus } from '../inspect/queue-status.ts'
import type { Point } from './points.ts'

/** How often feedback changed a queue since this process first looked. */
export interface FeedbackCount {
  readonly source: string
  readonly kind: string
  readonly count: number
}

/** What is known of one queue at a scrape. */
export interface QueueReading {
  readonly status: QueueStatus
  /** As in the status, but these never go back while the queue is the same. */
  readonly departedTotal: number
  readonly heldMs: HeldMs
  readonly feedback: readonly FeedbackCount[]
  /** Units of cost that no worker asked for in time, since this process first looked. */
  readonly lostUnits: number
  /** Windows of departures above the bound; undefined where they are not kept. */
  readonly boundViolations: number | undefined
}

/** What is known at a scrape. */
export interface FleetReading {
  /** Whether Redis answered in time; what else stands here is of the last answer. */
  readonly up: boolean
  /** Redis's time, ms; undefined where it never answered. */
  readonly atMs: number | undefined
  /** How far the replica that was read is behind; undefined where it is the master. */
  readonly replicationLagMs: number | undefined
  /** Queues with a label of their own. */
  readonly queues: readonly QueueReading[]
  /** The points of all other queues together, by the names of the families; none where there are no others. */
  readonly others: ReadonlyMap<string, readonly Point[]>
}
