import type {
  GroupRow,
  GroupsView,
  HeldMs,
  LimitValueRow,
  LimitValuesView,
  QueueStatus,
  RedisState,
} from 'sluice/inspect'
import { HOLD_CAUSES, keysText, mapCauses } from 'sluice/internal'
import { FEEDBACK_KINDS, FEEDBACK_SOURCES } from './feedback-labels.ts'
import type { FleetReading, QueueReading } from './fleet-reading.ts'
import { histogramPoints, type Merge, type Point } from './points.ts'
import { OTHER } from './queue-labels.ts'
import { unitsPerSecond, usedConcurrency, usedRate } from './utilisation.ts'

/** A metric, independent of what its numbers are read from. */
export interface Family<From> {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly unit: string
  readonly help: string
  /** Its labels and the possible values of each, besides `queue`. */
  readonly labels: Readonly<Record<string, readonly string[]>>
  /** For queues that share the label `other`. Default: `sum`. */
  readonly merge?: Merge
  readonly read: (from: From) => readonly Point[]
}

type Row<From> = readonly [
  unit: string,
  help: string,
  /** A number without labels of its own, or points; nothing where it is unknown. */
  read: (from: From) => number | undefined | readonly Point[],
  more?: Partial<Pick<Family<From>, 'type' | 'labels' | 'merge'>>,
]

/** @param rows by the names of the metrics; those of counters end in `_total`, and others are gauges unless it says so */
function familiesOf<From>(rows: Readonly<Record<string, Row<From>>>): readonly Family<From>[] {
  return Object.entries(rows).map(([name, [unit, help, read, more]]) => ({
    ...{ name, type: name.endsWith('_total') ? 'counter' : 'gauge', unit, help, labels: {} },
    read: (from) => {
      const found = read(from)
      return typeof found === 'number' ? [{ labels: {}, value: found }] : (found ?? [])
    },
    ...more,
  }))
}

const WORKER_STATES = ['running', 'paused', 'overloaded'] as const
const REFUSAL_CAUSES = ['memory', 'disk', 'replicas'] as const

/** Metrics that are exported once, whatever the number of queues. */
export const FLEET_FAMILIES = familiesOf<FleetReading>({
  sluice_up: ['1 or 0', 'Whether Redis answered in time. If not, all other numbers are stale.', ({ up }) => Number(up)],
  sluice_read_timestamp_seconds: [
    'seconds since 1970',
    "When the numbers were read, on Redis's clock.",
    ({ atMs }) => (atMs === undefined ? undefined : atMs / 1000),
  ],
  sluice_replication_lag_seconds: [
    'seconds',
    'How far the replica in use lags behind; absent for a master.',
    ({ redis }) => (redis?.lagMs === undefined ? undefined : redis.lagMs / 1000),
  ],
  sluice_redis_memory_used_bytes: [
    'bytes',
    'Memory that counts towards `maxmemory`, on the fullest master.',
    ({ redis }) => redis?.memory?.usedBytes,
  ],
  sluice_redis_memory_max_bytes: [
    'bytes',
    'The limit that `maxmemory` sets; absent if there is none.',
    ({ redis }) => redis?.memory?.maxBytes,
  ],
  sluice_redis_refuses_writes: [
    '1 or 0',
    'Whether Redis refuses writes, and why; absent for a replica.',
    ({ redis }) => (redis?.role === 'master' ? refusals(redis) : []),
    { labels: { cause: REFUSAL_CAUSES } },
  ],
  sluice_unread_queues: [
    'queues',
    'Queues left out because a cluster node does not answer.',
    ({ unreadQueues }) => [...unreadQueues].map(([queue, value]) => ({ labels: { queue }, value })),
    { labels: { queue: [] } },
  ],
})

