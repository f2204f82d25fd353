import { mapCauses } from '../departure/departure.ts'
import { dateOfUs, type GroupRowView, groupStateOf, type StoredClosed } from '../queue/groups.ts'
import { ageMs, type MeterState, type MeterView, meterStateOf } from '../queue/meter-state.ts'
import { DEAD_FIELD, LATENESS_BOUNDS_US, WAIT_BOUNDS_MS } from '../reports/start-counts.ts'
import { decodeGroups } from '../shape/groups.ts'
import { StoredShape } from '../shape/stored.ts'
import { NEARLY_FULL } from './conditions.ts'
import { closedOf, heldAt } from './held.ts'

import type { PartAnswer } from './parts.ts'
import type { Hold, HoldCause, QueueFacts, StartTotals } from './queue-status.ts'
import { bypassOf, failingOf, workerRows } from './worker-rows.ts'

type Fields = Readonly<Record<string, string>>

/** The result of `lua/views/queue.lua` for a queue. Times are µs as text, unless their names say otherwise. */
export interface QueueView extends MeterView {
  readonly exists: boolean
  readonly prioritized: number
  readonly completed: number
  readonly failed: number
  /** The hashes that workers fill. */
  readonly starts: Fields
  readonly workers: Fields
  readonly accepted?: number
  /** For how long each cause has held a head so far. */
  readonly heldUs: Readonly<Record<HoldCause, string>>
  readonly oldestReadyMs?: number
  /** When the first delayed job is due, if none waits. */
  readonly dueMs?: number
  readonly grouped?: number
  readonly largestGroup?: { readonly id: string; readonly waiting: number }
  /** When the rate, the limits and the pause let the job at the head depart, whatever its groups do. */
  readonly queueSlot?: string
  /** If all groups are held, the first slot of one, '' if unknown; and the group that goes first. */
  readonly groupsSlot?: string
  readonly holder?: GroupRowView
  /** The limit by keys that holds the lane that goes first, and the values of its keys. */
  readonly heldLane?: Required<Pick<Hold, 'limit' | 'keys'>> & { readonly closed?: StoredClosed }
  /** Of its limits without keys, those whose schedules let nothing pass now, by name. */
  readonly closedLimits?: Readonly<Record<string, StoredClosed>>
}

/** The arguments of a view of a queue. */
export const QUEUE_ASKED = { nearlyFull: NEARLY_FULL }

/** The facts in an answer, undefined if there is no such queue. */
export function factsIn(name: string, answer: PartAnswer<QueueView | undefined>): PartAnswer<QueueFacts | undefined> {
  return 'error' in answer ? answer : { value: answer.value && factsOf(name, answer.value) }
}

/** @returns undefined where there is no such queue */
export function factsOf(name: string, view: QueueView): QueueFacts | undefined {
  if (!view.exists) return undefined
  const nowUs = Number(view.at)
  const { meter, dueMs } = view
  const state = meterStateOf(view)
  const number = (field: string) => Number(meter[field] ?? 0)
  const { hold, wantedMs } = heldNow(view, state)
  // The state is a fresh object: with very many queues, a copy would be most of the work.
  return Object.assign(state, {
    hold,
    heldMs: mapCauses((cause) => Number(view.heldUs[cause]) / 1000),
    name,
    oldestAgeMs: ageMs(view.oldestReadyMs, nowUs),
    nextDueAt: dueMs === undefined ? undefined : new Date(dueMs),
    acceptedTotal: view.accepted ?? 0,
    departedTotal: number('departedTotal'),
    refusedLateTotal: number('refusedLate'),
    refundedTotal: number('refundedTotal'),
    forfeitedTotal: number('forfeitedTotal'),
    prioritized: view.prioritized,
    grouped: view.grouped,
    bypassedTotal: number('bypassedTotal'),
    ...{ completedKept: view.completed, failedKept: view.failed },
    ...{ samplesDeletedAt: dateOfUs(meter.shedAt), lastRefusedAt: dateOfUs(meter.refusedAt) },
    largestGroup: view.largestGroup,
    ...reported(view, wantedMs, nowUs),
  })
}

/** The reports of workers. */
function reported({ starts, workers: rows, meter }: QueueView, wantedMs: number, nowUs: number) {
  const number = (field: string) => Number(starts[field] ?? 0)
  const workers = workerRows(rows, nowUs / 1000, wantedMs)
  return {
    completedTotal: number('completed'),
    failedTotal: number('failed'),
    failedAttemptsTotal: number('failedAttempts'),
    failing: failingOf(workers),
    bypass: bypassOf(meter, workers, nowUs),
    starts: startTotals(starts),
    workers,
    deadLetterQueues: deadLetterQueues(starts),
  }
}

