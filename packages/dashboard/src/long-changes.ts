import { ProblemError } from 'sluice-gateway/internal'

/** The end of a change that took a while. */
export interface LongChangeNews {
  readonly queue: string
  readonly change: string
  readonly result?: object
  readonly error?: unknown
}

/** Changes that run in the background after their request: each waits for places in its queue, possibly for hours. */
export class LongChanges {
  readonly #running = new Map<string, Promise<void>>()
  readonly #stop = new AbortController()
  readonly #onEnd: (news: LongChangeNews) => void

  /** @param onEnd called when a change ends, unless {@link close} stopped it */
  constructor(onEnd: (news: LongChangeNews) => void) {
    this.#onEnd = onEnd
  }

  /**
   * Starts a change.
   * @param change what it does: one of a kind runs at a time in a queue
   * @throws ProblemError 409 while the same one runs
   */
  start(queue: string, change: string, run: (signal: AbortSignal) => Promise<object>): void {
    const key = JSON.stringify([queue, change])
    if (this.#running.has(key)) throw new ProblemError(409, `this runs already: ${change}`)
    const running = run(this.#stop.signal).then(
      (result) => this.#onEnd({ queue, change, result }),
      (error: unknown) => {
        if (!this.#stop.signal.aborted) this.#onEnd({ queue, change, error })
      },
    )
    this.#running.set(
      key,
      running.finally(() => this.#running.delete(key)),
    )
  }

  /** Stops them before their next job. The rest can be changed later. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('the dashboard is closed'))
    await Promise.all(this.#running.values())
  }
}
