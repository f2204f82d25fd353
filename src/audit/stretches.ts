import type { AuditEntry } from '../inspect/queue-status.ts'

/** A departure from an enforced bucket. */
export interface PacedDeparture {
  readonly slotUs: number
  /** Its charge, without refunds. */
  readonly cost: number
  readonly intervalUs: number
  readonly burst: number
}

/**
 * Splits departures where no bound spans both sides: at a departure that no bucket paced, where slots go back (Redis's
 * clock was set back, and the bucket with it), and where the shape changed more than once between two departures (which
 * do not show the shapes in between).
 * @param entries in the order in which they were granted
 * @param changesUs when the shape may have changed, µs, ascending
 */
export function stretchesOf(
  entries: readonly AuditEntry[],
  changesUs: readonly number[] = [],
): readonly (readonly PacedDeparture[])[] {
  const paced: PacedDeparture[][] = []
  let current: PacedDeparture[] = []
  const cut = () => {
    if (current.length > 0) paced.push(current)
    current = []
  }
  for (const { slotUs, cost, refunded = 0, intervalUs, burst } of entries) {
    if (intervalUs === undefined || burst === undefined) {
      cut()
      continue
    }
    const before = current.at(-1)
    if (before && (slotUs < before.slotUs || changesIn(changesUs, before.slotUs, slotUs) > 1)) cut()
    current.push({ slotUs, cost: Math.max(0, cost - refunded), intervalUs, burst })
  }
  cut()
  return paced
}

/**
 * The departures that count: without those that were given back before they started. A worker that closes, or that is
 * late, gives jobs back, and their slots may be granted again. Such a job departs again; the earlier departure is left
 * out if the later slot is not later, or if its start is unreported while other starts are reported. (A worker that
 * died right after a start, or has not reported it yet, looks the same: in doubt, no violation is reported.)
 */
export function keptDepartures(entries: readonly AuditEntry[]): AuditEntry[] {
  const hasStarts = entries.some(({ startedUs }) => startedUs !== undefined)
  const againUs = new Map<string, number>()
  const kept = entries.toReversed().filter(({ jobId, slotUs, startedUs }) => {
    const again = againUs.get(jobId)
    againUs.set(jobId, slotUs)
    if (again === undefined) return true
    return again > slotUs && (startedUs !== undefined || !hasStarts)
  })
  return kept.reverse()
}

function changesIn(changesUs: readonly number[], fromUs: number, toUs: number): number {
  return firstAfter(changesUs, toUs) - firstAfter(changesUs, fromUs)
}

/** Index of the first later value; binary search. */
function firstAfter(sorted: readonly number[], us: number): number {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((sorted[middle] as number) <= us) low = middle + 1
    else high = middle
  }
  return low
}
