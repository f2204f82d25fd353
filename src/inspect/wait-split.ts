import type { HeldMs, HoldCause } from './queue-status.ts'

/** The clocks of the causes at a time, ms. */
export interface ClockPoint {
  readonly atMs: number
  readonly heldMs: HeldMs
}

export interface Stretch {
  readonly fromMs: number
  readonly toMs: number
}

/** The causes with clocks. Pauses are known exactly, and the rest is the lack of workers. */
const CLOCKED = ['rate', 'limits', 'concurrency'] as const satisfies HoldCause[]

/**
 * Divides a wait among its causes; the parts add up to it. Between two points the clocks are interpolated linearly over
 * the time without pauses, because during a pause nothing else holds.
 * @param points by time
 * @param pauses by time, without overlaps
 */
export function splitWait(points: readonly ClockPoint[], pauses: readonly Stretch[], wait: Stretch): HeldMs {
  const wholeMs = Math.max(0, wait.toMs - wait.fromMs)
  const pause = Math.min(wholeMs, pausedMs(pauses, wait))
  const known = withIdle(points, pauses)
  const [from, to] = [wait.fromMs, wait.toMs].map((ms) => clocksAt(known, pauses, ms))
  const clocked = CLOCKED.map((cause) => Math.max(0, (to?.[cause] ?? 0) - (from?.[cause] ?? 0)))
  const sum = clocked.reduce((all, one) => all + one, 0)
  const share = sum > wholeMs - pause ? (wholeMs - pause) / sum : 1
  const [rate = 0, limits = 0, concurrency = 0] = clocked.map((ms) => ms * share)
  return { rate, limits, concurrency, pause, workers: Math.max(0, wholeMs - pause - rate - limits - concurrency) }
}

/** How much of a stretch was paused. */
export function pausedMs(pauses: readonly Stretch[], { fromMs, toMs }: Stretch): number {
  const parts = pauses.map((pause) => Math.max(0, Math.min(toMs, pause.toMs) - Math.max(fromMs, pause.fromMs)))
  return parts.reduce((sum, part) => sum + part, 0)
}

const NONE: HeldMs = { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 }

/**
 * Adds the idle time between two points, and before the first: a queue is sampled while it has work and when its work
 * ends, so the clocks advanced at the end of the gap, and nothing waited at its start.
 */
function withIdle(points: readonly ClockPoint[], pauses: readonly Stretch[]): ClockPoint[] {
  return points.flatMap((point, i) => {
    const { atMs = Number.NEGATIVE_INFINITY, heldMs = NONE } = points[i - 1] ?? {}
    const sinceMs = unpausedSince(pauses, point.atMs, unpausedMs(point.heldMs) - unpausedMs(heldMs))
    return sinceMs > atMs && sinceMs < point.atMs ? [{ atMs: sinceMs, heldMs }, point] : [point]
  })
}

function unpausedMs({ pause: _, ...held }: HeldMs): number {
  return Object.values(held).reduce((sum, ms) => sum + ms, 0)
}

/** The time since which `ms` were not paused. */
function unpausedSince(pauses: readonly Stretch[], toMs: number, ms: number): number {
  let [fromMs, leftMs] = [toMs, ms]
  for (const pause of pauses.toReversed()) {
    if (pause.fromMs >= fromMs) continue
    const freeMs = Math.max(0, fromMs - pause.toMs)
    if (freeMs >= leftMs) break
    leftMs -= freeMs
    fromMs = pause.fromMs
  }
  return fromMs - leftMs
}

function clocksAt(points: readonly ClockPoint[], pauses: readonly Stretch[], ms: number): HeldMs | undefined {
  const next = points.findIndex(({ atMs }) => atMs > ms)
  const [before, after] = next === -1 ? [points.at(-1), undefined] : [points[next - 1], points[next]]
  if (!before || !after) return (before ?? after)?.heldMs
  const runningMs = (toMs: number) => toMs - before.atMs - pausedMs(pauses, { fromMs: before.atMs, toMs })
  const whole = runningMs(after.atMs)
  const share = whole > 0 ? runningMs(ms) / whole : 0
  const at = (cause: HoldCause) => before.heldMs[cause] + (after.heldMs[cause] - before.heldMs[cause]) * share
  return {
    rate: at('rate'),
    limits: at('limits'),
    concurrency: at('concurrency'),
    pause: at('pause'),
    workers: at('workers'),
  }
}
