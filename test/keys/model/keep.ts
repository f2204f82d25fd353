import type { Lane } from './lane.ts'
import type { Found } from './waiting.ts'

/**
 * A cell whose turn a lane has is kept for it while the one comes that it waits for: at most for twice the time that its
 * charge keeps others from that cell, and only if the other is expected within that time. Without that, lanes that need two
 * contended cells starve.
 *
 * Decision: for a full cell of places, the expected wait is the mean time between two ends, 0 while that is unknown.
 */
export function keepOthers(
  lane: Lane,
  found: readonly Found[],
  waitsFor: Found,
  { nowUs, keepBudget }: { nowUs: number; keepBudget: number },
): void {
  const isFull = waitsFor.slotUs === Number.POSITIVE_INFINITY
  const waitUs = isFull ? waitsFor.cell.serviceUs(waitsFor.cost, nowUs, waitsFor.tier) : waitsFor.slotUs - nowUs
  for (const { cell, cost, tier, slotUs } of found) {
    const { line } = cell
    if (cell === waitsFor.cell || !line || slotUs > nowUs) continue
    const serviceUs = cell.serviceUs(cost, nowUs, tier)
    if (waitUs > serviceUs || !line.mayBeKept(keepBudget, nowUs)) continue
    const untilUs = nowUs + Math.ceil(2 * serviceUs)
    line.keep = { lane, fromUs: nowUs, untilUs }
    line.dueUs = untilUs
  }
}
