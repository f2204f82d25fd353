import type { QueueStatus } from '../inspect/queue-status.ts'

/** What happened in a queue between two looks, per second; undefined for the first look. */
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
 */
export function flowBetween(before: Totals | undefined, now: Totals): Flow {
  const isComparable = String(before?.unread) === String(now.unread) && !now.unread?.includes('queue')
  const seconds = before && isComparable ? (now.at.getTime() - before.at.getTime()) / 1000 : 0
  const perSecond = (total: Total) => {
    const more = before ? now[total] - before[total] : -1
    return seconds > 0 && more >= 0 ? more / seconds : undefined
  }
  return {
    arrivalsPerSecond: perSecond('acceptedTotal'),
    departuresPerSecond: perSecond('departedTotal'),
    refusalsPerSecond: perSecond('refusedTotal'),
    completionsPerSecond: perSecond('completedTotal'),
    failuresPerSecond: perSecond('failedAttemptsTotal'),
    bypassesPerSecond: perSecond('bypassedTotal'),
  }
}
