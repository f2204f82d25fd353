import type { ShapeMode } from '../mode.ts'

/**
 * The bucket as arithmetic in integers: one microsecond is 1024 ticks, and times are counted from zero, not from an
 * origin. Written independently of `lua/meter/bucket.lua`, so that each can be checked against the other.
 */
export type Ticks = bigint

/** What a bucket needs to know of its shape. */
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

/** An interval rounded up to the grid, so that no sum runs ahead of the rate. */
export function gridIntervalUs(limit: number, periodMs: number): number {
  return Math.ceil(((periodMs * 1000) / limit) * 1024) / 1024
}

/** An unused bucket. */
export function newState(nowUs: number, { intervalUs, burst, mode }: BucketShape): BucketState {
  const now = ticksOf(nowUs)
  return { tat: now, last: now, intervalUs, burst, mode, seenUs: nowUs, horizonUs: 0, horizonAtUs: 0 }
}

/** The earliest time at which `cost` conforms. A cost above the burst leaves when the bucket is empty. */
export function slotOf({ tat, last, intervalUs, burst }: BucketState, cost: number, nowUs: number): Ticks {
  return latest(ticksOf(nowUs), last, tat + ticksOf((Math.min(cost, burst) - burst) * intervalUs))
}

export function charge(state: BucketState, cost: number, slot: Ticks): BucketState {
  return { ...state, tat: latest(state.tat, slot) + ticksOf(cost * state.intervalUs), last: slot }
}

/** In shadow the bucket fills as if the shape were enforced, but never overflows. */
export function chargeInShadow(state: BucketState, cost: number, nowUs: number): BucketState {
  const now = ticksOf(nowUs)
  const { tat } = charge(state, cost, now)
  return { ...state, tat: earliest(tat, now + fullOf(state)), last: now }
}

/**
 * Applies a new interval and burst as of `atUs`, but not before the last granted slot: debts are kept in units of cost.
 */
export function reshaped(state: BucketState, { intervalUs, burst }: BucketShape, atUs: number): BucketState {
  const from = latest(ticksOf(atUs), state.last)
  const debt = Number(latest(0n, state.tat - from)) / 1024 / state.intervalUs
  const unused = Math.min(burst, state.burst - debt)
  return { ...state, tat: from + ticksOf((burst - unused) * intervalUs), intervalUs, burst }
}

/** The clock was set back: time differences are kept. */
export function steppedBack(state: BucketState, backUs: number): BucketState {
  const back = ticksOf(backUs)
  const { lossAtUs } = state
  const loss = lossAtUs === undefined ? {} : { lossAtUs: lossAtUs - backUs }
  return { ...state, ...loss, tat: state.tat - back, last: state.last - back }
}

/** After a loss: full until the last slot that any worker may hold has passed; that slot counts as granted. */
export function filled(state: BucketState, lossAtUs: number, horizonUs: number): BucketState {
  const ready = ticksOf(lossAtUs + horizonUs)
  return { ...state, lossAtUs, tat: latest(state.tat, ready + fullOf(state)), last: latest(state.last, ready) }
}

/** A longer horizon, of which the process that noticed the loss did not know, prolongs the hold. */
export function prolonged(state: BucketState, nowUs: number, horizonUs: number): BucketState {
  const { lossAtUs } = state
  return lossAtUs !== undefined && nowUs - lossAtUs < horizonUs ? filled(state, lossAtUs, horizonUs) : state
}

/** Takes back the charge of the slots granted last; `lastUs` is the slot before them. */
export function refunded(state: BucketState, costs: readonly number[], lastUs: number): BucketState {
  const charged = costs.reduce((sum, cost) => sum + ticksOf(cost * state.intervalUs), 0n)
  return { ...state, tat: state.tat - charged, last: earliest(state.last, ticksOf(lastUs)) }
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

/** Rounded up to the next microsecond: what a worker gets, so that nothing starts before its slot. */
export function wholeUs(ticks: Ticks): number {
  return Number(-(-ticks >> 10n))
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
