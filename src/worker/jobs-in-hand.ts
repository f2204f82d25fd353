import type { HeldJob } from '../departure/held-job.ts'

/** A worker's state of one job between its start and its end. */
interface JobInHand {
  /** On its way to its processor. */
  starting: HeldJob | undefined
  /** Its lock token, from its start to its end. */
  token: string | undefined
  /** Cancelled before its processor was called. */
  cancelled: { readonly reason: string | undefined } | undefined
  /** The lock token of the run that BullMQ's code ends. */
  ending: string | undefined
}

/**
 * The jobs of a worker by id. A job that went back may be fetched again while its first run is still ending, so a run
 * clears only what it set itself.
 */
export class JobsInHand {
  readonly #jobs = new Map<string, JobInHand>()

  /** The ids of the jobs on their way to their processors. */
  starting(): string[] {
    return [...this.#jobs].filter(([, { starting }]) => starting).map(([id]) => id)
  }

  start(held: HeldJob): void {
    const job = this.#of(held.id)
    job.starting = held
    job.token = held.token
  }

  takeStarting(id: string): HeldJob | undefined {
    return this.#take(id, 'starting')
  }

  lock(id: string, token: string): void {
    this.#of(id).token = token
  }

  unlock(id: string, token: string): void {
    const job = this.#jobs.get(id)
    if (job?.token !== token) return
    clearRun(job)
    this.#forget(id, job)
  }

  lockToken(id: string): string | undefined {
    return this.#jobs.get(id)?.token
  }

  cancel(id: string, reason: string | undefined): void {
    this.#of(id).cancelled = { reason }
  }

  /** @returns undefined if it was not cancelled */
  takeCancelled(id: string): { readonly reason: string | undefined } | undefined {
    return this.#take(id, 'cancelled')
  }

  /** BullMQ's code ends the run that has this lock token. */
  ends(id: string, token: string): void {
    const job = this.#jobs.get(id)
    if (job?.token === token) job.ending = token
  }

  /** Whether BullMQ's code, which ran a job with this lock token, ends it. */
  isEnding(id: string, token: string): boolean {
    const job = this.#jobs.get(id)
    return job?.token === token && job.ending === token
  }

  /** A run has ended, wherever the job is now. */
  ended(held: HeldJob): void {
    const job = this.#jobs.get(held.id)
    if (!job) return
    if (job.starting === held) job.starting = undefined
    job.cancelled = undefined
    if (job.token === held.token) clearRun(job)
    this.#forget(held.id, job)
  }

  #of(id: string): JobInHand {
    let job = this.#jobs.get(id)
    if (!job) {
      job = { starting: undefined, token: undefined, cancelled: undefined, ending: undefined }
      this.#jobs.set(id, job)
    }
    return job
  }

  #take<K extends keyof JobInHand>(id: string, field: K): JobInHand[K] {
    const job = this.#jobs.get(id)
    const value = job?.[field]
    if (!job || value === undefined) return undefined
    job[field] = undefined
    this.#forget(id, job)
    return value
  }

  #forget(id: string, { starting, token, cancelled }: JobInHand): void {
    if (!starting && token === undefined && !cancelled) this.#jobs.delete(id)
  }
}

function clearRun(job: JobInHand): void {
  job.token = undefined
  job.ending = undefined
}
