import { decodeFeedbackChange, type FeedbackChange } from '../feedback/request.ts'
import { formatRate, intervalUs } from '../rate.ts'
import type { ShapeView } from '../shape/store.ts'
import type { EffectiveShape } from '../shape/stored.ts'
import { StoredShape } from '../shape/stored.ts'
import { dateOfUs, type GroupCounts } from './groups.ts'

/** What sets the rate at which jobs depart now. */
export type RateCause =
  | 'declared'
  | 'override'
  | 'feedback'
  | 'rampUp'
  | 'closed'
  | 'paused'
  | 'meter paused'
  | 'shadow'
  | 'off'
  | 'unpaced'

/** Current downstream feedback; see docs/feedback.md. */
export interface FeedbackState {
  /** Current rates besides the configured one, units of cost per second; the slowest applies. */
  readonly rates: { readonly pace?: number; readonly slow?: number; readonly quota?: number }
  /** Running jobs that the downstream allows. */
  readonly concurrency: number | undefined
  /** Whether a single job probes the downstream, or is about to, before others follow. */
  readonly probing: boolean
  /** The last change, and its cause. */
  readonly last: FeedbackChange | undefined
}

/** How many jobs may run at once across the fleet, and why. */
export interface ConcurrencyState {
  /** The override, otherwise the declared value; undefined if there is neither. */
  readonly set: number | undefined
  readonly inForce: number
  /** `stock queue`: a plain BullMQ queue set the value after the shape did; the last write holds. */
  readonly cause: 'declared' | 'override' | 'feedback' | 'stock queue'
  /** When the override or the feedback ends; undefined if it does not. */
  readonly until: Date | undefined
}

/** `10 declared, 1 effective (feedback, until 2026-11-22T21:05:00.000Z)`; if both are the same, `10 (declared)`. */
export function concurrencyText({ set, inForce, cause, until }: ConcurrencyState): string {
  const why = `(${cause}${until ? `, until ${until.toISOString()}` : ''})`
  return set === inForce ? `${inForce} ${why}` : `${set ?? 'none'} declared, ${inForce} effective ${why}`
}

/** The state of a queue's meter at one moment of Redis's clock. */
export interface MeterState {
  /** Redis's time. */
  readonly at: Date
  readonly shape: EffectiveShape | undefined
  /** Jobs that hold a place. */
  readonly depth: number
  readonly capacity: number | undefined
  readonly waiting: number
  readonly delayed: number
  readonly waitingChildren: number
  readonly active: number
  /**
   * How long the next job has been ready, ms: since it was added, its delay ended or, for a retry, its last start. By
   * its producer's clock. With groups, the age of the oldest of the first jobs that may depart, because any of them may
   * be next; if all groups are held, of the jobs that go first. undefined if no job waits, or if the next one is gone.
   */
  readonly headAgeMs: number | undefined
  /** BullMQ's pause. */
  readonly paused: boolean
  readonly pausedUntil: Date | undefined
  readonly pauseReason: string | undefined
  /** Units of cost in the bucket; 0 is empty, `burst` is full. */
  readonly level: number
  /** Groups with waiting jobs, by their status; undefined if the shape has no groups. */
  readonly groups: GroupCounts | undefined
  /** Mean cost of the jobs that departed recently, units. */
  readonly meanCost: number
  /**
   * When the rate, the limits, the meter's pause and, if all groups are held, the first of them let the job at the head
   * depart; undefined if all places of a limit are taken, or if the time when a group may go is unknown.
   */
  readonly nextDepartureAt: Date | undefined
  /** The current rate, as text, `'0/s'` while a schedule lets nothing depart; undefined if jobs are not paced. */
  readonly rate: string | undefined
  /** When a schedule changes the rate next; undefined without one. */
  readonly rateChangesAt: Date | undefined
  readonly cause: RateCause
  /** undefined if concurrency is not limited. */
  readonly concurrency: ConcurrencyState | undefined
  readonly feedback: FeedbackState | undefined
  /** Jobs refused, and jobs that shadow mode would have refused or held, since the queue was created. */
  readonly refusedTotal: number
  readonly shadowRefusedTotal: number
  readonly shadowDelayedTotal: number
  /** Jobs that overflow dropped since the queue was created. */
  readonly droppedTotal: number
  /** Accepted jobs that too few replicas confirmed in time (`shape.durability`), since then too. */
  readonly unconfirmedTotal: number
}

/** The result of `lua/views/queue.lua` for the meter. Times are µs as text, unless their names say otherwise. */
export interface MeterView extends ShapeView {
  readonly depth: number
  readonly waiting: number
  readonly delayed: number
  readonly waitingChildren: number
  readonly active: number
  /** BullMQ's pause. */
  readonly paused: boolean
  /** BullMQ's global concurrency, which its scripts respect. */
  readonly concurrency?: number
  /** Units of cost. */
  readonly level?: string
  readonly groups?: GroupCounts
  /** When the job at the head may depart. */
  readonly slot?: string
  /** The current rate as a part of the fastest one of a schedule, and when it changes next. */
  readonly speed?: string
  readonly speedEnds?: string
  /** The hash `…:meta:meter`. */
  readonly meter: Readonly<Record<string, string>>
  /** When the next job became ready. */
  readonly headReadyMs?: number
}

