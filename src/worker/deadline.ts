import { type Job, UnrecoverableError } from 'bullmq'
import type { RedisClock } from '../redis/clock.ts'

/** BullMQ's reason for a job whose lock expired too often. */
const STALLED = 'job stalled more than allowable limit'
/** The reason written by `lua/shape/job-options.lua`, which cannot format a date. */
const EXPIRED = /^deadline: could not start before (\d+)$/

/** As stored: ms since 1970. */
type Deadline = { readonly mustStartBefore?: number }

/** @param deadlineMs since 1970 */
function deadlineReason(deadlineMs: number): string {
  return `deadline: could not start before ${new Date(deadlineMs).toISOString()}`
}

/**
 * Called just before a job's processor, for a job that is in time for its slot or has none.
 * @param clock Redis's
 * @returns the error to fail a late job with, or undefined
 */
export function expiryOf({ opts }: Pick<Job, 'opts'>, clock: RedisClock): UnrecoverableError | undefined {
  const { mustStartBefore: deadlineMs } = opts as Deadline
  if (deadlineMs === undefined) return undefined
  const nowUs = clock.nowUs()
  if (nowUs === undefined || nowUs <= deadlineMs * 1000) return undefined
  return new UnrecoverableError(deadlineReason(deadlineMs))
}

/** The deadline (ms since 1970) of a job that failed because it could not start in time; undefined for any other. */
export function missedDeadline({ opts, failedReason }: Pick<Job, 'opts' | 'failedReason'>): number | undefined {
  const { mustStartBefore: deadlineMs } = opts as Deadline
  return deadlineMs !== undefined && failedReason === deadlineReason(deadlineMs) ? deadlineMs : undefined
}

/**
 * Readable reason of a job that Redis has marked to fail when it is next fetched.
 * @param stalls how often its lock expired while it ran: its worker died or hung
 */
export function deferredReason(failure: string, stalls: number): string {
  if (failure === STALLED) return `poison: worker died ${stalls} ${stalls === 1 ? 'time' : 'times'}`
  const [, deadlineMs] = EXPIRED.exec(failure) ?? []
  return deadlineMs === undefined ? failure : deadlineReason(Number(deadlineMs))
}
