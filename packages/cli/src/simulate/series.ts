import type { Shape } from 'sluice'
import { encodeRate, gridIntervalUs, ServiceCurve } from 'sluice/internal'
import { type Arrival, readyUs } from './arrival.ts'
import { FATE, type Outcome } from './simulation.ts'
import { percentile } from './summary.ts'

/** A point of a curve: seconds since the first arrival, and a value. */
export type Point = readonly [seconds: number, value: number]

/** The curves in the plot of a simulation. */
export interface SimulationSeries {
  /** Longest queue in each slice of time, as steps. */
  readonly depth: readonly Point[]
  /** Of the jobs that arrived in each slice, s. */
  readonly waitP50: readonly Point[]
  readonly waitP95: readonly Point[]
  /** The rate in force, units a second, as steps; empty without a rate. */
  readonly rate: readonly Point[]
}

/** @param arrivals the simulated ones */
export function seriesOf(outcome: Outcome, arrivals: readonly Arrival[], shape: Shape): SimulationSeries {
  const sliceSeconds = outcome.sliceUs / 1_000_000
  const waits = waitsBySlice(outcome, arrivals)
  const middle = (slice: number) => (slice + 0.5) * sliceSeconds
  const curve = (part: number) => waits.map(([slice, sorted]): Point => [middle(slice), percentile(sorted, part) / 1e6])
  const depth = depthOf(outcome, sliceSeconds)
  const rate = rateOf(shape, (arrivals[0] as Arrival).atUs, depth.at(-1)?.[0] ?? 0)
  return { depth, waitP50: curve(0.5), waitP95: curve(0.95), rate }
}

function rateOf({ rate }: Shape, startUs: number, seconds: number): Point[] {
  if (rate === undefined) return []
  const stored = encodeRate(rate)
  const interval = gridIntervalUs(stored[0], stored[1])
  const steps = new ServiceCurve(stored, interval, startUs)
    .speeds(startUs, startUs + seconds * 1e6)
    .map(([us, speed]): Point => [(us - startUs) / 1e6, (speed * 1e6) / interval])
  const last = steps.at(-1)
  return last ? [...steps, [seconds, last[1]]] : []
}

function depthOf({ slices }: Outcome, sliceSeconds: number): Point[] {
  return slices.flatMap(({ slice, longest, atEnd }, i): Point[] => {
    const next = slices[i + 1]?.slice ?? slice + 1
    const steps: Point[] = [[slice * sliceSeconds, longest]]
    // In between, no job arrived and none left.
    if (next > slice + 1 || i === slices.length - 1) steps.push([(slice + 1) * sliceSeconds, atEnd])
    return steps
  })
}

/** Sorted waits (µs) of the jobs that started, by the slice in which they became ready. */
function waitsBySlice({ fates, slotsUs, sliceUs }: Outcome, arrivals: readonly Arrival[]): [number, number[]][] {
  const startUs = (arrivals[0] as Arrival).atUs
  const bySlice = new Map<number, number[]>()
  for (const [number, arrival] of arrivals.entries()) {
    if (fates[number] !== FATE.started) continue
    const ready = readyUs(arrival)
    const slice = Math.floor((ready - startUs) / sliceUs)
    const waits = bySlice.get(slice) ?? []
    bySlice.set(slice, waits)
    waits.push((slotsUs[number] as number) - ready)
  }
  return [...bySlice]
    .sort(([one], [other]) => one - other)
    .map(([slice, waits]) => [slice, waits.sort((a, b) => a - b)])
}
