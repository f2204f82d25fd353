import { type DeadLetter, readDeadLetter } from '../backend/dead-letters.ts'
import type { ShapedQueue } from '../queue/queue.ts'

/** A dead letter and the job that holds it. */
export interface HeldLetter {
  /** The id of the job that holds it. */
  readonly letterId: string
  readonly letter: DeadLetter
}

const PAGE = 100

/** The letter in a job of a queue; undefined where there is no such job, or it holds none. */
export async function findLetter(queue: ShapedQueue, letterId: string): Promise<DeadLetter | undefined> {
  const job = await queue.getJob(letterId)
  return job && readDeadLetter(JSON.stringify(job.data))
}

/**
 * The letters of a queue, oldest first. Jobs that hold no letter are skipped. A letter may be removed before the next
 * one is requested; then call its `removed`, which keeps the position.
 */
export async function* eachLetter(queue: ShapedQueue): AsyncGenerator<HeldLetter & { removed(): void }> {
  for (let kept = 0; ; ) {
    const jobs = await queue.getJobs(['waiting'], kept, kept + PAGE - 1, true)
    if (jobs.length === 0) return
    kept += jobs.length
    for (const job of jobs) {
      const letter = job && readDeadLetter(JSON.stringify(job.data))
      if (!letter) continue
      const removed = () => {
        kept -= 1
      }
      yield { letterId: job.id as string, letter, removed }
    }
  }
}
