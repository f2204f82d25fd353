import type { QueueStatus } from 'sluice/inspect'
import { each, type Family, one } from './families.ts'
import type { QueueReading } from './fleet-reading.ts'
import { unitsPerSecond, usedConcurrency, usedRate } from './utilisation.ts'

const WORKER_STATES = ['running', 'paused', 'overloaded'] as const
const JOB_STATES = ['waiting', 'delayed', 'waiting-children', 'active']

/** The current state of a queue. */
export const STATE_FAMILIES: readonly Family<QueueReading>[] = [
  gauge('sluice_backlog_jobs', 'jobs', 'Jobs that hold a place.', ({ status }) => one(status.depth)),
  gauge('sluice_capacity_jobs', 'jobs', 'Jobs that may hold a place; absent if unbounded.', ({ status }) =>
    one(status.capacity),
  ),
  {
    ...gauge('sluice_jobs', 'jobs', 'Jobs by their state.', ({ status }) =>
      each('state', {
        waiting: status.waiting,
        delayed: status.delayed,
        'waiting-children': status.waitingChildren,
        active: status.active,
      }),
    ),
    labels: { state: JOB_STATES },
  },
  {
    ...gauge(
      'sluice_oldest_age_seconds',
      'seconds',
      'How long the job that became ready first has been ready; 0 if none waits.',
      ({ status }) => secondsOf(status.oldestAgeMs, status),
    ),
    merge: 'max',
  },
  {
    ...gauge(
      'sluice_head_age_seconds',
      'seconds',
      'How long the job that leaves next has been ready; 0 if none waits.',
      ({ status }) => secondsOf(status.headAgeMs, status),
    ),
    merge: 'max',
  },
  {
    ...gauge(
      'sluice_concurrency_jobs',
      'jobs',
      'Jobs that may run at once: as set, and as lowered by feedback; absent if unbounded.',
      ({ status: { concurrency } }) => each('limit', { set: concurrency?.set, 'in-force': concurrency?.inForce }),
    ),
    labels: { limit: ['set', 'in-force'] },
  },
  gauge(
    'sluice_rate_units_per_second',
    'units of cost a second',
    'The current rate; absent if there is none.',
    ({ status }) => one(unitsPerSecond(status)),
  ),
  gauge(
    'sluice_bucket_level_units',
    'units of cost',
    'The level of the bucket; it is full at the burst.',
    ({ status }) => one(status.level),
  ),
  gauge('sluice_bucket_burst_units', 'units of cost', 'The level at which the bucket is full.', ({ status }) =>
    one(status.shape?.burst),
  ),
  {
    ...gauge(
      'sluice_utilisation_ratio',
      '0 to 1',
      'How much of the concurrency and of the rate is in use; absent without workers.',
      ({ status }) => each('resource', { concurrency: usedConcurrency(status), rate: usedRate(status) }),
    ),
    labels: { resource: ['concurrency', 'rate'] },
    merge: 'none',
  },
  {
    ...gauge(
      'sluice_paused',
      '1 or 0',
      'Whether the queue is paused, by BullMQ (`queue`) or by the meter.',
      ({ status }) => each('pause', { queue: Number(status.paused), meter: Number(status.pausedUntil !== undefined) }),
    ),
    labels: { pause: ['queue', 'meter'] },
    merge: 'max',
  },
  {
    ...gauge('sluice_workers', 'workers', 'Live workers, by state.', ({ status }) =>
      WORKER_STATES.map((state) => ({
        labels: { state },
        value: status.workers.filter((worker) => worker.state === state).length,
      })),
    ),
    labels: { state: WORKER_STATES },
  },
  {
    ...gauge(
      'sluice_clock_error_seconds',
      'seconds',
      "The largest error of a worker's clock: jobs may start this much later than the worker knows.",
      ({ status }) => one(worstClockError(status)),
    ),
    merge: 'max',
  },
]

function worstClockError({ workers }: QueueStatus): number | undefined {
  const known = workers.flatMap(({ clockErrorMs }) => clockErrorMs ?? [])
  return known.length === 0 ? undefined : Math.max(...known) / 1000
}

/** Nothing where jobs wait, but the one whose age was asked for had gone when it was looked at: 0 would be wrong. */
function secondsOf(ageMs: number | undefined, { waiting }: QueueStatus) {
  return one(ageMs === undefined ? (waiting > 0 ? undefined : 0) : ageMs / 1000)
}

function gauge(name: string, unit: string, help: string, read: Family<QueueReading>['read']): Family<QueueReading> {
  return { name, type: 'gauge', unit, help, labels: {}, read }
}
