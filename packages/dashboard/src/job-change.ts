import type { Attribution, ShapedQueue } from 'sluice'
import { type FailedChange, failureKind, type Unchanged } from 'sluice/internal'
import { ProblemError } from 'sluice-gateway/internal'
import type { Action } from './action.ts'

export type JobAction = Extract<Action, { action: 'retryJob' | 'removeJob' | 'buryJob' | 'promoteJob' }>

/** How the history names what was done with failed jobs. */
export const DONE: Readonly<Record<FailedChange['kind'], string>> = {
  retry: 'retried',
  remove: 'removed',
  bury: 'moved to dead letters',
}

const WHY_UNCHANGED: Readonly<Record<Unchanged, string>> = {
  'not failed': 'the job has not failed any more',
  'child runs': 'a child of the job runs: the job cannot be removed now',
  scheduled: 'the job belongs to a scheduler: remove that instead',
}

/**
 * Changes one job by hand.
 * @throws QueueFullError, GroupFullError, CannotStartInTimeError if a job is to be retried and its queue has no place;
 *   ProblemError 404 or 409 if there is no such job, or if it is in another state. Nothing was changed then
 */
export async function changeJob(queue: ShapedQueue, action: JobAction, who: Attribution): Promise<void> {
  const { jobId } = action
  if (action.action === 'promoteJob') {
    await checkState(queue, jobId, 'delayed')
    await promote(queue, jobId)
    return queue.backend.store.note('job', { promoted: jobId }, who)
  }
  await checkState(queue, jobId, 'failed')
  const change = failedChange(action)
  // Loaded late, as the queue is.
  const { changeFailed } = await import('sluice/internal')
  const unchanged = await changeFailed(queue, jobId, change)
  if (unchanged === 'not failed') await checkState(queue, jobId, 'failed')
  if (unchanged) throw new ProblemError(409, WHY_UNCHANGED[unchanged])
  await queue.backend.store.note('job', { [DONE[change.kind]]: jobId }, who)
}

/** What an action asks for, of one job or of many. */
export function failedChange(
  action: Extract<Action, { action: `${'retry' | 'remove' | 'bury'}${'Job' | 'Jobs'}` }>,
): FailedChange {
  switch (action.action) {
    case 'retryJob':
    case 'retryJobs':
      return { kind: 'retry' }
    case 'removeJob':
    case 'removeJobs':
      return { kind: 'remove' }
    default:
      return { kind: 'bury', to: action.to }
  }
}

/** A delayed job holds a place already. */
async function promote(queue: ShapedQueue, jobId: string): Promise<void> {
  const job = (await queue.getJob(jobId)) ?? noJob()
  try {
    await job.promote()
  } catch (error) {
    if (!(error instanceof Error) || failureKind(error)) throw error
    // Another change was faster.
    await checkState(queue, jobId, 'delayed')
    throw new ProblemError(409, error.message)
  }
}

/** An id may be the name of one of BullMQ's lists or sets: its state is unknown then, too. */
async function checkState(queue: ShapedQueue, jobId: string, needed: 'failed' | 'delayed'): Promise<void> {
  const state = await queue.getJobState(jobId)
  if (state === 'unknown') noJob()
  if (state !== needed) throw new ProblemError(409, `the job is ${state}: this is for ${needed} jobs`)
}

function noJob(): never {
  throw new ProblemError(404, 'there is no such job')
}
