import { checkArgument } from '../call-options.ts'
import { encodeRate, type StoredRate } from '../limits/schedule.ts'
import { gridIntervalUs, intervalUs } from '../rate.ts'
import { ServiceCurve } from '../shape/service-curve.ts'
import type { Shape } from '../shape/shape.ts'

/**
 * When a job started: µs on one clock, or the data of ShapedWorker's `departed` event, with the job's cost if not 1.
 */
export type Start = number | { readonly departureTimeUs: number; readonly cost?: number }

/**
 * The closed window of starts that is furthest above the bound of a shape (or least below it); the shortest of those.
 */
export interface Window {
  /** The first and the last start in it, µs. */
  readonly fromUs: number
  readonly toUs: number
  /** The units of cost that started in it. */
  readonly cost: number
  /** The shape's bound for it: `b + T / I`, where b is the burst, or the highest cost if that is more. */
  readonly allowed: number
  /** How much longer the window would have to be for its starts to conform, µs; 0 or less: the bound holds. */
  readonly excessUs: number
}

/**
 * Finds the worst of all windows, in O(n log n).
 * @param starts in any order
 * @returns undefined without starts, or for a shape without a rate
 * @throws InvalidRateError
 */
export function worstWindow(starts: readonly Start[], shape: Pick<Shape, 'rate' | 'burst'>): Window | undefined {
  checkArgument(Array.isArray(starts), 'the starts', 'a list', starts)
  checkArgument(typeof shape === 'object' && shape !== null, 'the shape', 'an object', shape)
  if (starts.length === 0 || shape.rate === undefined) return undefined
  const sorted = starts.map(timed).sort((one, other) => one.us - other.us)
  const rate = encodeRate(shape.rate)
  const interval = intervalUs({ limit: rate[0], periodMs: rate[1] })
  const burst = sorted.reduce((most, { cost }) => Math.max(most, cost), shape.burst ?? 1)
  const origin = (sorted[0] as TimedStart).us
  const servedUs = servedSince(rate, origin)
  let sum = 0
  // The best start of a window so far; its value: the cost before it, as time, minus the time elapsed until then.
  let lead = { us: origin, before: 0, value: Number.POSITIVE_INFINITY }
  let worst = { from: lead, toUs: origin, sum: 0, value: Number.NEGATIVE_INFINITY }
  for (const { us, cost } of sorted) {
    const elapsed = servedUs(us)
    const value = sum * interval - elapsed
    if (value <= lead.value) lead = { us, before: sum, value }
    sum += cost
    const excess = sum * interval - elapsed - lead.value
    if (excess > worst.value) worst = { from: lead, toUs: us, sum, value: excess }
  }
  const fromUs = worst.from.us
  return {
    fromUs,
    toUs: worst.toUs,
    cost: worst.sum - worst.from.before,
    allowed: burst + (servedUs(worst.toUs) - servedUs(fromUs)) / interval,
    excessUs: worst.value - burst * interval,
  }
}

interface TimedStart {
  readonly us: number
  readonly cost: number
}

function timed(start: Start): TimedStart {
  if (typeof start === 'number') return { us: start, cost: 1 }
  return { us: start.departureTimeUs, cost: start.cost ?? 1 }
}

/** Service of a rate since a time, as µs at the fastest rate of its schedule: at a fixed rate, the elapsed time. */
function servedSince(rate: StoredRate, fromUs: number): (us: number) => number {
  if (rate.length === 2) return (us) => us - fromUs
  const curve = new ServiceCurve(rate, gridIntervalUs(rate[0], rate[1]), fromUs)
  return (us) => Number(curve.at(us) - curve.at(fromUs)) / 1024
}
