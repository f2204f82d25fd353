import type { Clock } from '../../src/client/clock.ts'

interface Timer {
  readonly atMs: number
  readonly then: () => void
}

/** Stands still until it is moved; everything that is due in between happens at its time. */
export class HeldClock implements Clock {
  /** What `random` answers. */
  chance = 0
  #nowMs = 1000
  #timers: Timer[] = []

  nowMs = () => this.#nowMs
  epochMs = () => 1_800_000_000_000 + this.#nowMs
  random = () => this.chance

  /** How many are set. */
  get timers(): number {
    return this.#timers.length
  }

  after(ms: number, then: () => void): () => void {
    if (Number.isNaN(ms) || ms < 0) throw new Error(`no length of time: ${ms}`)
    const timer = { atMs: this.#nowMs + ms, then }
    this.#timers.push(timer)
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer)
    }
  }

  async advance(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms
    await settled()
    for (;;) {
      const next = this.#timers.toSorted((a, b) => a.atMs - b.atMs)[0]
      if (!next || next.atMs > endMs) break
      this.#timers = this.#timers.filter((one) => one !== next)
      this.#nowMs = Math.max(this.#nowMs, next.atMs)
      next.then()
      await settled()
    }
    this.#nowMs = endMs
  }
}

/** Every promise that can go on without time has gone on; reading a body takes turns of the loop. */
async function settled(): Promise<void> {
  for (let i = 0; i < 8; i++) await new Promise((resolve) => setImmediate(resolve))
}
