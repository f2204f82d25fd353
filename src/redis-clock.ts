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

const SAMPLE_LIFE_MS = 10_000
const BUCKET_MS = 1000
/** How far two clocks may drift apart, µs per ms: 500 ppm. */
const DRIFT_US_PER_MS = 0.5
/** Wall and monotonic clock further apart than this since the last sample: the machine was suspended. */
const SUSPENDED_MS = 50

interface Sample {
  readonly offsetUs: number
  readonly atMs: number
}

/**
 * Redis's clock as seen from here. A reply was written before it arrived, so Redis's time minus the local time of
 * arrival is never more than the true distance: the largest such value of the last seconds is the best. What follows
 * from it can be late by the fastest trip of a reply, but never early.
 */
export class RedisClock {
  /** The clock of this process. */
  readonly time: LocalTime
  #samples: Sample[] = []
  #stale = false
  #wallMinusMonotonicMs = 0

  constructor(time: LocalTime = systemTime) {
    this.time = time
  }

  /**
   * Takes in the time of a reply that has just arrived, µs.
   * @param sentAtMs when its call was sent, on the monotonic clock: Redis read its own clock after that, so the
   *   difference of the two is never less than the true distance. Older samples that claim more are of a clock that
   *   has gone back since, perhaps by too little for the meter to see.
   */
  sample(redisUs: number, sentAtMs?: number): void {
    const atMs = this.time.monotonicMs()
    const offsetUs = redisUs - atMs * 1000
    const wentBack = sentAtMs !== undefined && redisUs - sentAtMs * 1000 < (this.#offsetUs(atMs) ?? offsetUs)
    if (this.#stale || wentBack) this.#samples = []
    this.#stale = false
    this.#wallMinusMonotonicMs = this.time.wallMs() - atMs
    const last = this.#samples.at(-1)
    // One sample, the best, for each second is enough.
    if (last && Math.floor(last.atMs / BUCKET_MS) === Math.floor(atMs / BUCKET_MS)) {
      if (offsetUs > this.#aged(last, atMs)) this.#samples[this.#samples.length - 1] = { offsetUs, atMs }
    } else {
      this.#samples.push({ offsetUs, atMs })
    }
    while ((this.#samples[0] as Sample).atMs < atMs - SAMPLE_LIFE_MS) this.#samples.shift()
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
    const offsetUs = this.#offsetUs(atMs)
    return offsetUs === undefined ? undefined : atMs * 1000 + offsetUs
  }

  /** ms from now until Redis's clock shows that time; 0 or less if it does already, or if its time is not known. */
  untilMs(redisUs: number): number {
    const nowUs = this.nowUs()
    return nowUs === undefined ? 0 : (redisUs - nowUs) / 1000
  }

  /** How late it is for that time, µs; a machine that was asleep since the last sample counts its sleep. */
  latenessUs(redisUs: number): number {
    const atMs = this.time.monotonicMs()
    const sleptMs = this.time.wallMs() - atMs - this.#wallMinusMonotonicMs
    return -this.untilMs(redisUs) * 1000 + (sleptMs > SUSPENDED_MS ? sleptMs * 1000 : 0)
  }

  #offsetUs(atMs: number): number | undefined {
    let best: number | undefined
    for (const sample of this.#samples) {
      const offset = this.#aged(sample, atMs)
      if (best === undefined || offset > best) best = offset
    }
    return best
  }

  #aged(sample: Sample, atMs: number): number {
    return sample.offsetUs - (atMs - sample.atMs) * DRIFT_US_PER_MS
  }
}
