import type { EffectiveShape } from './stored-shape.ts'
import { StoredShape } from './stored-shape.ts'

/** Why the queue leaves at the rate that it leaves at. */
export type RateCause = 'declared' | 'override' | 'paused' | 'meter paused' | 'shadow' | 'off' | 'unpaced'

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
  /** BullMQ's pause. */
  readonly paused: boolean
  readonly pausedUntil: Date | undefined
  readonly pauseReason: string | undefined
  /** Units of cost that the bucket holds; 0 is empty, `burst` is full. */
  readonly level: number
  /** When the job at the head could leave. */
  readonly nextDepartureAt: Date | undefined
  /** The rate in force now, as text; undefined where jobs are not paced. */
  readonly rate: string | undefined
  readonly cause: RateCause
  /** Jobs refused, and jobs that shadow mode would have refused or held, since the queue was made. */
  readonly refusedTotal: number
  readonly shadowRefusedTotal: number
  readonly shadowDelayedTotal: number
}

/** Reads the answer of `lua/read-meter.lua`. */
export function readMeterState(raw: readonly unknown[]): MeterState {
  const [now, fields, depth, waiting, delayed, waitingChildren, active, paused, level, next, meter] = raw
  const stored = fields ? new StoredShape(fields as string[]) : undefined
  const nowUs = Number(now)
  const shape = stored?.effective(nowUs)
  const counters = new StoredShape(meter as string[])
  const isPaused = paused === '1'
  const meterPaused = (stored?.pausedUntilUs ?? 0) > nowUs
  return {
    at: new Date(nowUs / 1000),
    shape,
    depth: Number(depth),
    capacity: shape?.capacity,
    waiting: Number(waiting),
    delayed: Number(delayed),
    waitingChildren: Number(waitingChildren),
    active: Number(active),
    paused: isPaused,
    pausedUntil: meterPaused ? shape?.pausedUntil : undefined,
    pauseReason: meterPaused ? shape?.pauseReason : undefined,
    level: Number(level),
    nextDepartureAt: next === '' ? undefined : new Date(Number(next) / 1000),
    rate: shape?.mode === 'enforce' ? shape.rate : undefined,
    cause: causeOf(shape, isPaused, meterPaused),
    refusedTotal: counters.number('refusedTotal') ?? 0,
    shadowRefusedTotal: counters.number('shadowRefused') ?? 0,
    shadowDelayedTotal: counters.number('shadowDelayed') ?? 0,
  }
}

function causeOf(shape: EffectiveShape | undefined, paused: boolean, meterPaused: boolean): RateCause {
  if (paused) return 'paused'
  if (meterPaused) return 'meter paused'
  if (shape && shape.mode !== 'enforce') return shape.mode
  if (!shape?.rate) return shape?.overrides.rate ? 'override' : 'unpaced'
  return shape.overrides.rate ? 'override' : 'declared'
}
