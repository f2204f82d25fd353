import type { ShapeMode } from '../mode.ts'

/**
 * The bucket as arithmetic in integers: one microsecond is 1024 ticks, and times are those of the rate's service curve, counted
 * from zero. Written independently of `lua/meter/bucket.lua`, so that each can be checked against the other.
 */
export type Ticks = bigint

/** The fields of a shape that its bucket uses. */
export interface BucketShape {
  /** µs per unit of cost, a multiple of a tick. */
  readonly intervalUs: number
  readonly burst: number
  readonly mode: ShapeMode
  readonly onStateLoss: 'hold' | 'burst'
  /** The minimum horizon that a hold assumes for slots granted before the loss, µs. */
  readonly horizonUs: number
}

export interface BucketState {
  /** Theoretical arrival time: when the bucket would be empty. */
  readonly tat: Ticks
  /** The last slot granted. */
  readonly last: Ticks
  readonly intervalUs: number
  readonly burst: number
  readonly mode: ShapeMode
  /** The clock when the state last changed, µs. */
  readonly seenUs: number
  /** The largest horizon requested in the last minute, µs. */
  readonly horizonUs: number
  readonly horizonAtUs: number
  /** When a loss filled the bucket, µs. */
  readonly lossAtUs?: number
}

const HORIZON_MEMORY_US = 60_000_000

/** An unused bucket. */
export function newState(now: Ticks, nowUs: number, { intervalUs, burst, mode }: BucketShape): BucketState {
  return { tat: now, last: now, intervalUs, burst, mode, seenUs: nowUs, horizonUs: 0, horizonAtUs: 0 }
}

/** The earliest time at which `cost` conforms. A cost above the burst departs when the bucket is empty. */
export function slotOf({ tat, last, intervalUs, burst }: BucketState, cost: number, now: Ticks): Ticks {
  return latest(now, last, tat + ticksOf((Math.min(cost, burst) - burst) * intervalUs))
}

export function charge(state: BucketState, cost: number, slot: Ticks): BucketState {
  return { ...state, tat: latest(state.tat, slot) + ticksOf(cost * state.intervalUs), last: slot }
}

/** In shadow the bucket fills as if the shape were enforced, but never overflows. */
export function chargeInShadow(state: BucketState, cost: number, now: Ticks): BucketState {
  const { tat } = charge(state, cost, now)
  return { ...state, tat: earliest(tat, now + fullOf(state)), last: now }
}

/**
 * Applies a new interval and burst as of `at`, but not before the last granted slot: debts are kept in units of cost.
 */
export function reshaped(state: BucketState, { intervalUs, burst }: BucketShape, at: Ticks): BucketState {
  const from = latest(at, state.last)
  const debt = Number(latest(0n, state.tat - from)) / 1024 / state.intervalUs
  const unused = Math.min(burst, state.burst - debt)
  return { ...state, tat: from + ticksOf((burst - unused) * intervalUs), intervalUs, burst }
}

/** The clock was set back, and the curve with it: differences are kept. */
export function steppedBack(state: BucketState, back: Ticks, backUs: number): BucketState {
  const { lossAtUs } = state
  const loss = lossAtUs === undefined ? {} : { lossAtUs: lossAtUs - backUs }
  return { ...state, ...loss, tat: state.tat - back, last: state.last - back }
}

/** After a loss: full until the last slot that any worker may hold has passed; that slot counts as granted. */
export function filled(state: BucketState, lossAtUs: number, ready: Ticks): BucketState {
  return { ...state, lossAtUs, tat: latest(state.tat, ready + fullOf(state)), last: latest(state.last, ready) }
}

/** Takes back the charge of the slots granted last; `last` is the slot before them. */
export function refunded(state: BucketState, costs: readonly number[], last: Ticks): BucketState {
  const charged = costs.reduce((sum, cost) => sum + ticksOf(cost * state.intervalUs), 0n)
  return { ...state, tat: state.tat - charged, last: earliest(state.last, last) }
}

export function withHorizon(state: BucketState, horizonUs: number, nowUs: number): BucketState {
  const { horizonAtUs } = state
  const forgotten = nowUs - horizonAtUs > HORIZON_MEMORY_US || nowUs < horizonAtUs
  return horizonUs >= state.horizonUs || forgotten ? { ...state, horizonUs, horizonAtUs: nowUs } : state
}

/** Rounded up to the next tick. */
export function ticksOf(us: number): Ticks {
  return BigInt(Math.ceil(us * 1024))
}

export function latest(...times: readonly [Ticks, ...Ticks[]]): Ticks {
  return times.reduce((one, other) => (one > other ? one : other))
}

function earliest(one: Ticks, other: Ticks): Ticks {
  return one < other ? one : other
}

function fullOf({ burst, intervalUs }: BucketState): Ticks {
  return ticksOf(burst * intervalUs)
}
