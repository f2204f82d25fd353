import type { LimitAnswer } from './answer.ts'
import type { Limit } from './limit.ts'
import { LocalTable } from './local-table.ts'

interface Remembered {
  readonly limit: Limit
  readonly cost: number
  readonly answer: LimitAnswer
  /** On the monotonic clock. */
  readonly untilMs: number
}

/**
 * Keys over their limit, for the time given by Redis: until then a refused cost, or a higher one, need not be asked
 * again. (Cloudflare: mitigation cache)
 */
export class Refusals {
  readonly #remembered: LocalTable<Remembered>
  /** Changes when keys are forgotten: a refusal requested before that is not remembered. */
  epoch = 0

  constructor(maxKeys: number) {
    this.#remembered = new LocalTable(maxKeys)
  }

  /** The remembered refusal of a key, while it holds. */
  refusal(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const found = this.#remembered.get(name)
    if (found === undefined || found.limit !== limit || cost < found.cost) return undefined
    const leftMs = found.untilMs - nowMs
    if (leftMs <= 0) {
      this.#remembered.delete(name)
      return undefined
    }
    // Sums of the clock are rounded: the wait must not exceed Redis's.
    return { ...found.answer, retryAfterMs: Math.min(found.answer.retryAfterMs, Math.ceil(leftMs)) }
  }

  /** Remembers a refusal by Redis, counted from its arrival. */
  note(name: string, limit: Limit, cost: number, answer: LimitAnswer): void {
    this.#remembered.set(name, { limit, cost, answer, untilMs: performance.now() + answer.retryAfterMs })
  }

  forget(name: string): void {
    this.epoch++
    this.#remembered.delete(name)
  }

  forgetAll(): void {
    this.epoch++
    this.#remembered.clear()
  }
}
