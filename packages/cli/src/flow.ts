import type { QueueStatus } from 'sluice/inspect'

/**
 * What happened in a queue between two looks, per second; undefined for the first look. Workers report ends, and starts
 * past the meter, every few seconds: their flows are means over a longer time.
 */
export interface Flow {
  readonly arrivalsPerSecond: number | undefined
  readonly departuresPerSecond: number | undefined
  readonly refusalsPerSecond: number | undefined
  readonly completionsPerSecond: number | undefined
  /** Attempts that failed, whether the job was retried or not. */
  readonly failuresPerSecond: number | undefined
  /** Starts past the meter. */
  readonly bypassesPerSecond: number | undefined
}

/** The fields of a queue's status from which flows are computed. */
export type Totals = Pick<QueueStatus, 'at' | 'unread' | Total>

type Total =
  | 'acceptedTotal'
  | 'departedTotal'
  | 'refusedTotal'
  | 'completedTotal'
  | 'failedAttemptsTotal'
  | 'bypassedTotal'

/**
 * Refused jobs do not count as arrivals. If a total decreased, the queue was created anew and its flow is unknown; so it
 * is if only one of the totals lacks a part that could not be read, or both lack all.
 * @param longBefore an earlier look, for what workers report every few seconds
 */
export function flowBetween(before: Totals | undefined, now: Totals, longBefore = before): Flow {
  return {
    arrivalsPerSecond: perSecond('acceptedTotal', before, now),
    departuresPerSecond: perSecond('departedTotal', before, now),
    refusalsPerSecond: perSecond('refusedTotal', before, now),
    completionsPerSecond: perSecond('completedTotal', longBefore, now),
    failuresPerSecond: perSecond('failedAttemptsTotal', longBefore, now),
    bypassesPerSecond: perSecond('bypassedTotal', longBefore, now),
  }
}

function perSecond(total: Total, before: Totals | undefined, now: Totals): number | undefined {
  if (!before || String(before.unread) !== String(now.unread) || now.unread?.includes('queue')) return undefined
  const seconds = (now.at.getTime() - before.at.getTime()) / 1000
  const more = now[total] - before[total]
  return seconds > 0 && more >= 0 ? more / seconds : undefined
}
