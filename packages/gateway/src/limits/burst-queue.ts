import { checkCallOptions, InvalidInputError, LimitExceededError, LimiterUnavailableError } from 'sluice/internal'
import type { LimitAnswer, Limiter, LimitKey, WaitOptions } from 'sluice/limits'
import { CallerGoneError } from '../body.ts'

/**
 * Requests above the rate wait for their turn. In shadow mode none waits, and nothing is reported. (NGINX: limit_req)
 */
export interface BurstQueue {
  /**
   * How many requests of a key may wait or have passed ahead of their turn, at once; more are refused. (NGINX: burst)
   */
  readonly maxWaiting: number
  /** The longest wait: a request whose turn would come later is refused at once. ms, default unlimited. */
  readonly maxWaitMs?: number
  /**
   * How many of them pass without waiting, though they are charged like the others. Default 0: all wait; 'nodelay':
   * none waits. Ignored for a limit of `concurrency`. (NGINX: delay, nodelay)
   */
  readonly delay?: number | 'nodelay'
}

/** @throws InvalidInputError */
export function waitOptionsOf(queue: BurstQueue): Omit<WaitOptions, 'cost' | 'signal'> {
  checkCallOptions('burstQueue', queue, ['maxWaiting', 'maxWaitMs', 'delay'])
  const { maxWaiting, maxWaitMs, delay = 0 } = queue
  checkWhole('burstQueue.maxWaiting', maxWaiting)
  if (delay !== 'nodelay') checkWhole('burstQueue.delay', delay, " or 'nodelay'")
  if (maxWaitMs !== undefined && !(Number.isFinite(maxWaitMs) && maxWaitMs >= 0)) {
    throw new InvalidInputError(`burstQueue.maxWaitMs must be a number of ms >= 0; got ${String(maxWaitMs)}`)
  }
  const nodelay = delay === 'nodelay' ? maxWaiting : delay
  return { maxWaiting, nodelay, ...(maxWaitMs === undefined ? undefined : { timeoutMs: maxWaitMs }) }
}

/**
 * Waits for a turn; returns what `take` returns.
 * @throws CallerGoneError, what `take` throws
 */
export async function takeTurn(limiter: Limiter, key: LimitKey, options: WaitOptions): Promise<LimitAnswer> {
  try {
    return await limiter.wait(key, options)
  } catch (error) {
    if (options.signal?.aborted) throw new CallerGoneError({ cause: error })
    if (error instanceof LimiterUnavailableError) return limiter.outage(key, error)
    if (!(error instanceof LimitExceededError)) throw error
    const { quota } = await limiter.limitOf(key)
    const { retryAfterMs, retryAt = new Date(limiter.nowMs + retryAfterMs) } = error
    return { allowed: false, limit: quota, remaining: 0, retryAfterMs, retryAt, resetAt: retryAt, policy: limiter.name }
  }
}

function checkWhole(option: string, value: unknown, or = ''): void {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return
  throw new InvalidInputError(`${option} must be a whole number >= 0${or}; got ${String(value)}`)
}
