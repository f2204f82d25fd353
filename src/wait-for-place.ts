import { setTimeout as sleep } from 'node:timers/promises'
import { InvalidInputError, QueueFullError, WaitTimeoutError } from './errors.ts'

/** Node's timers take no more. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Up to this share is added to each wait, so that producers who were refused together do not come back together. */
const JITTER = 0.2
/**
 * Where a place is due but nobody takes the job at the head, refusals say "at once" for as long as that lasts: so long
 * is the first wait then, ms, and so long the last of its doublings.
 */
const FIRST_OVERDUE_MS = 5
const MAX_OVERDUE_MS = 500

export interface WaitOptions {
  /** Give up after so many ms. Default: wait as long as it takes. */
  readonly timeoutMs?: number | undefined
  /** Stops the wait; the promise rejects with its reason. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Lets one caller after another try: each tries when the last refusal said that a place will be free, and only the
 * first in line does, so that waiters of one process are served in their order.
 */
export class PlaceLine {
  #tail: Promise<void> = Promise.resolve()

  /**
   * @param attempt throws QueueFullError where there is no place
   * @throws WaitTimeoutError
   */
  async wait<T>(queueName: string, attempt: () => Promise<T>, { timeoutMs, signal }: WaitOptions): Promise<T> {
    checkTimeout(timeoutMs)
    const timeout = timeoutMs === undefined ? undefined : AbortSignal.timeout(Math.ceil(timeoutMs))
    const stop = AbortSignal.any([timeout, signal].filter((s) => s !== undefined))
    const turn = this.#tail
    let leave: () => void = () => {}
    let refused: QueueFullError | undefined
    const left = new Promise<void>((resolve) => {
      leave = resolve
    })
    this.#tail = turn.then(() => left)
    try {
      await unlessStopped(turn, stop)
      return await untilPlace(attempt, stop, (refusal) => {
        refused = refusal
      })
    } catch (error) {
      if (timeout?.aborted && !signal?.aborted && stop.aborted) {
        throw new WaitTimeoutError(queueName, timeoutMs as number, { cause: refused ?? error })
      }
      throw error
    } finally {
      leave()
    }
  }
}

async function untilPlace<T>(
  attempt: () => Promise<T>,
  stop: AbortSignal,
  onRefusal: (refusal: QueueFullError) => void,
): Promise<T> {
  for (let overdueMs = FIRST_OVERDUE_MS; ; ) {
    stop.throwIfAborted()
    try {
      return await attempt()
    } catch (error) {
      if (!(error instanceof QueueFullError)) throw error
      onRefusal(error)
      const { retryAfterMs } = error
      const jittered = Math.ceil(Math.max(retryAfterMs, overdueMs) * (1 + Math.random() * JITTER))
      const ms = Math.min(jittered, MAX_TIMER_MS)
      overdueMs = retryAfterMs > overdueMs ? FIRST_OVERDUE_MS : Math.min(2 * overdueMs, MAX_OVERDUE_MS)
      await sleep(ms, undefined, { signal: stop }).catch((reason: unknown) => {
        throw stop.reason ?? reason
      })
    }
  }
}

function checkTimeout(timeoutMs: number | undefined): void {
  if (timeoutMs === undefined || (timeoutMs >= 0 && timeoutMs <= MAX_TIMER_MS)) return
  throw new InvalidInputError(`timeoutMs must be a number from 0 to ${MAX_TIMER_MS}; got ${String(timeoutMs)}`)
}

async function unlessStopped(turn: Promise<void>, stop: AbortSignal): Promise<void> {
  stop.throwIfAborted()
  await new Promise<void>((resolve, reject) => {
    const abort = () => reject(stop.reason)
    stop.addEventListener('abort', abort, { once: true })
    turn.then(() => {
      stop.removeEventListener('abort', abort)
      resolve()
    })
  })
}
