import type { Dispatching } from '../departure/dispatching.ts'
import { type HeldJob, heldJobs } from '../departure/held-job.ts'
import type { Dispatcher } from './dispatcher.ts'

/** What the backend needs of a worker, apart from its loop. */
export interface DispatchedWorker {
  readonly id: string
  readonly allowUnshaped: boolean
  /** Whether its loop runs; otherwise jobs are fetched and finished by hand. */
  looping(): boolean
  nextToken(): string
  keepLock(jobId: string): (() => void) | undefined
}

/**
 * Passes the jobs that a backend fetches to a worker's loop.
 * @param onFetched called for each job that a finish fetched, before BullMQ's code hands it on
 */
export function dispatchingOf(
  worker: DispatchedWorker,
  dispatcher: Dispatcher,
  onFetched: (held: HeldJob) => void,
): Dispatching {
  return {
    workerId: worker.id,
    allowUnshaped: worker.allowUnshaped,
    get horizonUs() {
      // Jobs fetched and finished by hand are not held until a slot.
      return worker.looping() ? dispatcher.horizonUs : 0
    },
    get running() {
      return dispatcher.running
    },
    get nowMs() {
      return dispatcher.nowMs
    },
    nextToken: () => worker.nextToken(),
    keepLock: (jobId) => worker.keepLock(jobId),
    onFetched: (jobs, nowUs, sentMs) => {
      if (!worker.looping()) return
      for (const held of dispatcher.fetched(jobs, nowUs, sentMs)) onFetched(held)
    },
    onDeparture: (reply, sentMs) => {
      // The job fetched by a manual finish is returned to the same caller.
      if (!worker.looping()) return
      const jobs = heldJobs(reply, '')
      dispatcher.awaitHandOn(jobs)
      for (const held of jobs) onFetched(held)
      dispatcher.noteReply(reply, sentMs)
    },
    onBatch: (reply, token, sentMs, handedOn) => {
      dispatcher.noteReply(reply, sentMs, handedOn)
      dispatcher.accept(heldJobs(reply, token))
    },
  }
}
