import { mostWithin, worstExcess } from '../../workers/demo/windows.ts'
import type { Start } from './clock.ts'
import { ascending, quantile, sum } from './statistics.ts'

/** Starts, and the slots that the meter granted them, compared with a rate. */
export function paceOf(starts: readonly Start[], perSecond: number) {
  const intervalUs = 1e6 / perSecond
  const one = { limit: 1, periodUs: intervalUs, burst: 1 }
  const started = ascending(starts.map(({ startedUs }) => startedUs))
  const slots = ascending(starts.flatMap(({ slotUs = [] }) => slotUs))
  const lateUs = starts.flatMap(({ startedUs, slotUs }) => (slotUs === undefined ? [] : startedUs - slotUs))
  const lateMs = (q: number) => quantile(lateUs, q) / 1000
  const spanUs = (started.at(-1) ?? Number.NaN) - (started[0] ?? Number.NaN)
  return {
    n: started.length,
    /** (n − 1)·I / (last − first): the share of the rate that was reached. */
    rateKept: ((started.length - 1) * intervalUs) / spanUs,
    mostIn10Ms: mostWithin(started, 10_000),
    mostInOneSecond: mostWithin(started, 1_000_000),
    /** The largest excess in a window above `1 + ⌊T/I⌋`. */
    excessOfStarts: worstExcess(started, one),
    excessOfSlots: worstExcess(slots, one),
    startedEarly: lateUs.filter((us) => us < 0).length,
    lateMs: { least: lateMs(0), p50: lateMs(0.5), p99: lateMs(0.99), max: lateMs(1) },
    /** Slots of the grid that no worker claimed in time. */
    slotsLost: sum(slots.slice(1).map((slot, i) => Math.max(0, (slot - (slots[i] as number)) / intervalUs - 1))),
  }
}

export type Pace = ReturnType<typeof paceOf>

export function describePace({ rateKept, lateMs, excessOfSlots }: Pace): string {
  return `${rateKept.toFixed(4)} of the rate, p99 ${lateMs.p99.toFixed(1)} ms late, above by ${Math.max(0, excessOfSlots)}`
}
