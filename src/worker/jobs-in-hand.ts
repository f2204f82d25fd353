import type { HeldJob } from '../departure/held-job.ts'
import type { Batch } from './batch.ts'

/** A job on its way to its processor. */
export interface StartingJob {
  readonly held: HeldJob
  /** The batch in which it runs; undefined: by itself. */
  readonly batch: Batch | undefined
}

/** A run of a job, from its start to its end; for a job that the program fetches by hand, only its start. */
interface Run {
  /** The token of its lock. */
  readonly token: string
  /** Set until its processor is called. */
  starting: StartingJob | undefined
  /** Whether BullMQ's code ends it. */
  isEnding: boolean
  /** The error of an aborted run. */
  failure: Error | undefined
}

/** A run that was cancelled before this worker knew of it, or began it. */
interface Cancelled {
  readonly failure: Error
  readonly atMs: number
}

/** Longest time for which a job that Redis granted is not known here yet, or is held for its slot, ms. */
const CANCELLED_MEMORY_MS = 60_000

/**
 * The jobs of a worker by id. A job that went back may be fetched again while its first run is still ending, so a run
 * clears only its own entries.
 */
export class JobsInHand {
  readonly #runs = new Map<string, Run>()
  /** Jobs that were cancelled before their processors were called, with the reasons. */
  readonly #cancelled = new Map<string, { readonly reason: string | undefined }>()
  /** Runs that were cancelled through the queue, by job and lock token, in the order of the messages. */
  readonly #notBegun = new Map<string, Cancelled>()

  /** The ids of the jobs on their way to their processors. */
  starting(): string[] {
    return [...this.#runs].filter(([, { starting }]) => starting).map(([id]) => id)
  }

  start(id: string, token: string, starting?: StartingJob): void {
    const name = runName(id, token)
    const failure = this.#notBegun.get(name)?.failure
    this.#notBegun.delete(name)
    this.#runs.set(id, { token, starting, isEnding: false, failure })
  }

  /** The running jobs, by their ids and lock tokens. */
  runs(): { readonly id: string; readonly token: string }[] {
    return [...this.#runs].map(([id, { token }]) => ({ id, token }))
  }

  /**
   * A run was cancelled through the queue.
   * @param token of its lock; '' for any current run of the job
   * @returns whether it runs here
   */
  cancelRun(id: string, token: string, failure: Error): boolean {
    const run = this.#runs.get(id)
    if (run && (token === '' || token === run.token)) {
      run.failure = failure
      return true
    }
    const nowMs = performance.now()
    for (const [name, { atMs }] of this.#notBegun) {
      if (nowMs - atMs < CANCELLED_MEMORY_MS) break
      this.#notBegun.delete(name)
    }
    if (token !== '') this.#notBegun.set(runName(id, token), { failure, atMs: nowMs })
    return false
  }

  /** A run took too long: unless it was cancelled, it fails with this error. */
  timedOut(id: string, failure: Error): void {
    const run = this.#runs.get(id)
    if (run) run.failure ??= failure
  }

  /** The error of an aborted run; undefined if it was not aborted. */
  failureOf(id: string): Error | undefined {
    return this.#runs.get(id)?.failure
  }

  /** @returns the job on its way to its processor, which is reached */
  takeStarting(id: string): StartingJob | undefined {
    const run = this.#runs.get(id)
    const starting = run?.starting
    if (run) run.starting = undefined
    return starting
  }

  lockToken(id: string): string | undefined {
    return this.#runs.get(id)?.token
  }

  cancel(id: string, reason: string | undefined): void {
    this.#cancelled.set(id, { reason })
  }

  /** @returns undefined if it was not cancelled */
  takeCancelled(id: string): { readonly reason: string | undefined } | undefined {
    const cancelled = this.#cancelled.get(id)
    this.#cancelled.delete(id)
    return cancelled
  }

  /** BullMQ's code ends the run that has this lock token. */
  ends(id: string, token: string): void {
    const run = this.#runs.get(id)
    if (run?.token === token) run.isEnding = true
  }

  /** Whether BullMQ's code, which ran a job with this lock token, ends it. */
  isEnding(id: string, token: string): boolean {
    const run = this.#runs.get(id)
    return run?.token === token && run.isEnding
  }

  /** A run has ended, wherever the job is now. */
  ended(id: string, token: string): void {
    this.#cancelled.delete(id)
    if (this.#runs.get(id)?.token === token) this.#runs.delete(id)
  }
}

function runName(id: string, token: string): string {
  return `${id} ${token}`
}
