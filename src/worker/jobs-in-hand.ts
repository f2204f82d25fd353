import type { HeldJob } from '../departure/held-job.ts'

/** A run of a job, from its start to its end; of a job that the program fetches by hand, only its start. */
interface Run {
  /** Of its lock. */
  readonly token: string
  /** Until its processor is called. */
  starting: HeldJob | undefined
  /** Whether BullMQ's code ends it. */
  isEnding: boolean
}

/**
 * The jobs of a worker by id. A job that went back may be fetched again while its first run is still ending, so a run
 * clears only what it set itself.
 */
export class JobsInHand {
  readonly #runs = new Map<string, Run>()
  /** Jobs that were cancelled before their processors were called, with the reasons. */
  readonly #cancelled = new Map<string, { readonly reason: string | undefined }>()

  /** The ids of the jobs on their way to their processors. */
  starting(): string[] {
    return [...this.#runs].filter(([, { starting }]) => starting).map(([id]) => id)
  }

  start(id: string, token: string, held?: HeldJob): void {
    this.#runs.set(id, { token, starting: held, isEnding: false })
  }

  /** @returns the job on its way to its processor, which is reached */
  takeStarting(id: string): HeldJob | undefined {
    const run = this.#runs.get(id)
    const held = run?.starting
    if (run) run.starting = undefined
    return held
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
