import { mostWithin, worstExcess } from '../../workers/demo/windows.ts'
import type { Start } from '../fleet/protocol.ts'
import { quantile } from './statistics.ts'

/** Starts compared with the requested rate. Times in µs on Redis's clock. */
export interface StartsAnalysis {
  readonly n: number
  /** (n − 1)·I / (last − first): the share of the rate that was reached. */
  readonly rateKept: number
  readonly mostIn10Ms: number
  readonly mostInOneSecond: number
  /** The largest excess of starts in a window above `1 + ⌊T/I⌋`. */
  readonly excessOfStarts: number
}

/** The same for the slots that the meter granted. */
export interface SlotsAnalysis {
  readonly excessOfSlots: number
  readonly startedEarly: number
  readonly latenessUs: { readonly least: number; readonly p50: number; readonly p99: number; readonly max: number }
  /** Slots of the grid that no worker claimed in time. */
  readonly slotsLost: number
}

export function analyseStarts(startsUs: readonly number[], intervalUs: number): StartsAnalysis {
  const sorted = [...startsUs].sort((a, b) => a - b)
  const spanUs = (sorted.at(-1) ?? Number.NaN) - (sorted[0] ?? Number.NaN)
  return {
    n: sorted.length,
    rateKept: ((sorted.length - 1) * intervalUs) / spanUs,
    mostIn10Ms: mostWithin(sorted, 10_000),
    mostInOneSecond: mostWithin(sorted, 1_000_000),
    excessOfStarts: worstExcess(sorted, { limit: 1, periodUs: intervalUs, burst: 1 }),
  }
}

export function analyseSlots(starts: readonly Start[], intervalUs: number): SlotsAnalysis {
  const slotted = starts.filter((start): start is Required<Start> => start.slotUs !== undefined)
  const slots = slotted.map(({ slotUs }) => slotUs).sort((a, b) => a - b)
  const lateness = slotted.map(({ startedUs, slotUs }) => startedUs - slotUs)
  const beyond = slots.slice(1).map((slot, i) => Math.max(0, (slot - (slots[i] as number)) / intervalUs - 1))
  return {
    excessOfSlots: worstExcess(slots, { limit: 1, periodUs: intervalUs, burst: 1 }),
    startedEarly: lateness.filter((us) => us < 0).length,
    latenessUs: {
      least: quantile(lateness, 0),
      p50: quantile(lateness, 0.5),
      p99: quantile(lateness, 0.99),
      max: quantile(lateness, 1),
    },
    slotsLost: beyond.reduce((total, slots) => total + slots, 0),
  }
}
