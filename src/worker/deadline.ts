import { type Job, UnrecoverableError } from 'bullmq'
import type { RedisClock } from '../redis/clock.ts'
import { deadlineReason } from './deferred-failure.ts'

/** BullMQ's default length of the event stream. */
const MAX_EVENTS = 10_000

/** A worker, as far as it reports expired jobs. */
interface ExpiryReporter {
  on(event: 'failed', listener: (job: Job | undefined) => void): unknown
  emit(event: 'expired', job: Job, expiry: { deadline: Date }): boolean
  emit(event: 'error', error: Error): boolean
  readonly backend: { publishEvent(fields: Record<string, string | number>, maxEvents: number): Promise<unknown> }
}

/** When a job must have started, ms since 1970; undefined if it has no deadline. */
function deadlineOf({ opts }: Pick<Job, 'opts'>): number | undefined {
  return (opts as { mustStartBefore?: number }).mustStartBefore
}

/**
 * Called just before a job's processor, for a job that is in time for its slot or has none.
 * @param clock Redis's
 * @returns the error to fail a late job with, or undefined
 */
export function expiryOf(job: Pick<Job, 'opts'>, clock: Pick<RedisClock, 'nowUs'>): UnrecoverableError | undefined {
  const deadlineMs = deadlineOf(job)
  if (deadlineMs === undefined) return undefined
  const nowUs = clock.nowUs()
  if (nowUs === undefined || nowUs <= deadlineMs * 1000) return undefined
  return new UnrecoverableError(deadlineReason(deadlineMs))
}

/** Makes a worker report the jobs that it failed because they could not start in time. */
export function tellExpired(worker: ExpiryReporter): void {
  worker.on('failed', (job) => {
    const deadlineMs = job && deadlineOf(job)
    if (deadlineMs === undefined || job?.failedReason !== deadlineReason(deadlineMs)) return
    worker.emit('expired', job, { deadline: new Date(deadlineMs) })
    // If a script found the job expired, the event is in the stream already.
    if (job.deferredFailure) return
    const event = { event: 'expired', jobId: job.id as string, deadline: deadlineMs }
    worker.backend.publishEvent(event, MAX_EVENTS).catch((error: Error) => worker.emit('error', error))
  })
}
