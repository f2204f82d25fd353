import { setTimeout as sleep } from 'node:timers/promises'
import { MAX_TIMER_MS } from '../max-timer.ts'

/** How long a move may take: its time and the caller's signal end each of its waits, also for an answer of Redis. */
export class MoveTime {
  readonly #over = new AbortController()
  readonly #leave: () => void
  #timer: NodeJS.Timeout | undefined

  /** @param late the error at the end of the time */
  constructor(
    { timeoutMs, signal }: { readonly timeoutMs?: number | undefined; readonly signal?: AbortSignal | undefined },
    late: (timeoutMs: number) => Error,
  ) {
    const stop = () => this.#over.abort(signal?.reason)
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop, { once: true })
    this.#leave = () => signal?.removeEventListener('abort', stop)
    if (timeoutMs !== undefined) this.#startTimer(performance.now() + timeoutMs, () => late(timeoutMs))
  }

  /**
   * The result of a step, which is not begun once the time is over. A step that has begun may still reach Redis.
   * @throws the signal's reason, or the error of the end of the time
   */
  async run<T>(step: () => Promise<T>): Promise<T> {
    const { signal } = this.#over
    signal.throwIfAborted()
    // A listener per step, not one promise that all steps are raced with: a move may last for days.
    return new Promise<T>((resolve, reject) => {
      const stop = () => reject(signal.reason)
      signal.addEventListener('abort', stop, { once: true })
      step()
        .then(resolve, reject)
        .finally(() => signal.removeEventListener('abort', stop))
    })
  }

  /** @throws as {@link run} */
  async sleep(ms: number): Promise<void> {
    await this.run(() => sleep(Math.min(ms, MAX_TIMER_MS), undefined, { signal: this.#over.signal }))
  }

  close(): void {
    this.#leave()
    clearTimeout(this.#timer)
  }

  #startTimer(endMs: number, late: () => Error): void {
    const leftMs = endMs - performance.now()
    this.#timer = setTimeout(
      () => {
        if (performance.now() < endMs) this.#startTimer(endMs, late)
        else this.#over.abort(late())
      },
      Math.min(leftMs, MAX_TIMER_MS),
    )
  }
}
