import { setImmediate as nextTurn } from 'node:timers/promises'
import { type HeldJob, inOrder } from '../departure/held-job.ts'

/** Who puts jobs back. */
export interface ReturnHost {
  /** @param leaving no more jobs are asked for: slots are refunded where they can be, and others are told */
  giveBack(jobs: readonly HeldJob[], leaving: boolean): Promise<void>
  onError(error: unknown): void
}

/** Jobs of a worker that are on their way back to the queue. */
export class ReturningJobs {
  readonly #host: ReturnHost
  readonly #onBack: () => void
  #returning: Promise<void>[] = []
  #lateJobs: HeldJob[] = []
  #lateReturn: Promise<void> = Promise.resolve()

  /** @param onBack called when some are back, or could not be put back */
  constructor(host: ReturnHost, onBack: () => void) {
    this.#host = host
    this.#onBack = onBack
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
   * Those that are late in one turn go back in one call: each call puts its jobs before what is at the head. One that
   * was in time for its slot and is late for its processor comes here after those behind it.
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

  /** Resolves once all are back that are on their way now. */
  async allBack(): Promise<void> {
    await Promise.all(this.#returning)
  }

  #untilBack(returned: Promise<void>): Promise<void> {
    const done = returned
      .catch((error: unknown) => this.#host.onError(error))
      .finally(() => {
        this.#returning = this.#returning.filter((other) => other !== done)
        this.#onBack()
      })
    this.#returning.push(done)
    return done
  }
}
