import { QueueFullError } from '../errors.ts'
import type { ShapedQueue } from '../queue/queue.ts'
import { failureKind } from '../redis/failures.ts'
import type { Attribution } from '../shape/store.ts'
import type { Action } from './action.ts'
import { DashboardProblem } from './problem-error.ts'

export type JobAction = Extract<Action, { jobId: string }>

type Job = NonNullable<Awaited<ReturnType<ShapedQueue['getJob']>>>

/** Each change: the state that it needs, BullMQ's call, and how the history names it. */
const CHANGES: Readonly<
  Record<JobAction['action'], { state: 'failed' | 'delayed'; run: (job: Job) => Promise<void>; done: string }>
> = {
  retryJob: { state: 'failed', run: (job) => job.retry('failed'), done: 'retried' },
  removeJob: { state: 'failed', run: (job) => job.remove(), done: 'removed' },
  promoteJob: { state: 'delayed', run: (job) => job.promote(), done: 'promoted' },
}

/**
 * Changes one job by hand.
 * @throws QueueFullError if a job is to be retried and its queue has no place; DashboardProblem 404 or 409 if there is
 *   no such job, or if it is in another state. Nothing was changed then
 */
export async function changeJob(
  queue: ShapedQueue,
  { action, jobId }: Pick<JobAction, 'action' | 'jobId'>,
  who: Attribution,
): Promise<void> {
  const { state, run, done } = CHANGES[action]
  await checkState(queue, jobId, state)
  if (action === 'retryJob') await checkPlace(queue)
  const job = (await queue.getJob(jobId)) ?? noJob()
  try {
    await run(job)
  } catch (error) {
    if (!(error instanceof Error) || failureKind(error)) throw error
    // Another change was faster.
    await checkState(queue, jobId, state)
    // BullMQ's only other reason: it removes no job whose child runs.
    throw new DashboardProblem(409, error.message)
  }
  await queue.backend.store.note('job', { [done]: jobId }, who)
}

/** An id may be the name of one of BullMQ's lists or sets: its state is unknown then, too. */
async function checkState(queue: ShapedQueue, jobId: string, needed: string): Promise<void> {
  const state = await queue.getJobState(jobId)
  if (state === 'unknown') noJob()
  if (state !== needed) throw new DashboardProblem(409, `the job is ${state}: this is for ${needed} jobs`)
}

function noJob(): never {
  throw new DashboardProblem(404, 'there is no such job')
}

/** A pause that does not end by itself: as long as admission says. */
const OPEN_ENDED_PAUSE_MS = 60_000

/**
 * BullMQ's retry asks for no place, so that what comes back by itself is never refused. A person can come again: a
 * retry by hand does not bring a queue over its capacity, but for places that are taken at the same moment.
 */
async function checkPlace(queue: ShapedQueue): Promise<void> {
  const { at, shape, depth, capacity, paused, pausedUntil, nextDepartureAt } = await queue.meter()
  if (shape?.mode !== 'enforce' || capacity === undefined || depth < capacity) return
  // The next departure is the first moment at which a place may be free.
  const nextMs = Math.max(1, (nextDepartureAt ?? at).getTime() - at.getTime())
  throw new QueueFullError(queue.name, {
    ...{ depth, capacity, paused: paused || pausedUntil !== undefined },
    retryAfterMs: paused ? OPEN_ENDED_PAUSE_MS : nextMs,
  })
}
