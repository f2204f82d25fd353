import type { HeldMs } from 'sluice/inspect'
import { HOLD_CAUSES, mapCauses } from 'sluice/internal'
import { each, type Family, one } from './families.ts'
import { FEEDBACK_KINDS, FEEDBACK_SOURCES } from './feedback-labels.ts'
import type { QueueReading } from './fleet-reading.ts'
import { histogramPoints } from './points.ts'

/** The flow through a queue and its durations: everything that only grows. */
export const TRAFFIC_FAMILIES: readonly Family<QueueReading>[] = [
  counter(
    'sluice_accepted_total',
    'jobs',
    'Accepted jobs; adding an id that already exists counts too.',
    ({ status }) => one(status.acceptedTotal),
  ),
  counter('sluice_released_total', 'jobs', 'Jobs that departed.', ({ departedTotal }) => one(departedTotal)),
  {
    ...counter(
      'sluice_refused_total',
      'jobs',
      'Refused jobs: no place was free, or they could not have started in time.',
      ({ status }) =>
        each('reason', { full: status.refusedTotal - status.refusedLateTotal, late: status.refusedLateTotal }),
    ),
    labels: { reason: ['full', 'late'] },
  },
  counter('sluice_dropped_total', 'jobs', 'Waiting jobs dropped in favour of new ones (`overflow`).', ({ status }) =>
    one(status.droppedTotal),
  ),
  counter('sluice_unconfirmed_total', 'jobs', 'Accepted jobs that too few replicas confirmed in time.', ({ status }) =>
    one(status.unconfirmedTotal),
  ),
  counter('sluice_completed_total', 'jobs', 'Jobs that completed.', ({ status }) => one(status.completedTotal)),
  counter('sluice_failed_total', 'jobs', 'Jobs that failed for good.', ({ status }) => one(status.failedTotal)),
  counter(
    'sluice_failed_attempts_total',
    'attempts',
    'Failed attempts, whether the job was retried or not.',
    ({ status }) => one(status.failedAttemptsTotal),
  ),
  counter('sluice_bypassed_total', 'jobs', 'Jobs that a program without Sluice started past the meter.', ({ status }) =>
    one(status.bypassedTotal),
  ),
  counter('sluice_shadow_refused_total', 'jobs', 'Jobs that shadow mode would have refused.', ({ status }) =>
    one(status.shadowRefusedTotal),
  ),
  counter('sluice_shadow_delayed_total', 'jobs', 'Jobs that shadow mode would have held.', ({ status }) =>
    one(status.shadowDelayedTotal),
  ),
  counter(
    'sluice_slots_refunded_total',
    'slots',
    'Slots that workers gave back and that were granted again.',
    ({ status }) => one(status.refundedTotal),
  ),
  counter('sluice_slots_forfeited_total', 'slots', 'Slots that workers gave back too late to grant again.', (from) =>
    one(from.status.forfeitedTotal),
  ),
  counter(
    'sluice_slots_lost_total',
    'units of cost',
    'Units of cost that could have departed, had a worker asked. Counted from the first scrape.',
    ({ lostUnits }) => one(lostUnits),
  ),
  {
    name: 'sluice_wait_seconds',
    type: 'histogram',
    unit: 'seconds',
    help: 'How long jobs, once ready, waited for their first attempt.',
    labels: {},
    read: ({ status: { starts } }) => histogramPoints(inSeconds(starts.wait), starts.waitSumMs / 1000),
  },
  {
    ...counter(
      'sluice_waited_seconds_total',
      'seconds',
      'The waits in `sluice_wait_seconds`, by what held the jobs.',
      (from) => each('cause', secondsOf(from.status.starts.waitedMs)),
    ),
    labels: { cause: HOLD_CAUSES },
  },
  {
    name: 'sluice_lateness_seconds',
    type: 'histogram',
    unit: 'seconds',
    help: 'How long after their slots jobs started.',
    labels: {},
    read: ({ status: { starts } }) => histogramPoints(inSeconds(starts.lateness), starts.latenessSumMs / 1000),
  },
  {
    ...counter('sluice_held_seconds_total', 'seconds', 'How long each cause held the head of the queue.', (from) =>
      each('cause', secondsOf(from.heldMs)),
    ),
    labels: { cause: HOLD_CAUSES },
  },
  counter('sluice_paused_seconds_total', 'seconds', 'How long a pause held waiting jobs.', ({ heldMs }) =>
    one(heldMs.pause / 1000),
  ),
  {
    ...counter(
      'sluice_feedback_changes_total',
      'changes',
      'Changes that feedback made to rate, pause or concurrency. Counted from the first scrape.',
      ({ feedback }) => feedback.map(({ source, kind, count }) => ({ labels: { source, kind }, value: count })),
    ),
    labels: { source: FEEDBACK_SOURCES, kind: FEEDBACK_KINDS },
  },
  {
    ...counter(
      'sluice_conformance_violations_total',
      'jobs, windows',
      'Must stay 0. Jobs that started before their slots and, with `shape.audit`, windows above the rate.',
      ({ status, boundViolations }) => each('check', { early: status.starts.early, bound: boundViolations }),
    ),
    labels: { check: ['early', 'bound'] },
  },
]

function counter(name: string, unit: string, help: string, read: Family<QueueReading>['read']): Family<QueueReading> {
  return { name, type: 'counter', unit, help, labels: {}, read }
}

function inSeconds(buckets: readonly (readonly [leMs: number, count: number])[]): [le: number, count: number][] {
  return buckets.map(([leMs, count]) => [leMs / 1000, count])
}

function secondsOf(ms: HeldMs): Record<string, number> {
  return mapCauses((cause) => ms[cause] / 1000)
}
