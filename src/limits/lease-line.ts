import { setTimeout as sleep } from 'node:timers/promises'
import { LimitExceededError } from '../errors.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'
import type { Client } from '../redis/commands.ts'
import { listenForWake } from '../redis/wake-channel.ts'
import { WaitingLine } from '../waiting-line.ts'
import type { LimitAnswer } from './answer.ts'
import type { LimitRedis } from './limit-client.ts'
import type { WaitOptions } from './waiting.ts'

/**
 * Callers of this process that wait for places under a `concurrency` limit, in order for each key. The first in line
 * asks again when any process gives a place back, or when the next lease would expire.
 */
export class LeaseLine {
  readonly #redis: LimitRedis
  readonly #channel: string
  readonly #lines = new Map<string, WaitingLine>()
  readonly #listeners = new Set<(message: string) => void>()
  #stopListening: (() => void) | undefined

  /** @param channel on which returned places are announced */
  constructor(redis: LimitRedis, channel: string) {
    this.#redis = redis
    this.#channel = channel
  }

  /**
   * @param state the state key
   * @param take asks for a place
   * @throws LimitExceededError
   */
  async wait(
    name: string,
    state: string,
    take: () => Promise<LimitAnswer>,
    { timeoutMs, signal, maxWaiting }: WaitOptions,
  ): Promise<LimitAnswer> {
    signal?.throwIfAborted()
    const line = this.#lines.get(state) ?? new WaitingLine()
    this.#lines.set(state, line)
    let last: LimitAnswer | undefined
    const attempt = async () => {
      last = await take()
      return last
    }
    const exceeded = (reason: string) => new LimitExceededError(name, reason, Math.max(1, last?.retryAfterMs ?? 1))
    // The first in line must ask before it waits, so the line holds at least one caller.
    const most = maxWaiting === undefined ? Number.POSITIVE_INFINITY : Math.max(1, maxWaiting)
    if (line.waiting >= most) {
      await attempt()
      throw exceeded(`${maxWaiting} wait already`)
    }
    try {
      return await line.wait(
        async (stop) => {
          const first = await attempt()
          if (first.allowed) return first
          if (maxWaiting === 0) throw exceeded('maxWaiting is 0')
          return this.#untilFree(state, attempt, stop)
        },
        { timeoutMs, signal },
        () => exceeded(`no place within ${timeoutMs} ms`),
      )
    } finally {
      if (line.waiting === 0) this.#lines.delete(state)
    }
  }

  async #untilFree(state: string, attempt: () => Promise<LimitAnswer>, stop: AbortSignal): Promise<LimitAnswer> {
    let wake: () => void = () => {}
    const onFreed = (message: string) => {
      if (message === '' || message === state) wake()
    }
    this.#listen(onFreed)
    try {
      for (;;) {
        stop.throwIfAborted()
        // Created before asking, so that a place given back while the answer is on its way is not missed.
        const freed = new Promise<void>((resolve) => {
          wake = resolve
        })
        const answer = await attempt()
        if (answer.allowed) return answer
        await sleepUntil(freed, answer.retryAfterMs, stop)
      }
    } finally {
      this.#unlisten(onFreed)
    }
  }

  #listen(listener: (message: string) => void): void {
    this.#listeners.add(listener)
    if (this.#stopListening) return
    const listening = listenForWake(this.#redis as unknown as Client, this.#channel, (message) => {
      for (const heard of this.#listeners) heard(message)
    })
    // Without messages, each retry waits until a lease expires.
    listening.subscribed.catch(() => {})
    this.#stopListening = listening.stop
  }

  #unlisten(listener: (message: string) => void): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    this.#stopListening?.()
    this.#stopListening = undefined
  }
}

/** Waits until a place is given back, at most `ms`. @throws the signal's reason */
async function sleepUntil(freed: Promise<void>, ms: number, stop: AbortSignal): Promise<void> {
  const over = new AbortController()
  const signal = AbortSignal.any([stop, over.signal])
  const timer = sleep(Math.min(Math.max(1, ms), MAX_TIMER_MS), undefined, { signal })
  try {
    await Promise.race([freed, timer.catch(() => stop.throwIfAborted())])
  } finally {
    over.abort()
  }
}
