import { MAX_TIMER_MS } from 'sluice/internal'

/** Time and randomness for the client; tests replace them. */
export interface Clock {
  /** A monotonic clock, ms. */
  nowMs(): number
  /** ms since 1970. */
  epochMs(): number
  /** At least 0, below 1. */
  random(): number
  /** Calls back after `ms`, unless the returned function was called before. */
  after(ms: number, then: () => void): () => void
}

export const systemClock: Clock = {
  nowMs: () => performance.now(),
  epochMs: () => Date.now(),
  random: () => Math.random(),
  after: (ms, then) => {
    const timer = setTimeout(then, Math.min(Math.ceil(ms), MAX_TIMER_MS))
    return () => clearTimeout(timer)
  },
}
