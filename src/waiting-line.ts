import { InvalidInputError } from './errors.ts'
import { MAX_TIMER_MS } from './max-timer.ts'

export interface LineOptions {
  /** Give up after this many ms. Default: no limit. */
  readonly timeoutMs?: number | undefined
  /** Stops the wait; the promise rejects with its reason. */
  readonly signal?: AbortSignal | undefined
}

/** Lets one caller try at a time: only the first in line, so that callers of one process are served in order. */
export class WaitingLine {
  #tail: Promise<void> = Promise.resolve()
  #waiting = 0

  /** Callers in line, including the current one. */
  get waiting(): number {
    return this.#waiting
  }

  /**
   * @param attempt retries until it succeeds, or the signal stops it
   * @param late the error to throw on a timeout. @param cause what the attempt threw then
   */
  async wait<T>(
    attempt: (stop: AbortSignal) => Promise<T>,
    { timeoutMs, signal }: LineOptions,
    late: (cause: unknown) => Error,
  ): Promise<T> {
    checkTimeout(timeoutMs)
    const timeout = timeoutMs === undefined ? undefined : AbortSignal.timeout(Math.ceil(timeoutMs))
    const stop = AbortSignal.any([timeout, signal].filter((s) => s !== undefined))
    const turn = this.#tail
    let leave: () => void = () => {}
    const left = new Promise<void>((resolve) => {
      leave = resolve
    })
    this.#tail = turn.then(() => left)
    this.#waiting += 1
    try {
      await unlessStopped(turn, stop)
      return await attempt(stop)
    } catch (error) {
      if (timeout?.aborted && !signal?.aborted && stop.aborted) throw late(error)
      throw error
    } finally {
      this.#waiting -= 1
      leave()
    }
  }
}

function checkTimeout(timeoutMs: number | undefined): void {
  if (timeoutMs === undefined) return
  if (typeof timeoutMs === 'number' && timeoutMs >= 0 && timeoutMs <= MAX_TIMER_MS) return
  throw new InvalidInputError(`timeoutMs must be a number from 0 to ${MAX_TIMER_MS}; got ${String(timeoutMs)}`)
}

async function unlessStopped(turn: Promise<void>, stop: AbortSignal): Promise<void> {
  stop.throwIfAborted()
  await new Promise<void>((resolve, reject) => {
    const abort = () => reject(stop.reason)
    stop.addEventListener('abort', abort, { once: true })
    void turn.then(() => {
      stop.removeEventListener('abort', abort)
      resolve()
    })
  })
}
