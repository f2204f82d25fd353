import { type Family, one } from './families.ts'
import type { FleetReading } from './fleet-reading.ts'

/** Metrics that are exported once, whatever the number of queues. */
export const FLEET_FAMILIES: readonly Family<FleetReading>[] = [
  {
    name: 'sluice_up',
    type: 'gauge',
    unit: '1 or 0',
    help: 'Whether Redis answered this scrape in time; where it did not, all other numbers are those of the last answer.',
    labels: {},
    read: ({ up }) => one(Number(up)),
  },
  {
    name: 'sluice_read_timestamp_seconds',
    type: 'gauge',
    unit: 'seconds since 1970',
    help: 'When the numbers were read, on the clock of Redis.',
    labels: {},
    read: ({ atMs }) => one(atMs === undefined ? undefined : atMs / 1000),
  },
  {
    name: 'sluice_replication_lag_seconds',
    type: 'gauge',
    unit: 'seconds',
    help: 'How far the replica that is read is behind; absent where the master is read.',
    labels: {},
    read: ({ replicationLagMs }) => one(replicationLagMs === undefined ? undefined : replicationLagMs / 1000),
  },
]
