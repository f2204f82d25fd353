import { type Job, UnrecoverableError } from 'bullmq'
import { deadlineReason } from './deferred-failure.ts'

/** As many as BullMQ keeps where nobody says otherwise. */
const MAX_EVENTS = 10_000

/** What tells of expired jobs: a worker. */
interface Telling {
  on(event: 'failed', listener: (job: Job | undefined) => void): unknown
  emit(event: 'expired', job: Job, expiry: { deadline: Date }): boolean
  emit(event: 'error', error: Error): boolean
  readonly backend: { publishEvent(fields: Record<string, string | number>, maxEvents: number): Promise<unknown> }
}

/** When a job must have started, ms since 1970; undefined where it does not say. */
function deadlineOf({ opts }: Pick<Job, 'opts'>): number | undefined {
  return (opts as { mustStartBefore?: number }).mustStartBefore
}

/**
 * Asked when a job's processor is about to be called: its slot was in time, or nothing held it.
 * @param nowUs on Redis's clock, where that is known
 * @returns what the job fails with because it is too late, or undefined
 */
export function expiryOf(job: Pick<Job, 'opts'>, nowUs: number | undefined): UnrecoverableError | undefined {
  const deadlineMs = deadlineOf(job)
  if (deadlineMs === undefined || nowUs === undefined || nowUs <= deadlineMs * 1000) return undefined
  return new UnrecoverableError(deadlineReason(deadlineMs))
}

/** Makes a worker tell of jobs that it failed because they could not start in time. */
export function tellExpired(worker: Telling): void {
  worker.on('failed', (job) => {
    const deadlineMs = job && deadlineOf(job)
    if (deadlineMs === undefined || job?.failedReason !== deadlineReason(deadlineMs)) return
    worker.emit('expired', job, { deadline: new Date(deadlineMs) })
    // Where Redis has found it, it is in the stream of events already.
    if (job.deferredFailure) return
    const event = { event: 'expired', jobId: job.id as string, deadline: deadlineMs }
    worker.backend.publishEvent(event, MAX_EVENTS).catch((error: Error) => worker.emit('error', error))
  })
}
