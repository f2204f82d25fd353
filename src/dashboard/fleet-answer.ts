import type { Identity } from '../http/door.ts'
import type { QueueStatus, Replication } from '../inspect/index.ts'
import type { Fleet } from './fleet-reader.ts'
import { maySee } from './visible.ts'

/** What is told with every look at the fleet. */
export interface FleetFacts {
  readonly title: string
  readonly allowActions: boolean
  readonly showData: boolean
}

/** The answer about the fleet, before it becomes JSON. */
export interface FleetAnswer extends FleetFacts {
  readonly at: Date
  readonly read: Replication
  readonly queues: readonly QueueStatus[]
}

/** The queues that somebody may see. */
export function fleetAnswer(
  { at, read, queues }: Fleet,
  facts: FleetFacts,
  identity: Identity | undefined,
): FleetAnswer {
  return { at, ...facts, read, queues: queues.filter(({ name }) => maySee(identity, name)) }
}
