import type { Window } from '../testing/worst-window.ts'
import type { PacedDeparture } from './stretches.ts'

/**
 * The closed window of departures that is furthest above the bound (or least below it). Where rate or burst changed in
 * it, `allowed` counts the larger burst and the faster of the rates on each side.
 */
export type AuditedWindow = Window

/** The grid of the bucket (lua/meter/bucket.lua): this many ticks are 1 µs. Sums of ticks are exact. */
const GRID = 1024

/** Slots are in whole µs, rounded up, so a window may look too short by 1 µs. */
export const TOLERANCE_US = 1

/**
 * The worst trailing window of consecutive departures, in O(n): charges that have not drained yet are the level of a
 * leaky bucket, and the worst window begins when the bucket was last empty. Every run of one rate and burst is checked
 * separately and exactly. The whole is checked too, where a gap that contains a change counts at the faster of the two
 * rates: no correctly granted slot exceeds that.
 * @returns undefined without departures
 */
export function worstBucketWindow(departures: readonly PacedDeparture[]): AuditedWindow | undefined {
  const runs = runsOf(departures)
  const windows = runs.length > 1 ? [...runs, departures].map(worstOfRun) : [worstOfRun(departures)]
  return worseOf(windows)
}

/** The window that is furthest above its bound. */
export function worseOf(windows: readonly (AuditedWindow | undefined)[]): AuditedWindow | undefined {
  return windows.reduce((worst, one) => (!worst || (one && one.excessUs > worst.excessUs) ? one : worst), undefined)
}

/** Splits departures into runs in which neither rate nor burst changed. */
function runsOf(departures: readonly PacedDeparture[]): PacedDeparture[][] {
  const runs: PacedDeparture[][] = []
  for (const departure of departures) {
    const before = runs.at(-1)?.at(-1)
    const same = before?.intervalUs === departure.intervalUs && before.burst === departure.burst
    if (same) runs.at(-1)?.push(departure)
    else runs.push([departure])
  }
  return runs
}

function worstOfRun(departures: readonly PacedDeparture[]): AuditedWindow | undefined {
  const burst = burstOver(departures)
  let level = new Level()
  let worst: AuditedWindow | undefined
  for (const departure of departures) {
    level = level.after(departure)
    const excessUs = (level.ticks - burst * departure.intervalUs * GRID) / GRID
    if (!worst || excessUs > worst.excessUs) {
      const { fromUs, cost, drained } = level
      worst = { fromUs, toUs: departure.slotUs, cost, allowed: burst + drained, excessUs }
    }
  }
  return worst
}

/**
 * The burst plus, once, the largest excess of a job that costs more (if it was lowered meanwhile); docs/algorithm.md.
 */
function burstOver(departures: readonly PacedDeparture[]): number {
  let burst = 0
  let excess = 0
  for (const one of departures) {
    burst = Math.max(burst, one.burst)
    excess = Math.max(excess, one.cost - one.burst)
  }
  return burst + excess
}

/** Charges that have not drained yet, as time at the current rate; and the window in which they accumulated. */
export class Level {
  ticks = 0
  fromUs = 0
  cost = 0
  /** Units that the rate alone allowed in the window. */
  drained = 0
  #last: PacedDeparture | undefined

  /** The level after one more departure. */
  after(departure: PacedDeparture): Level {
    const { slotUs, cost, intervalUs } = departure
    const last = this.#last
    const left = last ? this.#leftBefore(departure, last) : 0
    const next = new Level()
    next.#last = departure
    next.ticks = Math.max(0, left) + Math.floor(cost * intervalUs * GRID)
    next.fromUs = left > 0 ? this.fromUs : slotUs
    next.cost = (left > 0 ? this.cost : 0) + cost
    next.drained = left > 0 && last ? this.drained + (slotUs - last.slotUs) / Math.min(last.intervalUs, intervalUs) : 0
    return next
  }

  /** The level at the slot of the next departure, at its rate. */
  #leftBefore({ slotUs, intervalUs }: PacedDeparture, last: PacedDeparture): number {
    const gap = (slotUs - last.slotUs) * GRID
    if (intervalUs === last.intervalUs) return this.ticks - gap
    const converted = (ticks: number) => Math.floor((ticks * intervalUs) / last.intervalUs)
    return intervalUs < last.intervalUs ? converted(this.ticks) - gap : converted(Math.max(0, this.ticks - gap))
  }
}