/** The metrics of each queue. */
export const QUEUE_FAMILIES = familiesOf<QueueReading>({
  // The flow through a queue and its durations: everything that only grows.
  sluice_accepted_total: [
    'jobs',
    'Accepted jobs; adding an id that already exists counts too.',
    ({ status }) => status.acceptedTotal,
  ],
  sluice_released_total: ['jobs', 'Jobs that departed.', ({ departedTotal }) => departedTotal],
  sluice_refused_total: [
    'jobs',
    'Refused jobs: no place was free, or they could not have started in time.',
    ({ status }) =>
      each('reason', { full: status.refusedTotal - status.refusedLateTotal, late: status.refusedLateTotal }),
    { labels: { reason: ['full', 'late'] } },
  ],
  sluice_dropped_total: [
    'jobs',
    'Waiting jobs dropped in favour of new ones (`overflow`).',
    ({ status }) => status.droppedTotal,
  ],
  sluice_unconfirmed_total: [
    'jobs',
    'Accepted jobs that too few replicas confirmed in time.',
    ({ status }) => status.unconfirmedTotal,
  ],
  sluice_completed_total: ['jobs', 'Jobs that completed.', ({ status }) => status.completedTotal],
  sluice_failed_total: ['jobs', 'Jobs that failed permanently.', ({ status }) => status.failedTotal],
  sluice_failed_attempts_total: [
    'attempts',
    'Failed attempts, whether the job was retried or not.',
    ({ status }) => status.failedAttemptsTotal,
  ],
  sluice_bypassed_total: [
    'jobs',
    'Jobs that a program without Sluice started, bypassing the meter.',
    ({ status }) => status.bypassedTotal,
  ],
  sluice_shadow_refused_total: [
    'jobs',
    'Jobs that shadow mode would have refused.',
    ({ status }) => status.shadowRefusedTotal,
  ],
  sluice_shadow_delayed_total: [
    'jobs',
    'Jobs that shadow mode would have held.',
    ({ status }) => status.shadowDelayedTotal,
  ],
  sluice_slots_refunded_total: [
    'slots',
    'Slots that workers gave back and that were granted again.',
    ({ status }) => status.refundedTotal,
  ],
  sluice_slots_forfeited_total: [
    'slots',
    'Slots that workers gave back too late to grant again.',
    (from) => from.status.forfeitedTotal,
  ],
  sluice_slots_lost_total: [
    'units of cost',
    'Units of cost that could have departed, had a worker asked. Counted from the first scrape.',
    ({ lostUnits }) => lostUnits,
  ],
  sluice_wait_seconds: [
    'seconds',
    'How long jobs, once ready, waited for their first attempt.',
    ({ status: { starts } }) => histogramPoints(inSeconds(starts.wait), starts.waitSumMs / 1000),
    { type: 'histogram' },
  ],
  sluice_waited_seconds_total: [
    'seconds',
    'The waits in `sluice_wait_seconds`, by what held the jobs.',
    (from) => each('cause', secondsOf(from.status.starts.waitedMs)),
    { labels: { cause: HOLD_CAUSES } },
  ],
  sluice_lateness_seconds: [
    'seconds',
    'How long after its slot each job started.',
    ({ status: { starts } }) => histogramPoints(inSeconds(starts.lateness), starts.latenessSumMs / 1000),
    { type: 'histogram' },
  ],
  sluice_held_seconds_total: [
    'seconds',
    'How long each cause held the head of the queue.',
    (from) => each('cause', secondsOf(from.heldMs)),
    { labels: { cause: HOLD_CAUSES } },
  ],
  sluice_paused_seconds_total: ['seconds', 'How long a pause held waiting jobs.', ({ heldMs }) => heldMs.pause / 1000],
  sluice_feedback_changes_total: [
    'changes',
    'Changes that feedback made to rate, pause or concurrency. Counted from the first scrape.',
    ({ feedback }) => feedback.map(({ source, kind, count }) => ({ labels: { source, kind }, value: count })),
    { labels: { source: FEEDBACK_SOURCES, kind: FEEDBACK_KINDS } },
  ],
  sluice_conformance_violations_total: [
    'jobs, windows',
    'Must stay 0. Jobs that started before their slots and, with `shape.audit`, windows above the rate.',
    ({ status, boundViolations }) => each('check', { early: status.starts.early, bound: boundViolations }),
    { labels: { check: ['early', 'bound'] } },
  ],
  // The current state of a queue.
  sluice_backlog_jobs: ['jobs', 'Jobs that hold a place.', ({ status }) => status.depth],
  sluice_capacity_jobs: ['jobs', 'Jobs that may hold a place; absent if unbounded.', ({ status }) => status.capacity],
  sluice_jobs: [
    'jobs',
    'Jobs by their state.',
    ({ status }) =>
      each('state', {
        waiting: status.waiting,
        delayed: status.delayed,
        'waiting-children': status.waitingChildren,
        active: status.active,
      }),
    { labels: { state: ['waiting', 'delayed', 'waiting-children', 'active'] } },
  ],
  sluice_oldest_age_seconds: [
    'seconds',
    'How long the job that became ready first has been ready; 0 if none waits.',
    ({ status }) => ageSeconds(status.oldestAgeMs, status),
    { merge: 'max' },
  ],
  sluice_head_age_seconds: [
    'seconds',
    'How long the job that leaves next has been ready; 0 if none waits.',
    ({ status }) => ageSeconds(status.headAgeMs, status),
    { merge: 'max' },
  ],
  sluice_concurrency_jobs: [
    'jobs',
    'Jobs that may run at once: as set, and as lowered by feedback; absent if unbounded.',
    ({ status: { concurrency } }) => each('limit', { set: concurrency?.set, 'in-force': concurrency?.inForce }),
    { labels: { limit: ['set', 'in-force'] } },
  ],
  sluice_rate_units_per_second: [
    'units of cost a second',
    'The current rate; absent if there is none.',
    ({ status }) => unitsPerSecond(status),
  ],
  sluice_bucket_level_units: [
    'units of cost',
    'The level of the bucket, full when equal to the burst.',
    ({ status }) => status.level,
  ],
  sluice_bucket_burst_units: [
    'units of cost',
    'The level at which the bucket is full.',
    ({ status }) => status.shape?.burst,
  ],
  sluice_utilisation_ratio: [
    '0 to 1',
    'How much of the concurrency and of the rate is in use; absent without workers.',
    ({ status }) => each('resource', { concurrency: usedConcurrency(status), rate: usedRate(status) }),
    { labels: { resource: ['concurrency', 'rate'] }, merge: 'none' },
  ],
  sluice_paused: [
    '1 or 0',
    'Whether the queue is paused, by BullMQ (`queue`) or by the meter.',
    ({ status }) => each('pause', { queue: Number(status.paused), meter: Number(status.pausedUntil !== undefined) }),
    { labels: { pause: ['queue', 'meter'] }, merge: 'max' },
  ],
  sluice_workers: [
    'workers',
    'Live workers, by state.',
    ({ status }) =>
      WORKER_STATES.map((state) => ({
        labels: { state },
        value: status.workers.filter((worker) => worker.state === state).length,
      })),
    { labels: { state: WORKER_STATES } },
  ],
  sluice_clock_error_seconds: [
    'seconds',
    "The largest error of a worker's clock: jobs may start this much later than the worker knows.",
    ({ status }) => worstClockError(status),
    { merge: 'max' },
  ],
  // The groups of a queue. Those with a label of their own are the oldest and the largest: the others are summed.
  sluice_groups: [
    'groups',
    'Groups with waiting jobs: in line, or held by a rate or limit, by their concurrency or by a pause.',
    ({ status }) => each('state', { ...status.groups }),
    { labels: { state: ['waiting', 'limited', 'maxed', 'paused'] } },
  ],
  sluice_group_waiting_jobs: [
    'jobs',
    'Waiting jobs of each group with a label.',
    ({ groups }) => (groups ? waitingPoints(groups) : []),
    { labels: { group: [] }, merge: 'none' },
  ],
  sluice_group_head_age_seconds: [
    'seconds',
    'How long the next job of each of these groups has been ready.',
    ({ groups }) =>
      groups ? rowsOf(groups).map(({ id, headAgeMs = 0 }) => ({ labels: { group: id }, value: headAgeMs / 1000 })) : [],
    { labels: { group: [] }, merge: 'none' },
  ],
  // Values of limits by keys. Those with a label of their own are the ones that most lanes wait for, and of which most jobs run.
  sluice_key_waiting_lanes: [
    'lanes',
    'Lanes that wait for each value with a label.',
    ({ limitValues }) =>
      pointsOf(limitValues, ({ waitingLanes }) => waitingLanes || undefined, limitValues?.otherLanes),
    { labels: { limit: [], key: [] }, merge: 'none' },
  ],
  sluice_key_places: [
    'places',
    'Places of `concurrency` limits that each of these values uses.',
    ({ status: { shape }, limitValues }) => {
      const limits = (shape?.limits ?? []).filter(
        ({ by, pool, algorithm }) => (by || pool) && algorithm === 'concurrency',
      )
      if (limits.length === 0) return []
      const names = limits.map(({ name }) => name)
      const held = ({ limit, used }: LimitValueRow) => (names.includes(limit) ? used : undefined)
      return pointsOf(limitValues, held, limitValues?.otherPlaces)
    },
    { labels: { limit: [], key: [] }, merge: 'none' },
  ],
  sluice_key_used_ratio: [
    '0 to 1, or above',
    'The share of its places, window or burst that each of these values uses; above 1 while it owes units.',
    ({ limitValues }) =>
      pointsOf(limitValues, ({ used, most }) => (used === undefined || most === undefined ? undefined : used / most)),
    { labels: { limit: [], key: [] }, merge: 'none' },
  ],
})