/** Turns a view into the public state. */
export function meterStateOf(view: MeterView): MeterState {
  const nowUs = Number(view.at)
  const { paused } = view
  const speed = Number(view.speed ?? 1)
  const stored = view.shape && new StoredShape(view.shape)
  const shape = stored?.effective(nowUs)
  const meterPaused = (stored?.pausedUntilUs ?? 0) > nowUs
  const counter = (field: string) => Number(view.meter[field] ?? 0)
  // Field by field: with very many queues, copying whole objects would be most of the work.
  return {
    at: new Date(nowUs / 1000),
    shape,
    depth: view.depth,
    capacity: shape?.capacity,
    waiting: view.waiting,
    delayed: view.delayed,
    waitingChildren: view.waitingChildren,
    active: view.active,
    headAgeMs: ageMs(view.headReadyMs, nowUs),
    paused,
    pausedUntil: meterPaused ? shape?.pausedUntil : undefined,
    pauseReason: meterPaused ? shape?.pauseReason : undefined,
    level: Number(view.level ?? 0),
    groups: view.groups,
    meanCost: Number(view.meter.meanCost ?? 1),
    nextDepartureAt: dateOfUs(view.slot),
    rate: rateNow(stored, speed),
    rateChangesAt: dateOfUs(view.speedEnds),
    cause: causeOf(stored, shape, { paused, meterPaused, closed: speed === 0 }),
    concurrency: concurrencyOf(stored, shape, view.concurrency),
    feedback: feedbackOf(stored),
    refusedTotal: counter('refusedTotal'),
    shadowRefusedTotal: counter('shadowRefused'),
    shadowDelayedTotal: counter('shadowDelayed'),
    droppedTotal: counter('droppedTotal'),
    unconfirmedTotal: counter('unconfirmedTotal'),
  }
}

/** How long something has been ready, ms; undefined if the start is unknown. */
export function ageMs(readyMs: number | undefined, nowUs: number): number | undefined {
  return readyMs === undefined ? undefined : Math.max(0, nowUs / 1000 - readyMs)
}

/** Feedback may hold the rate below the configured one. */
function rateNow(stored: StoredShape | undefined, speed: number): string | undefined {
  if (stored?.mode !== 'enforce') return undefined
  const { rate, pacedIntervalUs } = stored
  if (pacedIntervalUs === undefined) return undefined
  if (rate && speed === 1 && !isSlowed(stored)) return formatRate(rate)
  return formatRate({ limit: Number(((1_000_000 / pacedIntervalUs) * speed).toPrecision(6)), periodMs: 1000 })
}

function isSlowed(stored: StoredShape): boolean {
  const { rate, pacedIntervalUs = 0 } = stored
  return pacedIntervalUs > (rate ? intervalUs(rate) + 0.001 : 0)
}

function isFromFeedback({ feedback: { ramp, pace, slow, quota } }: StoredShape): boolean {
  return !ramp || (pace ?? slow ?? quota) !== undefined
}

function causeOf(
  stored: StoredShape | undefined,
  shape: EffectiveShape | undefined,
  {
    paused,
    meterPaused,
    closed,
  }: { readonly paused: boolean; readonly meterPaused: boolean; readonly closed: boolean },
): RateCause {
  if (paused) return 'paused'
  if (meterPaused) return 'meter paused'
  if (shape && shape.mode !== 'enforce') return shape.mode
  if (closed) return 'closed'
  if (stored && isSlowed(stored)) return isFromFeedback(stored) ? 'feedback' : 'rampUp'
  if (!shape?.rate) return shape?.overrides.rate ? 'override' : 'unpaced'
  return shape.overrides.rate ? 'override' : 'declared'
}

function concurrencyOf(
  stored: StoredShape | undefined,
  shape: EffectiveShape | undefined,
  inForce: number | undefined,
): ConcurrencyState | undefined {
  if (inForce === undefined) return undefined
  const override = shape?.overrides.concurrency
  const value = override ? override.value : shape?.declared.concurrency?.value
  const set = typeof value === 'number' ? value : undefined
  if (set === inForce) return { set, inForce, cause: override ? 'override' : 'declared', until: override?.until }
  const fed = stored?.feedback.concurrency
  if (fed?.limit === inForce) return { set, inForce, cause: 'feedback', until: new Date(fed.until) }
  return { set, inForce, cause: 'stock queue', until: undefined }
}

function feedbackOf(stored: StoredShape | undefined): FeedbackState | undefined {
  if (!stored?.isFed) return undefined
  const { pace, slow, quota, concurrency, last } = stored.feedback
  const rates = Object.entries({ pace, slow, quota }).flatMap(([name, entry]) =>
    entry ? [[name, 1_000_000 / entry.interval] as const] : [],
  )
  return {
    rates: Object.fromEntries(rates),
    concurrency: concurrency?.limit,
    probing: stored.isProbing,
    last: last && decodeFeedbackChange(last),
  }
}
