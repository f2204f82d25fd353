import type { AuditEntry } from '../inspect/queue-status.ts'
import { Level } from './bucket-window.ts'

/** Time between two departures in which nothing held the queue: no job waited, or no worker took it. */
export interface Gap {
  readonly fromUs: number
  readonly toUs: number
  /** For how long of it nothing held the queue, µs. */
  readonly openUs: number
  /** The job that departed at its end. */
  readonly jobId: string
}

/** The longest gaps, in descending order. @param entries in the order in which they were granted */
export function longestGaps(entries: readonly AuditEntry[], count = 5): Gap[] {
  const gaps: Gap[] = []
  let level: Level | undefined
  let before: AuditEntry | undefined
  for (const entry of entries) {
    const { slotUs, cost, intervalUs, burst, jobId } = entry
    const paced = intervalUs !== undefined && burst !== undefined
    const same = before?.intervalUs === intervalUs && before?.burst === burst
    if (before && slotUs > before.slotUs) {
      const held = paced && same && level ? heldUs(level, cost, intervalUs, burst) : 0
      const openUs = Math.min(slotUs - before.slotUs - held, openBetween(before, entry))
      if (openUs > 1) gaps.push({ fromUs: before.slotUs, toUs: slotUs, openUs, jobId })
    }
    level = paced ? (same && level ? level : new Level()).after({ slotUs, cost, intervalUs, burst }) : undefined
    before = entry
  }
  return gaps.sort((one, other) => other.openUs - one.openUs).slice(0, count)
}

/** How long after the last slot the bucket holds a job of that cost. */
function heldUs({ ticks }: Level, cost: number, intervalUs: number, burst: number): number {
  return Math.max(0, ticks / 1024 - (burst - Math.min(cost, burst)) * intervalUs)
}

/**
 * For how long nothing held the queue between two grants. What held it is noted for a job of the mean cost, of which the bucket
 * knows more. A counter that fell was lost with the state of Redis.
 */
function openBetween(before: AuditEntry, entry: AuditEntry): number {
  const held = entry.heldUs - before.heldUs
  return held < 0 ? 0 : entry.grantedUs - before.grantedUs - held
}
