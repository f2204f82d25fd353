import { intervalUs, parseRate } from '../rate.ts'
import type { Shape } from '../shape/shape.ts'
import { type Arrival, readyUs } from './arrival.ts'
import { percentile } from './percentile.ts'
import { FATE, type Outcome, type SimulationOptions } from './simulation.ts'

/** How long jobs waited, ms: from when they could start to their slots. */
export interface Waits {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
  readonly mean: number
}

/** What came of a simulation. */
export interface Summary {
  readonly arrivals: number
  readonly accepted: number
  readonly refused: number
  /** Of all arrivals, 0 to 1. */
  readonly refusedShare: number
  /** For want of a place, because they could not start in time, and because they cost more than is ever allowed. */
  readonly refusedBy: { readonly full: number; readonly late: number; readonly tooDear: number }
  /** Accepted, and dropped for later ones. */
  readonly dropped: number
  readonly started: number
  /** Of those that started; undefined where none did. */
  readonly waitMs: Waits | undefined
  /** Jobs that held a place in the queue at once. */
  readonly longestQueue: number
  /** What left, of what the rate allows from the first arrival to the last start; undefined without a rate. */
  readonly utilisation: number | undefined
  /** Time in which jobs ran, of the time of all places; undefined where their number is not limited, or they take no time. */
  readonly placeUtilisation: number | undefined
  /** Starts that waited for a place: concurrency, and not the rate, set their times. */
  readonly placeBound: number
  readonly firstArrivalAt: Date
  readonly lastStartAt: Date | undefined
  /** From the first arrival to the end of the last job, ms. */
  readonly finishedAfterMs: number
}

/** Sums an outcome up. The other arguments are those that were simulated. */
export function summarize(
  outcome: Outcome,
  shape: Shape,
  arrivals: readonly Arrival[],
  { places, jobMs = 0 }: Pick<SimulationOptions, 'places' | 'jobMs'> = {},
): Summary {
  const counts = new Array<number>(Object.keys(FATE).length).fill(0)
  for (const fate of outcome.fates) counts[fate] = (counts[fate] as number) + 1
  const [, started, full, tooDear, late, dropped] = counts as [number, number, number, number, number, number]
  const refused = full + late + tooDear
  const firstUs = (arrivals[0] as Arrival).atUs
  const { lastUs, units } = startedOf(outcome, arrivals)
  const spanUs = lastUs - firstUs
  const free = [places, shape.concurrency].filter((one) => one !== undefined)
  return {
    arrivals: arrivals.length,
    accepted: arrivals.length - refused,
    refused,
    refusedShare: refused / arrivals.length,
    refusedBy: { full, late, tooDear },
    dropped,
    started,
    waitMs: started > 0 ? waitsOf(outcome, arrivals) : undefined,
    longestQueue: outcome.longestQueue,
    utilisation: shape.rate === undefined || started === 0 ? undefined : used(shape, units, spanUs),
    placeUtilisation:
      free.length === 0 || jobMs === 0 ? undefined : (started * jobMs) / (Math.min(...free) * (spanUs / 1000 + jobMs)),
    placeBound: outcome.placeBound,
    firstArrivalAt: new Date(firstUs / 1000),
    lastStartAt: started > 0 ? new Date(lastUs / 1000) : undefined,
    finishedAfterMs: started > 0 ? spanUs / 1000 + jobMs : 0,
  }
}

/** ms from when each job could start to its slot, of those that started. */
export function waitsMs({ fates, slotsUs }: Outcome, arrivals: readonly Arrival[]): Float64Array {
  const waits = new Float64Array(fates.length)
  let count = 0
  for (const [number, arrival] of arrivals.entries()) {
    if (fates[number] !== FATE.started) continue
    waits[count] = ((slotsUs[number] as number) - readyUs(arrival)) / 1000
    count += 1
  }
  return waits.subarray(0, count)
}

function waitsOf(outcome: Outcome, arrivals: readonly Arrival[]): Waits {
  const waits = waitsMs(outcome, arrivals).sort()
  const sum = waits.reduce((all, wait) => all + wait, 0)
  return {
    p50: percentile(waits, 0.5),
    p95: percentile(waits, 0.95),
    p99: percentile(waits, 0.99),
    max: waits.at(-1) as number,
    mean: sum / waits.length,
  }
}

function startedOf({ fates, slotsUs }: Outcome, arrivals: readonly Arrival[]): { lastUs: number; units: number } {
  let lastUs = (arrivals[0] as Arrival).atUs
  let units = 0
  for (const [number, { cost }] of arrivals.entries()) {
    if (fates[number] !== FATE.started) continue
    lastUs = Math.max(lastUs, slotsUs[number] as number)
    units += cost
  }
  return { lastUs, units }
}

/** The burst counts as allowed too: it may leave at once. */
function used({ rate, burst = 1 }: Shape, units: number, spanUs: number): number {
  const interval = intervalUs(parseRate(rate as NonNullable<Shape['rate']>))
  return units / (spanUs / interval + burst)
}
