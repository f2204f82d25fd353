import type { QueueFacts, Sample } from './queue-status.ts'

/** How fast a queue drained recently, over the time in which jobs waited and no pause held. */
export interface DrainPace {
  readonly departuresPerSecond: number
  /** The share of that time in which the head waited for a worker, or for running jobs to end: 0 to 1. */
  readonly lack: number
}

/** ms */
const LONGEST_MS = 60_000
const SHORTEST_MS = 1000

/**
 * The pace of the last minute; undefined if that time is too short for an estimate.
 * @param samples oldest first
 * @param sinceMs when the current rate and burst began
 */
export function drainPace(samples: readonly Sample[], status: QueueFacts, sinceMs: number): DrainPace | undefined {
  const nowMs = status.at.getTime()
  const earliestMs = Math.max(sinceMs, nowMs - LONGEST_MS)
  const before = samples.findLastIndex(
    ({ at, waiting, paused }) => waiting === 0 || paused || at.getTime() < earliestMs,
  )
  const first = samples[before + 1]
  const spanMs = first ? nowMs - first.at.getTime() : 0
  if (!first || spanMs < SHORTEST_MS) return undefined
  const held = (cause: 'workers' | 'concurrency') => Math.max(0, status.heldMs[cause] - first.heldMs[cause])
  return {
    departuresPerSecond: (Math.max(0, status.departedTotal - first.departed) * 1000) / spanMs,
    lack: Math.min(1, (held('workers') + held('concurrency')) / spanMs),
  }
}
