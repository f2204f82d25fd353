import { MAX_TIMER_MS } from '../max-timer.ts'

/** Time and chance as the client uses them; tests hold them. */
export interface Clock {
  /** ms from any moment; never goes back. */
  nowMs(): number
  /** ms since 1970. */
  epochMs(): number
  /** At least 0, below 1. */
  random(): number
  /** Calls back after so many ms, and not once the returned function was called. */
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
