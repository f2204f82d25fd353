import type { HistoryEntry } from './queue-status.ts'
import type { Stretch } from './wait-split.ts'

/** BullMQ's pause was set or lifted, or a sample found a pause or none. */
export interface PauseMark {
  readonly atMs: number
  readonly paused: boolean
}

/** The sources from which the pauses of a queue are derived. */
export interface PauseSources {
  /** Oldest first. */
  readonly history: readonly HistoryEntry[]
  /** Names of the limits of the shape: a pause by feedback that names one of them held only that limit. */
  readonly limits: readonly string[]
  /** When BullMQ's pause was set and lifted, as far as still known. Oldest first. */
  readonly switches: readonly PauseMark[]
  /** Whether a pause of either kind held, at the times of the samples. Oldest first. */
  readonly samples: readonly PauseMark[]
  /** Whether BullMQ's pause is on now. */
  readonly paused: boolean
}

/** When the queue was paused, by BullMQ or by the meter: sorted by time, without overlaps. */
export function pausesOf({ history, limits, ...sources }: PauseSources): Stretch[] {
  const all = [...meterPauses(history, limits), ...queuePauses(sources)]
  const merged: { fromMs: number; toMs: number }[] = []
  for (const { fromMs, toMs } of all.sort((one, other) => one.fromMs - other.fromMs)) {
    const last = merged.at(-1)
    if (last && fromMs <= last.toMs) last.toMs = Math.max(last.toMs, toMs)
    else merged.push({ fromMs, toMs })
  }
  return merged
}

/** A later pause never shortens an earlier one; lifting it does. */
function meterPauses(history: readonly HistoryEntry[], limits: readonly string[]): Stretch[] {
  const pauses: { fromMs: number; toMs: number }[] = []
  for (const entry of history) {
    const atMs = entry.at.getTime()
    const last = pauses.at(-1)
    // BullMQ's pause is known from its own events.
    if (entry.change.pause === 'queue') continue
    if (entry.kind === 'resume' && last) last.toMs = Math.min(last.toMs, atMs)
    if (!entry.until || !isPause(entry, limits)) continue
    const toMs = entry.until.getTime()
    if (last && atMs <= last.toMs) last.toMs = Math.max(last.toMs, toMs)
    else pauses.push({ fromMs: atMs, toMs: Math.max(atMs, toMs) })
  }
  return pauses
}

function isPause({ kind, change }: HistoryEntry, limits: readonly string[]): boolean {
  if (kind === 'pause') return true
  if (kind !== 'feedback' || change.kind !== 'pause') return false
  const { limit, group } = change.scope as { limit?: unknown; group?: unknown }
  return group === undefined && (typeof limit !== 'string' || !limits.includes(limit))
}

function queuePauses({ switches, samples, paused }: Omit<PauseSources, 'history' | 'limits'>): Stretch[] {
  const pauses: Stretch[] = []
  let sinceMs = pausedBefore(switches[0], samples, paused)
  for (const { atMs, paused: begins } of switches) {
    if (begins) sinceMs ??= atMs
    else if (sinceMs !== undefined) {
      pauses.push({ fromMs: sinceMs, toMs: atMs })
      sinceMs = undefined
    }
  }
  return sinceMs === undefined ? pauses : [...pauses, { fromMs: sinceMs, toMs: Number.POSITIVE_INFINITY }]
}

/**
 * Start of a pause that began before the first known event. A resume event proves nothing, because a queue that is not
 * paused can be resumed too, so a sample must have found the pause.
 */
function pausedBefore(
  first: PauseMark | undefined,
  samples: readonly PauseMark[],
  paused: boolean,
): number | undefined {
  if (first ? first.paused : !paused) return undefined
  const before = samples.filter(({ atMs }) => atMs <= (first?.atMs ?? Number.POSITIVE_INFINITY))
  const running = before.findLastIndex((sample) => !sample.paused)
  return before[running + 1]?.atMs ?? (first ? undefined : Number.NEGATIVE_INFINITY)
}
