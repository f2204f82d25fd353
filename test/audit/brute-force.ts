import type { PacedDeparture } from '../../src/audit/stretches.ts'

/** The worst excess (units of cost) over all closed windows, each summed up by itself. */
export function worstExcess(departures: readonly PacedDeparture[]): number {
  const all = [departures, ...runs(departures)]
  return Math.max(...all.flatMap((some) => excesses(some)))
}

function excesses(departures: readonly PacedDeparture[]): number[] {
  const burst = Math.max(...departures.map((one) => one.burst))
  const dear = Math.max(0, ...departures.map(({ cost, burst: own }) => cost - own))
  return departures.flatMap((_, from) =>
    departures.slice(from).map((_, i) => {
      const window = departures.slice(from, from + i + 1)
      const cost = window.reduce((sum, one) => sum + one.cost, 0)
      const drained = window.slice(1).reduce((sum, one, k) => {
        const before = window[k] as PacedDeparture
        return sum + (one.slotUs - before.slotUs) / Math.min(one.intervalUs, before.intervalUs)
      }, 0)
      return cost - burst - dear - drained
    }),
  )
}

function runs(departures: readonly PacedDeparture[]): PacedDeparture[][] {
  const key = ({ intervalUs, burst }: PacedDeparture) => `${intervalUs} ${burst}`
  const starts = departures.flatMap((one, i) => {
    const before = departures[i - 1]
    return before && key(before) === key(one) ? [] : [i]
  })
  return starts.map((start, i) => departures.slice(start, starts[i + 1]))
}
