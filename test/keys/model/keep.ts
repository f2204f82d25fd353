import type { Lane } from './lane.ts'
import type { Found } from './waiting.ts'

/** After so many turns without all of its cells, a lane keeps each that it gets. */
const SENIOR_MISSES = 16

/**
 * A contended cell whose turn a lane has is kept for it while the one comes that it waits for: at most for twice the time
 * that its charge keeps others from that cell, and only if the other is expected within that time. Without that, lanes that
 * need two contended cells starve.
 *
 * Decisions where the design is silent:
 * - for a full cell of places, the expected wait is the mean time between two ends, 0 while that is unknown
 * - a cell conforms if its slot is by the time by which the lane would go; for a senior, each other cell counts
 * - a senior may keep cells again once a keep has ended, as far as their budgets go
 */
export function keepContended(
  lane: Lane,
  found: readonly Found[],
  waitsFor: Found,
  { byUs, nowUs, keepBudget }: { byUs: number; nowUs: number; keepBudget: number },
): void {
  const isFull = waitsFor.slotUs === Number.POSITIVE_INFINITY
  const waitUs = isFull ? waitsFor.cell.serviceUs(waitsFor.cost) : waitsFor.slotUs - nowUs
  const isSenior = lane.misses > SENIOR_MISSES
  const slowestUs = Math.max(waitUs, ...found.map(({ cell, cost }) => cell.serviceUs(cost)))
  for (const { cell, cost, slotUs } of found) {
    const { line } = cell
    if (cell === waitsFor.cell || !line || line.size === 0) continue
    const serviceUs = cell.serviceUs(cost)
    if (!isSenior && (slotUs > byUs || waitUs > serviceUs)) continue
    if (!line.mayBeKept(keepBudget, nowUs)) continue
    line.keepFor(lane, nowUs, nowUs + 2 * (isSenior ? slowestUs : serviceUs))
  }
}
