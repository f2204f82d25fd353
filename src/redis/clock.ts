import { performance } from 'node:perf_hooks'

/** Where the time comes from: monotonic and wall clock, ms, and timers. A test holds all of them. */
export interface LocalTime {
  monotonicMs(): number
  wallMs(): number
  /** Calls back after so many ms. @returns ends the timer */
  after(ms: number, call: () => void): () => void
}

export const systemTime: LocalTime = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms)
    return () => clearTimeout(timer)
  },
}

/** How far two clocks may drift apart, µs per ms: 500 ppm. */
const DRIFT_US_PER_MS = 0.5
/** Wall and monotonic clock further apart than this since the last sample: the machine was suspended. */
const SUSPENDED_MS = 50

/** A bound of the distance of the two clocks, µs, and when it was found. */
interface Bound {
  readonly offsetUs: number
  readonly atMs: number
}

/**
 * Redis's clock as seen from here. A reply was written before it arrived and after its call was sent, so the true distance
 * of the two clocks lies between Redis's time minus the local time of arrival, and minus that of sending. The closest of
 * each that was ever found is kept, grown by what clocks drift apart since: worse ones that come later take nothing away. The
 * lower bound is what is reckoned with: it can be late by {@link errorUs}, but never early.
 */
export class RedisClock {
  /** The clock of this process. */
  readonly time: LocalTime
  #low: Bound | undefined
  #high: Bound | undefined
  #stale = false
  #wallMinusMonotonicMs = 0

  constructor(time: LocalTime = systemTime) {
    this.time = time
  }

  /**
   * Takes in the time of a reply that has just arrived, µs.
   * @param sentAtMs when its call was sent, on the monotonic clock. What contradicts the bounds known so far is of a clock
   *   that was set since, perhaps by too little for the meter to see.
   */
  sample(redisUs: number, sentAtMs?: number): void {
    const atMs = this.time.monotonicMs()
    const low = redisUs - atMs * 1000
    // Redis may have read its clock right after the call was sent: from then on it may have drifted.
    const high = sentAtMs === undefined ? Number.POSITIVE_INFINITY : redisUs - sentAtMs * 1000 + drift(atMs - sentAtMs)
    const [knownLow, knownHigh] = [this.#lowUs(atMs), this.#highUs(atMs)]
    const wasSet = this.#stale || high < knownLow || low > knownHigh
    this.#stale = false
    this.#wallMinusMonotonicMs = this.time.wallMs() - atMs
    if (wasSet || low > knownLow) this.#low = { offsetUs: low, atMs }
    if (wasSet || high < knownHigh) this.#high = { offsetUs: high, atMs }
  }

  /**
   * What was learned so far ends with the next sample: another server, or one whose clock was set back. Until then it
   * is all that is known of the jobs that are held.
   */
  reset(): void {
    this.#stale = true
  }

  /** Redis's time now, µs, never ahead of it. Undefined without a sample. */
  nowUs(): number | undefined {
    const atMs = this.time.monotonicMs()
    return this.#low && atMs * 1000 + this.#lowUs(atMs)
  }

  /**
   * By how much {@link nowUs} may be behind Redis, µs: the fastest round trip, and 1 µs for each ms since it. Infinite before
   * one is known.
   */
  errorUs(): number {
    const atMs = this.time.monotonicMs()
    return this.#highUs(atMs) - this.#lowUs(atMs)
  }

  /** ms from now until Redis's clock shows that time; 0 or less if it does already, or if its time is not known. */
  untilMs(redisUs: number): number {
    const nowUs = this.nowUs()
    return nowUs === undefined ? 0 : (redisUs - nowUs) / 1000
  }

  /**
   * How late it is for that time, µs, and {@link errorUs} more at most; a machine that was asleep since the last sample
   * counts its sleep.
   */
  latenessUs(redisUs: number): number {
    const atMs = this.time.monotonicMs()
    const sleptMs = this.time.wallMs() - atMs - this.#wallMinusMonotonicMs
    return -this.untilMs(redisUs) * 1000 + (sleptMs > SUSPENDED_MS ? sleptMs * 1000 : 0)
  }

  #lowUs(atMs: number): number {
    return this.#low ? this.#low.offsetUs - drift(atMs - this.#low.atMs) : Number.NEGATIVE_INFINITY
  }

  #highUs(atMs: number): number {
    return this.#high ? this.#high.offsetUs + drift(atMs - this.#high.atMs) : Number.POSITIVE_INFINITY
  }
}

/** µs by which two clocks may have drifted apart. */
function drift(ms: number): number {
  return ms * DRIFT_US_PER_MS
}
