import type { GroupsView, HeldMs, LimitValuesView, QueueStatus, RedisState } from 'sluice/inspect'
import type { Point } from './points.ts'

/** How often feedback changed a queue since this process first read it. */
export interface FeedbackCount {
  readonly source: string
  readonly kind: string
  readonly count: number
}

/** What is known of one queue at a scrape. */
export interface QueueReading {
  readonly status: QueueStatus
  /** As in the status, but these never decrease while the queue is the same. */
  readonly departedTotal: number
  readonly heldMs: HeldMs
  readonly feedback: readonly FeedbackCount[]
  /** Units of cost that no worker claimed in time, since this process first read the queue. */
  readonly lostUnits: number
  /** Windows of departures above the bound; undefined where departures are not recorded. */
  readonly boundViolations: number | undefined
  /** Those with labels of their own; undefined where none have. */
  readonly groups?: GroupsView | undefined
  /** The same of values of limits. */
  readonly limitValues?: LimitValuesView | undefined
}

/** What is known at a scrape. */
export interface FleetReading {
  /** Whether Redis answered in time; if not, the other fields are from the last answer. */
  readonly up: boolean
  /** Redis's time, ms; undefined where it never answered. */
  readonly atMs: number | undefined
  /** What Redis says of itself; undefined where that is not known. */
  readonly redis: RedisState | undefined
  /** How many queues of each label are left out because a node of the cluster did not answer. */
  readonly unreadQueues: ReadonlyMap<string, number>
  /** Queues with a label of their own. */
  readonly queues: readonly QueueReading[]
  /** The merged points of all other queues, by the names of the families; empty where there are no others. */
  readonly others: ReadonlyMap<string, readonly Point[]>
}
