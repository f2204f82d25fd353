import { refusalOf } from '../admission/reply.ts'
import { withRestore } from '../admission/restore.ts'
import { checkDeadLetterQueue, deadLetterId, deadLetterJob, deadLetterOf } from '../backend/dead-letters.ts'
import { PlaceLine } from './add-when-free.ts'
import type { ShapedQueue } from './queue.ts'

/** The possible changes of a failed job. */
export type FailedChange = { readonly kind: 'retry' } | { readonly kind: 'remove' } | DeadLettering

/** Moves it to a queue of dead letters. */
interface DeadLettering {
  readonly kind: 'deadLetter'
  readonly to: string
}

/** Why a failed job was not changed: it has not failed, a child of it runs, or it belongs to a scheduler. */
export type Unchanged = 'not failed' | 'child runs' | 'scheduled'

/** Which failed jobs to change. */
export interface MatchingOptions {
  /** Jobs whose reason contains this text. Default: all. */
  readonly failedReason?: string | undefined
  /** Stops before the next job; the promise rejects with its reason. */
  readonly signal?: AbortSignal
  /** Called with the id of each changed job. */
  readonly onChanged?: (jobId: string) => void
}

/** Codes of `lua/verbs/remove-failed.lua` and `lua/verbs/dead-letter-failed.lua`. */
const UNCHANGED: Readonly<Record<string, Unchanged>> = { 0: 'not failed', '-1': 'child runs', '-2': 'scheduled' }

/** Jobs read at a time. */
const PAGE = 100

/**
 * Changes one failed job. A retry needs a place, as any job does.
 * @returns why nothing was changed; undefined if it was
 * @throws QueueFullError, GroupFullError, CannotStartInTimeError, KeyInUseError if there is no place for a retry;
 *   InvalidInputError, QueueUnavailableError
 */
export async function changeFailed(
  queue: ShapedQueue,
  jobId: string,
  change: FailedChange,
): Promise<Unchanged | undefined> {
  if (change.kind === 'retry') return retryFailed(queue, jobId)
  if (change.kind === 'deadLetter') return deadLetterFailed(queue, jobId, change.to)
  const code = (await queue.backend.store.run('remove-failed', [jobId])) as number
  return UNCHANGED[code]
}

/**
 * Changes all jobs that have failed by now, oldest first. A retry waits until there is a place for it. Jobs that
 * fail after the call began stay: a job that fails at once would be retried without end.
 */
export async function changeMatching(
  queue: ShapedQueue,
  change: FailedChange,
  { failedReason = '', signal, onChanged }: MatchingOptions,
): Promise<void> {
  if (change.kind === 'deadLetter') checkDeadLetterQueue(change.to, queue.name)
  const line = new PlaceLine()
  const { at } = await queue.meter()
  for (let kept = 0; ; ) {
    const jobs = (await queue.getJobs(['failed'], kept, kept + PAGE - 1, true)).filter((job) => job !== undefined)
    const failedBefore = jobs.filter(({ finishedOn = 0 }) => finishedOn <= at.getTime())
    if (failedBefore.length === 0) return
    for (const { id = '', failedReason: reason } of failedBefore) {
      signal?.throwIfAborted()
      const isMeant = reason?.includes(failedReason)
      const unchanged = isMeant && (await line.wait(queue.name, () => changeFailed(queue, id, change), { signal }))
      if (isMeant && unchanged === undefined) onChanged?.(id)
      // A job that has left the list meanwhile holds no position in it.
      else if (unchanged !== 'not failed') kept += 1
    }
  }
}

async function retryFailed({ backend, name }: ShapedQueue, jobId: string): Promise<Unchanged | undefined> {
  const { store } = backend
  await store.prepared()
  const raw = await withRestore(
    () => store,
    async () => (await store.run('retry-failed', [jobId, store.memory.identity])) as unknown[],
  )
  store.memory.learn(raw[3] as string[] | null)
  const refusal = refusalOf(raw, name)
  if (refusal) throw refusal
  return raw[2] === 'retried' ? undefined : 'not failed'
}

async function deadLetterFailed(queue: ShapedQueue, jobId: string, to: string): Promise<Unchanged | undefined> {
  checkDeadLetterQueue(to, queue.name)
  const { backend } = queue
  const client = await backend.client
  const [job, [throttled]] = await Promise.all([
    queue.getJob(jobId),
    client.hmget(queue.toKey(jobId), 'throttled').catch(() => [null]),
  ])
  if (!job?.finishedOn) return 'not failed'
  const { failedReason = '', finishedOn, attemptsMade } = job
  const letter = deadLetterOf(job, {
    ...{ prefix: queue.opts.prefix ?? 'bull', queueName: queue.name, failedReason, finishedOn, attemptsMade },
    throttled: Number(throttled ?? 0),
  })
  const letters = backend.forQueue(to)
  const { args } = await letters.callToAdd(deadLetterJob(letter), deadLetterId(letter))
  const call = [letters.toKey('meta'), jobId, letter.finishedOn, to, ...args.slice(-3)]
  return UNCHANGED[(await backend.store.run('dead-letter-failed', call)) as number]
}
