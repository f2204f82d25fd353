import { setImmediate as nextTurn } from 'node:timers/promises'
import { type HeldJob, inOrder } from '../departure/held-job.ts'

/** The part of a worker that puts jobs back. */
export interface ReturnHost {
  /** @param leaving no more jobs are requested: slots are refunded if possible, and other workers are woken */
  giveBack(jobs: readonly HeldJob[], leaving: boolean): Promise<void>
}

/** Jobs of a worker that are on their way back to the queue. */
export class ReturningJobs {
  readonly #host: ReturnHost
  readonly #onBack: () => void
  readonly #onError: (error: unknown) => void
  #returning: Promise<void>[] = []
  #lateJobs: HeldJob[] = []
  #lateReturn: Promise<void> = Promise.resolve()

  /**
   * @param onBack called when some are back, or could not be put back
   * @param onError called before, with the error
   */
  constructor(host: ReturnHost, onBack: () => void, onError: (error: unknown) => void) {
    this.#host = host
    this.#onBack = onBack
    this.#onError = onError
  }

  /** Whether some are not back yet. */
  get pending(): boolean {
    return this.#returning.length > 0
  }

  /** Puts jobs back, in their order. */
  start(jobs: readonly HeldJob[], leaving = false): void {
    void this.#untilBack(this.#host.giveBack(jobs, leaving))
  }

  /**
   * Jobs that are late in the same turn go back in one call, because each call puts its jobs in front of the head. A
   * job that was in time for its slot but late for its processor arrives here after later jobs.
   * @returns resolves once the job is back
   */
  late(job: HeldJob): Promise<void> {
    this.#lateJobs.push(job)
    if (this.#lateJobs.length > 1) return this.#lateReturn
    this.#lateReturn = this.#untilBack(
      nextTurn().then(() => this.#host.giveBack(inOrder(this.#lateJobs.splice(0)), false)),
    )
    return this.#lateReturn
  }

  /** Resolves once all jobs now on their way are back. */
  async allBack(): Promise<void> {
    await Promise.all(this.#returning)
  }

  #untilBack(returned: Promise<void>): Promise<void> {
    const done = returned.catch(this.#onError).finally(() => {
      this.#returning = this.#returning.filter((other) => other !== done)
      this.#onBack()
    })
    this.#returning.push(done)
    return done
  }
}
