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
 * Those of this process who wait for places under a limit of `concurrency`, each key's in their order. The first of a line
 * asks when a place was given back, in whatever process, or when the next lease would run out.
 */
export class LeaseLine {
  readonly #redis: LimitRedis
  readonly #channel: string
  readonly #lines = new Map<string, WaitingLine>()
  readonly #listeners = new Set<(message: string) => void>()
  #stopListening: (() => void) | undefined

  /** @param channel on which places that were given back are told */
  constructor(redis: LimitRedis, channel: string) {
    this.#redis = redis
    this.#channel = channel
  }

  /**
   * @param state the key
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
    // Whoever is first in line asks; he waits only if he is refused.
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
          if (maxWaiting === 0) throw exceeded('nobody may wait')
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
        // Whatever is told from now on is heard: also while the answer is on its way.
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
    // Without messages the leases' ends are waited for.
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

/** Until a place was freed, for so many ms at most. @throws the signal's reason */
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
