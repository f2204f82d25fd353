import type { Shape } from 'sluice'
import { encodeRate, gridIntervalUs, ServiceCurve } from 'sluice/internal'
import { type Arrival, readyUs } from './arrival.ts'
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

/** How the groups of the arrivals fared. Arrivals without a group are not counted. */
interface GroupSummary {
  readonly count: number
  /**
   * How evenly they were served while jobs arrived, 1 / n to 1: Jain's index (Jain, Chiu, Hawe 1984: "A Quantitative
   * Measure of Fairness") of what each group started, as a part of what it would have started by max-min sharing.
   */
  readonly fairness: number
  /** The group whose jobs waited longest, and the median over the groups of their longest waits, ms. */
  readonly longestWait: { readonly group: string; readonly ms: number } | undefined
  readonly medianLongestWaitMs: number
}

interface Fared {
  asked: number
  served: number
  longestMs: number
}

/** Sums up by group; undefined where no arrival has one. */
function groupSummary({ fates, slotsUs }: Outcome, arrivals: readonly Arrival[]): GroupSummary | undefined {
  const groups = new Map<string, Fared>()
  const untilUs = arrivals.at(-1)?.atUs ?? 0
  for (const [number, arrival] of arrivals.entries()) {
    if (!arrival.group) continue
    const fared = groups.get(arrival.group.id) ?? { asked: 0, served: 0, longestMs: 0 }
    groups.set(arrival.group.id, fared)
    fared.asked += 1
    if (fates[number] !== FATE.started) continue
    const slotUs = slotsUs[number] as number
    if (slotUs <= untilUs) fared.served += 1
    fared.longestMs = Math.max(fared.longestMs, (slotUs - readyUs(arrival)) / 1000)
  }
  if (groups.size === 0) return undefined
  const waits = [...groups].map(([group, { longestMs }]) => ({ group, ms: longestMs }))
  const sorted = waits.toSorted((one, other) => one.ms - other.ms)
  return {
    count: groups.size,
    fairness: fairnessOf([...groups.values()]),
    longestWait: sorted.at(-1),
    medianLongestWaitMs: sorted[Math.floor((sorted.length - 1) / 2)]?.ms ?? 0,
  }
}

function fairnessOf(groups: readonly Fared[]): number {
  const all = groups.reduce((sum, { served }) => sum + served, 0)
  if (all === 0) return 1
  const shares = maxMinShares(
    groups.map(({ asked }) => asked),
    all,
  )
  const parts = groups.map(({ served }, i) => served / (shares[i] as number))
  const sum = parts.reduce((total, part) => total + part, 0)
  return sum ** 2 / (parts.length * parts.reduce((total, part) => total + part ** 2, 0))
}

/**
 * Max-min sharing: who asks for less than an equal part gets all of it, and the others share the rest equally.
 * (Bertsekas, Gallager 1992: "Data Networks", 6.5.2)
 */
export function maxMinShares(asked: readonly number[], total: number): number[] {
  const shares = new Array<number>(asked.length).fill(0)
  const ascending = [...asked.keys()].sort((one, other) => (asked[one] as number) - (asked[other] as number))
  let left = total
  for (const [place, i] of ascending.entries()) {
    const share = Math.min(asked[i] as number, left / (asked.length - place))
    shares[i] = share
    left -= share
  }
  return shares
}

/**
 * The nearest-rank percentile: the smallest value that at least this share of all values does not exceed.
 * @param sorted ascending, not empty
 * @param part 0 to 1
 */
export function percentile(sorted: ArrayLike<number>, part: number): number {
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] as number
}
