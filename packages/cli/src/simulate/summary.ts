import type { Shape } from 'sluice'
import { encodeRate, gridIntervalUs, ServiceCurve } from 'sluice/internal'
import { type Arrival, readyUs } from './arrival.ts'
import { type GroupSummary, groupSummary } from './group-summary.ts'
import { percentile } from './percentile.ts'
import { FATE, type Outcome, type SimulationOptions } from './simulation.ts'

/** How long jobs waited, ms: from when they were ready to their slots. */
export interface Waits {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
  readonly mean: number
}

/** The summary of a simulation. */
export interface Summary {
  readonly arrivals: number
  readonly accepted: number
  readonly refused: number
  /** Of all arrivals, 0 to 1. */
  readonly refusedShare: number
  /**
   * Because there was no place, because they could not start in time, or because they cost more than is ever allowed.
   */
  readonly refusedBy: { readonly full: number; readonly late: number; readonly tooDear: number }
  /** Accepted, then dropped in favour of later ones. */
  readonly dropped: number
  readonly started: number
  /** Of those that started; undefined where none did. */
  readonly waitMs: Waits | undefined
  /** undefined where no arrival has a group. */
  readonly groups: GroupSummary | undefined
  /** Maximum number of jobs that held a place in the queue at once. */
  readonly longestQueue: number
  /**
   * Departed units as a share of what the rate allows from the first arrival to the last start; undefined without a
   * rate.
   */
  readonly utilisation: number | undefined
  /**
   * Time in which jobs ran as a share of the time of all places; undefined where their number is not limited, or where
   * jobs take no time.
   */
  readonly placeUtilisation: number | undefined
  /** Starts that waited for a place: concurrency rather than the rate decided their times. */
  readonly placeBound: number
  readonly firstArrivalAt: Date
  readonly lastStartAt: Date | undefined
  /** From the first arrival to the end of the last job, ms. */
  readonly finishedAfterMs: number
}

/** Summarizes an outcome. The other arguments are those of the simulation. */
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
    groups: groupSummary(outcome, arrivals),
    longestQueue: outcome.longestQueue,
    utilisation: shape.rate === undefined || started === 0 ? undefined : used(shape, units, firstUs, lastUs),
    placeUtilisation:
      free.length === 0 || jobMs === 0 ? undefined : (started * jobMs) / (Math.min(...free) * (spanUs / 1000 + jobMs)),
    placeBound: outcome.placeBound,
    firstArrivalAt: new Date(firstUs / 1000),
    lastStartAt: started > 0 ? new Date(lastUs / 1000) : undefined,
    finishedAfterMs: started > 0 ? spanUs / 1000 + jobMs : 0,
  }
}

/** Waits of the jobs that started, ms: from when each was ready to its slot. */
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

/** The burst counts as allowed too, since it may leave at once. */
function used({ rate, burst = 1 }: Shape, units: number, firstUs: number, lastUs: number): number {
  const stored = encodeRate(rate)
  const interval = gridIntervalUs(stored[0], stored[1])
  const curve = new ServiceCurve(stored, interval, Math.floor(firstUs))
  const served = Number(curve.at(Math.floor(lastUs)) - curve.at(Math.floor(firstUs))) / 1024
  return units / (served / interval + burst)
}
