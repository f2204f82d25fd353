import type { QueueStatus } from '../inspect/queue-status.ts'

/** What came to a queue, left it and was refused between two looks, jobs a second; undefined for the first look. */
export interface Flow {
  readonly arrivalsPerSecond: number | undefined
  readonly departuresPerSecond: number | undefined
  readonly refusalsPerSecond: number | undefined
}

/** What of a queue flows are reckoned from. */
export type Totals = Pick<QueueStatus, 'at' | 'acceptedTotal' | 'departedTotal' | 'refusedTotal'>

/** Refused jobs have not arrived. Where totals went back, the queue was made anew: nothing is known. */
export function flowBetween(before: Totals | undefined, now: Totals): Flow {
  const seconds = before ? (now.at.getTime() - before.at.getTime()) / 1000 : 0
  const perSecond = (total: 'acceptedTotal' | 'departedTotal' | 'refusedTotal') => {
    const more = before ? now[total] - before[total] : -1
    return seconds > 0 && more >= 0 ? more / seconds : undefined
  }
  return {
    arrivalsPerSecond: perSecond('acceptedTotal'),
    departuresPerSecond: perSecond('departedTotal'),
    refusalsPerSecond: perSecond('refusedTotal'),
  }
}
