import { checkDeadLetterQueue } from '../backend/dead-letters.ts'
import type { RedriveResult } from '../queue/redrive.ts'
import { DashboardProblem } from './problem-error.ts'

export interface RedriveNews {
  readonly queue: string
  readonly from: string
  readonly result?: RedriveResult
  readonly error?: unknown
}

/** Redrives that run in the background after their request: each waits for places in its queue, possibly for hours. */
export class Redrives {
  readonly #running = new Map<string, Promise<void>>()
  readonly #stop = new AbortController()
  readonly #tell: (news: RedriveNews) => void

  /** @param tell called when a redrive ends, unless {@link close} stopped it */
  constructor(tell: (news: RedriveNews) => void) {
    this.#tell = tell
  }

  /**
   * Starts a redrive.
   * @throws InvalidInputError; DashboardProblem 409 while the same one runs
   */
  start(queue: string, from: string, run: (signal: AbortSignal) => Promise<RedriveResult>): void {
    checkDeadLetterQueue(from, queue)
    const key = JSON.stringify([queue, from])
    if (this.#running.has(key)) throw new DashboardProblem(409, `dead letters of "${from}" are being put back already`)
    const running = run(this.#stop.signal).then(
      (result) => this.#tell({ queue, from, result }),
      (error: unknown) => {
        if (!this.#stop.signal.aborted) this.#tell({ queue, from, error })
      },
    )
    this.#running.set(
      key,
      running.finally(() => this.#running.delete(key)),
    )
  }

  /** Stops them before their next job. The rest can be redriven later. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the dashboard is closed'))
    await Promise.all(this.#running.values())
  }
}
