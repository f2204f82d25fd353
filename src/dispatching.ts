import type { Dispatching } from './backend-options.ts'
import type { Dispatcher } from './dispatcher.ts'
import { type HeldJob, heldJobs } from './held-job.ts'

/** What the backend has to know of a worker, and what is no concern of its loop. */
export interface DispatchedWorker {
  readonly id: string
  readonly allowUnshaped: boolean
  /** Whether its loop runs: jobs may be fetched and finished by hand instead. */
  looping(): boolean
  nextToken(): string
  keepLock(jobId: string): (() => void) | undefined
}

/**
 * Leads the jobs that a backend fetches to a worker's loop.
 * @param fetched what a finish fetched, until BullMQ's code hands the job on
 */
export function dispatchingOf(
  worker: DispatchedWorker,
  dispatcher: Dispatcher,
  fetched: Map<string, HeldJob>,
): Dispatching {
  return {
    workerId: worker.id,
    allowUnshaped: worker.allowUnshaped,
    get horizonUs() {
      // Nobody holds a job until its slot where jobs are fetched and finished by hand.
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
      for (const held of dispatcher.fetched(jobs, nowUs, sentMs)) fetched.set(held.id, held)
    },
    onDeparture: (reply, sentMs) => {
      // A job that is finished by hand is followed by one that is handed to the same hand.
      if (!worker.looping()) return
      for (const held of heldJobs(reply, '')) fetched.set(held.id, held)
      dispatcher.noteReply(reply, sentMs)
    },
    onBatch: (reply, token, sentMs, handedOn) => {
      dispatcher.noteReply(reply, sentMs, handedOn)
      dispatcher.accept(heldJobs(reply, token))
    },
  }
}
