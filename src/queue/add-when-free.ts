import { setTimeout as sleep } from 'node:timers/promises'
import { CannotStartInTimeError, QueueFullError, WaitTimeoutError } from '../errors.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import { type LineOptions, WaitingLine } from '../waiting-line.ts'

/** Up to this share is added to each wait, so that producers who were refused together do not come back together. */
const JITTER = 0.2
/**
 * Where a worker is late for the job at the head, refusals say "soon" for as long as that lasts: so long is the first wait
 * then, ms, and so long the last of its doublings.
 */
const FIRST_OVERDUE_MS = 5
const MAX_OVERDUE_MS = 500

export type WaitOptions = LineOptions

/** What is over once enough has left. A deadline of the job's own is not: it stays where it is. */
function passes(error: unknown): error is QueueFullError | CannotStartInTimeError {
  return error instanceof QueueFullError || (error instanceof CannotStartInTimeError && !error.mustStartBefore)
}

/** Producers that wait for a place: each tries when the last refusal said that one will be free. */
export class PlaceLine {
  readonly #line = new WaitingLine()

  /**
   * @param attempt throws QueueFullError where there is no place, CannotStartInTimeError where it would wait too long
   * @throws WaitTimeoutError
   */
  wait<T>(queueName: string, attempt: () => Promise<T>, options: WaitOptions): Promise<T> {
    let refused: Error | undefined
    const onRefusal = (refusal: Error) => {
      refused = refusal
    }
    return this.#line.wait(
      (stop) => untilPlace(attempt, stop, onRefusal),
      options,
      (cause) => new WaitTimeoutError(queueName, options.timeoutMs as number, { cause: refused ?? cause }),
    )
  }
}

async function untilPlace<T>(
  attempt: () => Promise<T>,
  stop: AbortSignal,
  onRefusal: (refusal: Error) => void,
): Promise<T> {
  for (let overdueMs = FIRST_OVERDUE_MS; ; ) {
    stop.throwIfAborted()
    try {
      return await attempt()
    } catch (error) {
      if (!passes(error)) throw error
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
