import { setTimeout as sleep } from 'node:timers/promises'
import { CannotStartInTimeError, QueueFullError, WaitTimeoutError } from '../errors.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import { type LineOptions, WaitingLine } from '../waiting-line.ts'

/** Each wait is lengthened by up to this share, so that producers refused together do not retry together. */
const JITTER = 0.2
/**
 * While a worker is late for the job at the head, refusals give a very short `retryAfterMs`. These are the first and
 * the longest of the doubling waits used instead, ms.
 */
const FIRST_OVERDUE_MS = 5
const MAX_OVERDUE_MS = 500

export type WaitOptions = LineOptions

/** Whether a refusal ends once enough jobs have departed. A refusal for the job's own deadline does not. */
function passes(error: unknown): error is QueueFullError | CannotStartInTimeError {
  return error instanceof QueueFullError || (error instanceof CannotStartInTimeError && !error.mustStartBefore)
}

/**
 * Producers that wait for a place: each retries at the time given by its last refusal. Producers of a group have a line
 * of their own, because a full group does not keep other jobs out.
 */
export class PlaceLine {
  readonly #lines = new Map<string | undefined, WaitingLine>()

  /**
   * @param attempt throws QueueFullError if there is no place, CannotStartInTimeError if the job would wait too long
   * @param groupId the job's group, if it has one
   * @throws WaitTimeoutError
   */
  async wait<T>(queueName: string, attempt: () => Promise<T>, options: WaitOptions, groupId?: string): Promise<T> {
    const line = this.#lines.get(groupId) ?? new WaitingLine()
    this.#lines.set(groupId, line)
    try {
      return await this.#waitIn(line, queueName, attempt, options)
    } finally {
      if (line.waiting === 0) this.#lines.delete(groupId)
    }
  }

  #waitIn<T>(line: WaitingLine, queueName: string, attempt: () => Promise<T>, options: WaitOptions): Promise<T> {
    let refused: Error | undefined
    const onRefusal = (refusal: Error) => {
      refused = refusal
    }
    return line.wait(
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
