import type { MeterState } from '../../meter-state.ts'

/**
 * When a job will start that has so many ahead of it, by a meter that was read a while ago; undefined where nobody can
 * tell. A cost c leaves at once while the bucket's level and c are at most the burst (docs/algorithm.md); where jobs waited,
 * the bucket was as full all the time.
 * @param intervalMs between units at the rate in force; undefined: there is none
 * @param ageMs since the meter was read
 */
export function estimatedStart(
  { at, paused, pausedUntil, level, meanCost, waiting, shape }: MeterState,
  intervalMs: number | undefined,
  ageMs: number,
  position: number,
): Date | undefined {
  if (paused) return undefined
  const readyMs = Math.max(at.getTime() + ageMs, pausedUntil?.getTime() ?? 0)
  if (intervalMs === undefined) return position === 0 ? new Date(readyMs) : undefined
  const owed = waiting > 0 ? level : Math.max(0, level - ageMs / intervalMs)
  const over = owed + (position + 1) * meanCost - (shape?.burst ?? 1)
  return new Date(readyMs + Math.max(0, over) * intervalMs)
}
