import type { HeldJob } from '../departure/held-job.ts'

/** A worker's state of one job between its fetch and its end, apart from waiting for its slot in the timer. */
interface JobInHand {
  /** Fetched by the end of another job, and not handed on by BullMQ's code yet. */
  fetched: HeldJob | undefined
  /** On its way to its processor. */
  starting: HeldJob | undefined
  /** Its lock token, while BullMQ's code runs it. */
  token: string | undefined
  /** Cancelled before its processor was called. */
  cancelled: { readonly reason: string | undefined } | undefined
  /** Returned to the queue, which BullMQ's code does not know yet. */
  wentBack: true | undefined
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

  /** The end of another job fetched it. */
  fetched(held: HeldJob): void {
    this.#of(held.id).fetched = held
  }

  takeFetched(id: string): HeldJob | undefined {
    return this.#take(id, 'fetched')
  }

  start(held: HeldJob): void {
    this.#of(held.id).starting = held
  }

  takeStarting(id: string): HeldJob | undefined {
    return this.#take(id, 'starting')
  }

  lock(id: string, token: string): void {
    this.#of(id).token = token
  }

  unlock(id: string, token: string): void {
    if (this.#jobs.get(id)?.token === token) this.#take(id, 'token')
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

  goesBack(id: string): void {
    this.#of(id).wentBack = true
  }

  takeWentBack(id: string): boolean {
    return this.#take(id, 'wentBack') === true
  }

  /** A run has ended, wherever the job is now. */
  ended(held: HeldJob): void {
    if (this.#jobs.get(held.id)?.starting === held) this.#take(held.id, 'starting')
    this.#take(held.id, 'cancelled')
  }

  #of(id: string): JobInHand {
    let job = this.#jobs.get(id)
    if (!job) {
      job = { fetched: undefined, starting: undefined, token: undefined, cancelled: undefined, wentBack: undefined }
      this.#jobs.set(id, job)
    }
    return job
  }

  #take<K extends keyof JobInHand>(id: string, field: K): JobInHand[K] {
    const job = this.#jobs.get(id)
    const value = job?.[field]
    if (!job || value === undefined) return undefined
    job[field] = undefined
    if (isForgotten(job)) this.#jobs.delete(id)
    return value
  }
}

function isForgotten({ fetched, starting, token, cancelled, wentBack }: JobInHand): boolean {
  return !fetched && !starting && token === undefined && !cancelled && !wentBack
}
