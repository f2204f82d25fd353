import { type DeadLetter, readDeadLetter } from '../backend/dead-letters.ts'
import type { ShapedQueue } from './queue.ts'

/** Which letters to drop. */
export interface DropOptions {
  readonly filter: (letter: DeadLetter) => boolean
  /** Stops before the next letter; the promise rejects with its reason. */
  readonly signal?: AbortSignal
  /** Called with each letter that was dropped. */
  readonly onDropped: (letterId: string, letter: DeadLetter) => void
}

/** Letters read at a time. */
const PAGE = 100

/**
 * The letter in a job of a queue of dead letters.
 * @returns undefined if there is no such job, or it holds none
 */
export async function findDeadLetter(letters: ShapedQueue, letterId: string): Promise<DeadLetter | undefined> {
  const job = await letters.getJob(letterId)
  return job && readDeadLetter(JSON.stringify(job.data))
}

/**
 * Drops one letter, and with it what is left of its job.
 * @returns whether it was there
 */
export async function dropDeadLetter(letters: ShapedQueue, letterId: string): Promise<boolean> {
  return (await letters.remove(letterId)) === 1
}

/** Drops letters, the oldest first. Jobs that hold no letter are left alone. */
export async function dropDeadLetters(letters: ShapedQueue, { filter, signal, onDropped }: DropOptions): Promise<void> {
  for (let kept = 0; ; ) {
    const jobs = await letters.getJobs(['waiting'], kept, kept + PAGE - 1, true)
    if (jobs.length === 0) return
    kept += jobs.length
    for (const job of jobs) {
      const letter = job && readDeadLetter(JSON.stringify(job.data))
      if (!letter || !filter(letter)) continue
      signal?.throwIfAborted()
      // A letter that has left meanwhile holds no position either.
      kept -= 1
      if (await dropDeadLetter(letters, job.id as string)) onDropped(job.id as string, letter)
    }
  }
}
