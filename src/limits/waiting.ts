import { setTimeout as sleep } from 'node:timers/promises'
import { checkSignal } from '../call-options.ts'
import { InvalidLimitError, LimitExceededError } from '../errors.ts'
import { checkFields, numberFrom, wholeFrom } from '../field-check.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import { uniqueId } from '../redis/ids.ts'
import type { LimitScript } from '../redis/scripts.ts'
import { type LimitAnswer, passed } from './answer.ts'
import type { Limit } from './limit.ts'
import type { Arguments } from './limit-client.ts'
import type { LimitKey } from './limit-keys.ts'

export interface WaitOptions {
  /** Units, default 1. */
  readonly cost?: number
  /** The longest wait. ms, default unlimited. A turn that would come later is not reserved. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** How many callers may wait for a key at once, default unlimited. (NGINX: burst) */
  readonly maxWaiting?: number
  /** How many of those pass without waiting, although they are charged like the others. Default 0. (NGINX: delay) */
  readonly nodelay?: number
}

export type ReserveReply = readonly [
  nowUs: number,
  verdict: 'ok' | 'full' | 'late' | 'outdated',
  us: number,
  stamp: string,
  left: number,
  resetUs: number,
]

/** The parts of a limiter that waiting uses. */
export interface Reserving {
  readonly name: string
  run<T>(script: LimitScript, key: LimitKey, args: Arguments): Promise<T>
  /** Runs `lua/verbs/reserve.lua`. @param id of the waiting caller */
  reserve(key: LimitKey, id: string, args: Arguments): Promise<ReserveReply>
  /** The rule for a key after a newer definition was seen. */
  relearn(key: LimitKey): Promise<Limit>
}

/**
 * Reserves the next turn and waits for it.
 * @throws LimitExceededError
 */
export async function waitForTurn(
  limiter: Reserving,
  limit: Limit,
  key: LimitKey,
  options: WaitOptions,
): Promise<LimitAnswer> {
  checkFields(options, WAIT_CHECKS, InvalidLimitError)
  const { cost = 1, timeoutMs, signal, maxWaiting, nodelay = 0 } = options
  checkSignal('wait', signal)
  signal?.throwIfAborted()
  const id = uniqueId()
  const timeoutUs = timeoutMs === undefined ? '' : timeoutMs * 1000
  limit.part(key, cost)
  const args = [limit.wire, cost, id, maxWaiting ?? '', nodelay, timeoutUs]
  const [nowUs, verdict, us, stamp, left, resetUs] = await limiter.reserve(key, id, args)
  if (verdict === 'outdated') return waitForTurn(limiter, await limiter.relearn(key), key, options)
  if (verdict !== 'ok') {
    const retryAfterMs = Math.max(1, Math.ceil(us / 1000))
    const reason = verdict === 'full' ? `${maxWaiting} wait already` : `no turn within ${timeoutMs} ms`
    throw new LimitExceededError(limiter.name, reason, retryAfterMs, new Date(Math.ceil((nowUs + us) / 1000)))
  }
  try {
    await sleepUs(us, signal)
  } catch (error) {
    // If this fails, the turn stays charged as if it had been used.
    await limiter.run('cancel-reservation', key, [limit.wire, cost, id, stamp]).catch(() => {})
    throw error
  }
  return passed(limiter.name, limit.quota, left, resetUs)
}

/** Timers may fire early: a caller must not pass before its turn. */
async function sleepUs(us: number, signal: AbortSignal | undefined): Promise<void> {
  const endMs = performance.now() + us / 1000
  for (;;) {
    signal?.throwIfAborted()
    const leftMs = endMs - performance.now()
    if (leftMs <= 0) return
    await sleep(Math.min(Math.ceil(leftMs), MAX_TIMER_MS), undefined, { signal }).catch((error: unknown) => {
      throw signal?.reason ?? error
    })
  }
}

const WAIT_CHECKS = { timeoutMs: numberFrom(0, 'of ms'), maxWaiting: wholeFrom(0), nodelay: wholeFrom(0) }