/** A number for each value of a label. */
function each(label: string, values: Readonly<Record<string, number | undefined>>): Point[] {
  // A loop, since it is called a dozen times for each of very many queues.
  const points: Point[] = []
  for (const name in values) {
    const value = values[name]
    if (value !== undefined) points.push({ labels: { [label]: name }, value })
  }
  return points
}

function refusals({ refusesWrites }: RedisState) {
  return REFUSAL_CAUSES.map((cause) => ({ labels: { cause }, value: Number(cause === refusesWrites) }))
}

function inSeconds(buckets: readonly (readonly [leMs: number, count: number])[]): [le: number, count: number][] {
  return buckets.map(([leMs, count]) => [leMs / 1000, count])
}

function secondsOf(ms: HeldMs): Record<string, number> {
  return mapCauses((cause) => ms[cause] / 1000)
}

function worstClockError({ workers }: QueueStatus): number | undefined {
  const known = workers.flatMap(({ clockErrorMs }) => clockErrorMs ?? [])
  return known.length === 0 ? undefined : Math.max(...known) / 1000
}

/** Nothing where jobs wait, but the one whose age was asked for had gone when it was looked at: 0 would be wrong. */
function ageSeconds(ageMs: number | undefined, { waiting }: QueueStatus) {
  if (ageMs === undefined) return waiting > 0 ? undefined : 0
  return ageMs / 1000
}

/** A group that is named as the rest is among it. */
function rowsOf({ oldest, largest }: GroupsView): GroupRow[] {
  const rows = new Map([...oldest, ...largest].map((row) => [row.id, row]))
  rows.delete(OTHER)
  return [...rows.values()]
}

function waitingPoints(groups: GroupsView) {
  const rows = rowsOf(groups)
  const rest = groups.waiting - rows.reduce((sum, { waiting }) => sum + waiting, 0)
  const points = rows.map(({ id, waiting }) => ({ labels: { group: id }, value: waiting }))
  return [...points, { labels: { group: OTHER }, value: Math.max(0, rest) }]
}

/** @param rest of the values without a row; undefined where they have no sum */
function pointsOf(
  limitValues: LimitValuesView | undefined,
  numberOf: (row: LimitValueRow) => number | undefined,
  rest?: number,
): Point[] {
  const points = (limitValues?.rows ?? []).flatMap((row) => {
    const value = numberOf(row)
    return value === undefined ? [] : [{ labels: { limit: row.limit, key: keysText(row.keys) }, value }]
  })
  return rest === undefined ? points : [...points, { labels: { limit: OTHER, key: OTHER }, value: rest }]
}
