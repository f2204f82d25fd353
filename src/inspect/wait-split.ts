import { mapCauses } from '../departure/departure.ts'
import { HeldClockMemory } from '../reports/held-clocks.ts'
import { type HeldMs, HOLD_CAUSES } from './queue-status.ts'

/** The clocks of the causes at a time, ms. */
export interface ClockPoint {
  readonly atMs: number
  readonly heldMs: HeldMs
}

export interface Stretch {
  readonly fromMs: number
  readonly toMs: number
}

/**
 * Divides a wait among its causes; the parts add up to it. Pauses are known exactly. During a pause nothing else holds,
 * so the other clocks are read over the time without pauses, and the rest is the lack of workers.
 * @param points by time
 * @param pauses by time, without overlaps
 */
export function splitWait(points: readonly ClockPoint[], pauses: readonly Stretch[], wait: Stretch): HeldMs {
  const originMs = Math.min(wait.fromMs, points[0]?.atMs ?? wait.fromMs)
  const unpausedUs = (toMs: number) => 1000 * (toMs - originMs - pausedMs(pauses, { fromMs: originMs, toMs }))
  const parts = HOLD_CAUSES.map(() => 0)
  const [fromUs, toUs] = [unpausedUs(wait.fromMs), unpausedUs(wait.toMs)]
  clocksOf(points, unpausedUs).addSplit(parts, fromUs, toUs)
  const pause = Math.max(0, wait.toMs - wait.fromMs - Math.max(0, toUs - fromUs) / 1000)
  return { ...mapCauses((_, i) => (parts[i] as number) / 1000), pause }
}

/** How much of a stretch was paused. */
export function pausedMs(pauses: readonly Stretch[], { fromMs, toMs }: Stretch): number {
  const parts = pauses.map((pause) => Math.max(0, Math.min(toMs, pause.toMs) - Math.max(fromMs, pause.fromMs)))
  return parts.reduce((sum, part) => sum + part, 0)
}

function clocksOf(points: readonly ClockPoint[], unpausedUs: (ms: number) => number): HeldClockMemory {
  const clocks = new HeldClockMemory(Number.POSITIVE_INFINITY)
  const all = points.map(({ atMs, heldMs }) => ({
    atUs: unpausedUs(atMs),
    heldUs: HOLD_CAUSES.map((cause) => (cause === 'pause' ? 0 : 1000 * heldMs[cause])),
  }))
  // Of several points in one pause, the last.
  const last = all.filter(({ atUs }, i) => (all[i + 1]?.atUs ?? Number.POSITIVE_INFINITY) > atUs)
  for (const point of last) clocks.add(point)
  return clocks
}
