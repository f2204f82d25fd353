import { performance } from 'node:perf_hooks'

/** Source of time: monotonic and wall clock, ms, and timers. Tests replace all of them. */
export interface LocalTime {
  monotonicMs(): number
  wallMs(): number
  /** Calls back after `ms`. @returns a function that stops the timer */
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

/** Maximum drift between two clocks, µs per ms: 500 ppm. */
const DRIFT_US_PER_MS = 0.5
/** If the wall and the monotonic clock diverge by more than this since the last sample, the machine was suspended. */
const SUSPENDED_MS = 50

/** A bound of the offset between the two clocks, µs, and when it was found. */
interface Bound {
  readonly offsetUs: number
  readonly atMs: number
}

/**
 * Estimates Redis's clock. A reply is written after its call is sent and before it arrives, so the true offset of the
 * two clocks lies between Redis's time minus the local time of arrival, and Redis's time minus the local time of
 * sending. The tightest bound of each kind is kept, widened by the possible drift since: later, looser ones do not
 * replace it. The lower bound is used: it can be late by {@link errorUs}, but never early.
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
   * Adds the time of a reply that has just arrived, µs. A sample that contradicts the known bounds means that a clock
   * was set since, perhaps by too little for the meter to notice.
   * @param sentAtMs when its call was sent, on the monotonic clock
   */
  sample(redisUs: number, sentAtMs?: number): void {
    const atMs = this.time.monotonicMs()
    const low = redisUs - atMs * 1000
    // Redis may have read its clock right after the call was sent, and drifted since.
    const high = sentAtMs === undefined ? Number.POSITIVE_INFINITY : redisUs - sentAtMs * 1000 + drift(atMs - sentAtMs)
    const [knownLow, knownHigh] = [this.#lowUs(atMs), this.#highUs(atMs)]
    const wasSet = this.#stale || high < knownLow || low > knownHigh
    this.#stale = false
    this.#wallMinusMonotonicMs = this.time.wallMs() - atMs
    if (wasSet || low > knownLow) this.#low = { offsetUs: low, atMs }
    if (wasSet || high < knownHigh) this.#high = { offsetUs: high, atMs }
  }

  /**
   * The next sample discards earlier ones: the server is another one, or its clock was set back. Until then the old
   * estimate stays in use, because the held jobs have no better one.
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
   * How far {@link nowUs} may be behind Redis, µs: the fastest round trip, plus 1 µs per ms since then. Infinite before
   * the first one.
   */
  errorUs(): number {
    const atMs = this.time.monotonicMs()
    return this.#highUs(atMs) - this.#lowUs(atMs)
  }

  /** ms until Redis's clock reaches that time; 0 or less if it has, or if Redis's time is unknown. */
  untilMs(redisUs: number): number {
    const nowUs = this.nowUs()
    return nowUs === undefined ? 0 : (redisUs - nowUs) / 1000
  }

  /**
   * Time since `redisUs`, µs, up to {@link errorUs} too long. If the machine was suspended since the last sample, the
   * suspension is included.
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

/** Possible drift between the two clocks, µs. */
function drift(ms: number): number {
  return ms * DRIFT_US_PER_MS
}
