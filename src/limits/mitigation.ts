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
 * Keys that are over, for as long as Redis said: a cost that was refused, and all above it, need not be asked again until
 * then. (Cloudflare: mitigation cache)
 */
export class Refusals {
  readonly #remembered: LocalTable<Remembered>
  /** Changes where keys were forgotten: what was asked before then is not remembered after. */
  epoch = 0

  constructor(maxKeys: number) {
    this.#remembered = new LocalTable(maxKeys)
  }

  /** The refusal of a key whose time is not over yet. */
  refusal(name: string, limit: Limit, cost: number, nowMs: number): LimitAnswer | undefined {
    const found = this.#remembered.get(name)
    if (found === undefined || found.limit !== limit || cost < found.cost) return undefined
    const leftMs = found.untilMs - nowMs
    if (leftMs <= 0) {
      this.#remembered.delete(name)
      return undefined
    }
    // Sums of the clock are rounded: it is never longer than what Redis said.
    return { ...found.answer, retryAfterMs: Math.min(found.answer.retryAfterMs, Math.ceil(leftMs)) }
  }

  /** Remembers a refusal of Redis, from its arrival on. */
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
