import { setTimeout as sleep } from 'node:timers/promises'
import { LimitExceededError } from '../errors.ts'
import type { Client } from '../redis-commands.ts'
import { MAX_TIMER_MS, WaitingLine } from '../waiting-line.ts'
import { listenForWake } from '../wake-hub.ts'
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
  readonly #listeners = new Set<() => void>()
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
    const line = this.#lines.get(state) ?? new WaitingLine()
    let last: LimitAnswer | undefined
    const attempt = async () => {
      last = await take()
      return last
    }
    const exceeded = (reason: string) => new LimitExceededError(name, reason, Math.max(1, last?.retryAfterMs ?? 1))
    if (line.waiting === 0 && (await attempt()).allowed) return last as unknown as LimitAnswer
    if (maxWaiting !== undefined && line.waiting >= maxWaiting) {
      last ??= await take()
      throw exceeded(`${maxWaiting} wait already`)
    }
    this.#lines.set(state, line)
    try {
      return await line.wait(
        (stop) => this.#untilFree(attempt, stop),
        { timeoutMs, signal },
        () => exceeded(`no place within ${timeoutMs} ms`),
      )
    } finally {
      if (line.waiting === 0) this.#lines.delete(state)
    }
  }

  async #untilFree(attempt: () => Promise<LimitAnswer>, stop: AbortSignal): Promise<LimitAnswer> {
    const ended = new AbortController()
    let wake: () => void = () => {}
    const onFreed = () => wake()
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
        const ms = Math.min(Math.max(1, answer.retryAfterMs), MAX_TIMER_MS)
        const timer = sleep(ms, undefined, { signal: AbortSignal.any([stop, ended.signal]) })
        await Promise.race([freed, timer.catch(() => stop.throwIfAborted())])
      }
    } finally {
      ended.abort()
      this.#unlisten(onFreed)
    }
  }

  #listen(listener: () => void): void {
    this.#listeners.add(listener)
    if (this.#stopListening) return
    const listening = listenForWake(this.#redis as unknown as Client, this.#channel, () => {
      for (const heard of this.#listeners) heard()
    })
    // Without messages the leases' ends are waited for.
    listening.subscribed.catch(() => {})
    this.#stopListening = listening.stop
  }

  #unlisten(listener: () => void): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    this.#stopListening?.()
    this.#stopListening = undefined
  }
}
