import { type DeadLetter, readDeadLetter } from '../backend/dead-letters.ts'
import type { ShapedQueue } from './queue.ts'

/** Which dead letters to drop. */
export interface DropOptions {
  readonly filter: (letter: DeadLetter) => boolean
  /** Stops before the next dead letter; the promise rejects with its reason. */
  readonly signal?: AbortSignal
  /** Called with each dropped dead letter. */
  readonly onDropped: (letterId: string, letter: DeadLetter) => void
}

/** Dead letters read at a time. */
const PAGE = 100

/**
 * The dead letter in a job of a dead-letter queue.
 * @returns undefined if there is no such job, or it holds none
 */
export async function findDeadLetter(letters: ShapedQueue, letterId: string): Promise<DeadLetter | undefined> {
  const job = await letters.getJob(letterId)
  return job && readDeadLetter(JSON.stringify(job.data))
}

/**
 * Drops one dead letter, and with it the rest of its job.
 * @returns whether it existed
 */
export async function dropDeadLetter(letters: ShapedQueue, letterId: string): Promise<boolean> {
  return (await letters.remove(letterId)) === 1
}

/** Drops dead letters, oldest first. Other jobs of the queue stay. */
export async function dropDeadLetters(letters: ShapedQueue, { filter, signal, onDropped }: DropOptions): Promise<void> {
  for (let kept = 0; ; ) {
    const jobs = await letters.getJobs(['waiting'], kept, kept + PAGE - 1, true)
    if (jobs.length === 0) return
    kept += jobs.length
    for (const job of jobs) {
      const letter = job && readDeadLetter(JSON.stringify(job.data))
      if (!letter || !filter(letter)) continue
      signal?.throwIfAborted()
      // A dead letter that has left meanwhile holds no position either.
      kept -= 1
      if (await dropDeadLetter(letters, job.id as string)) onDropped(job.id as string, letter)
    }
  }
}