function heldNow(view: QueueView, state: MeterState) {
  const nowUs = Number(view.at)
  const { headAgeMs } = state
  const dueUs = view.dueMs === undefined ? undefined : view.dueMs * 1000
  const held = heldAt(view.meter, {
    nowUs,
    // A due job is promoted by the next worker that asks.
    isWaiting: view.waiting > 0 || (dueUs !== undefined && dueUs <= nowUs),
    active: view.active,
    headReadyUs: headAgeMs === undefined ? dueUs : nowUs - headAgeMs * 1000,
    isPaused: state.paused || state.pausedUntil !== undefined,
    pausedUntilUs: state.paused || !view.shape ? undefined : new StoredShape(view.shape).pausedUntilUs,
  })
  const hold = held.hold && closedHold(heldByGroup(held.hold, state, view), state, view)
  // Workers that find only jobs of held groups take none, and have nothing to report.
  return { ...held, hold, wantedMs: hold?.cause === 'workers' ? held.wantedMs : 0 }
}

/** While a schedule lets nothing depart, the rate or the limit holds the head until it does. */
function closedHold(hold: Hold, { cause, rateChangesAt, shape }: MeterState, { closedLimits }: QueueView): Hold {
  if (hold.cause === 'limits') return { ...hold, ...(hold.closed ? {} : closedOf(closedLimits?.[hold.limit ?? ''])) }
  if (cause !== 'closed' || !rateChangesAt || hold.cause !== 'rate' || hold.group !== undefined) return hold
  return { ...hold, closed: { until: rateChangesAt, timeZone: shape?.schedule?.timeZone ?? 'UTC' } }
}

/**
 * The hold of the next job if all waiting jobs belong to held groups. Workers note the rate or a limit, whether it is
 * the queue's or a group's, and nothing about later jobs: these wake none of them.
 */
function heldByGroup(hold: Hold, state: MeterState, view: QueueView): Hold {
  const { shape: fields, holder, heldLane, groupsSlot, queueSlot, at } = view
  if (!fields || groupsSlot === undefined) return hold
  const shape = new StoredShape(fields)
  const { cause, until, since } = hold
  const groupsUs = groupsSlot === '' ? Number.POSITIVE_INFINITY : Number(groupsSlot)
  if (isOfQueue(hold, shape, state, view.concurrency) || groupsUs <= Number(queueSlot ?? at)) return hold
  if (heldLane) return { since, until: new Date(groupsUs / 1000), ...laneHold(heldLane) }
  if (!holder) return hold
  const { id, status, overrides } = groupStateOf(holder, decodeGroups(shape.storedGroups ?? ''))
  if (status === 'paused' || overrides.limited) return { cause: 'pause', group: id, since, ...(until ? { until } : {}) }
  if (status === 'maxed') return { cause: 'concurrency', group: id, since }
  if (status !== 'limited' || groupsUs === Number.POSITIVE_INFINITY) return hold
  const isNoted = cause === 'rate' || cause === 'limits'
  const { heldBy } = holder
  const noted = isNoted
    ? hold
    : { since, ...(heldBy ? { cause: 'limits' as const, limit: heldBy } : { cause: 'rate' as const }) }
  return { ...noted, group: id, until: new Date(groupsUs / 1000), ...closedOf(holder.closed) }
}

function laneHold({ limit, keys, closed }: NonNullable<QueueView['heldLane']>) {
  return { cause: 'limits', limit, keys, ...closedOf(closed) } as const
}

function isOfQueue(
  { cause, limit }: Hold,
  shape: StoredShape,
  { paused, pausedUntil, active }: MeterState,
  concurrency = Number.POSITIVE_INFINITY,
): boolean {
  if (cause === 'pause') return paused || pausedUntil !== undefined
  if (cause === 'concurrency') return active >= concurrency
  return limit !== undefined && !shape.limits.some((one) => one.name === limit && one.by !== undefined)
}

type Bucketing = readonly (readonly [le: number, field: string])[]

/** The buckets of a histogram in `…:meta:starts`: upper bounds in ms, Infinity last, and their fields. */
function bucketing(letter: string, bounds: readonly number[], unitsPerMs: number): Bucketing {
  const finite = bounds.map((bound) => [bound / unitsPerMs, `${letter}:${bound}`] as const)
  return [...finite, [Number.POSITIVE_INFINITY, `${letter}:inf`]]
}

const LATENESS = bucketing('l', LATENESS_BOUNDS_US, 1000)
const WAITS = bucketing('w', WAIT_BOUNDS_MS, 1)

/** Reads the hash `…:meta:starts`, which workers fill. Missing fields are 0. */
function startTotals(fields: Readonly<Record<string, string>>): StartTotals {
  const number = (field: string) => Number(fields[field] ?? 0)
  const counts = (buckets: Bucketing) => buckets.map(([le, field]) => [le, number(field)] as const)
  return {
    count: number('count'),
    early: number('early'),
    latenessSumMs: number('latenessUs') / 1000,
    lateness: counts(LATENESS),
    waits: number('waits'),
    waitSumMs: number('waitMs'),
    waitedMs: mapCauses((cause) => number(`waited:${cause}`)),
    wait: counts(WAITS),
  }
}

/** A worker reports its queue of dead letters as a field that is not counted (`src/reports/worker-reports.ts`). */
function deadLetterQueues(starts: Fields): string[] {
  const fields = Object.keys(starts).filter((field) => field.startsWith(DEAD_FIELD))
  return fields.map((field) => field.slice(DEAD_FIELD.length)).sort()
}
