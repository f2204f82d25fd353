import type { MeterState } from '../../meter-state.ts'
import { intervalUs, parseRate } from '../../rate.ts'

/**
 * When a job will start that has so many ahead of it, by a meter that was read a while ago; undefined where nobody can
 * tell. The bucket is full enough for a cost c at once `level + c` is the burst (docs/algorithm.md); where jobs waited it was
 * as full all the time.
 * @param ageMs since the meter was read
 */
export function estimatedStart(state: MeterState, ageMs: number, position: number): Date | undefined {
  const { at, paused, pausedUntil, rate, level, meanCost, waiting, shape } = state
  if (paused) return undefined
  const nowMs = at.getTime() + ageMs
  const readyMs = Math.max(nowMs, pausedUntil?.getTime() ?? 0)
  if (rate === undefined) return position === 0 ? new Date(readyMs) : undefined
  const intervalMs = intervalUs(parseRate(rate)) / 1000
  const owed = waiting > 0 ? level : Math.max(0, level - ageMs / intervalMs)
  const over = owed + (position + 1) * meanCost - (shape?.burst ?? 1)
  return new Date(readyMs + Math.max(0, over) * intervalMs)
}
