import { type Arrival, readyUs } from './arrival.ts'
import { FATE, type Outcome } from './simulation.ts'

/** How the groups of the arrivals fared. Arrivals without a group are not counted. */
export interface GroupSummary {
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
export function groupSummary({ fates, slotsUs }: Outcome, arrivals: readonly Arrival[]): GroupSummary | undefined {
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
