import { performance } from 'node:perf_hooks'

/** How long an event loop has been busy and idle so far, ms. */
export interface LoopUse {
  readonly active: number
  readonly idle: number
}

interface Sample extends LoopUse {
  readonly atMs: number
}

export interface LoopLoadOptions {
  /** Period over which the utilisation is computed. ms, default 1000. */
  readonly windowMs?: number
  /** Default: `performance.eventLoopUtilization`. */
  readonly loopUse?: () => LoopUse
  /** A monotonic clock, ms. Default: `performance.now`. */
  readonly now?: () => number
}

const WINDOW_MS = 1000
/** Samples kept per window. */
const SAMPLES = 10

/**
 * How busy the event loop of this process was, over a sliding window. Computed like `performance.eventLoopUtilization`.
 */
export class LoopLoad {
  readonly #windowMs: number
  readonly #loopUse: () => LoopUse
  readonly #now: () => number
  /** At most the first of these is older than the window. */
  readonly #samples: Sample[]

  constructor({ windowMs = WINDOW_MS, loopUse, now }: LoopLoadOptions = {}) {
    this.#windowMs = windowMs
    this.#loopUse = loopUse ?? (() => performance.eventLoopUtilization())
    this.#now = now ?? (() => performance.now())
    this.#samples = [this.#sample()]
  }

  /** The busy share of the window, 0 to 1. The time before this object was created counts as idle. */
  utilisation(): number {
    const samples = this.#samples
    const sample = this.#sample()
    while (samples[1] && samples[1].atMs <= sample.atMs - this.#windowMs) samples.shift()
    const first = samples[0] as Sample
    const last = samples.at(-1) as Sample
    if (sample.atMs - last.atMs >= this.#windowMs / SAMPLES) samples.push(sample)
    const active = sample.active - first.active
    return active / Math.max(this.#windowMs, active + sample.idle - first.idle)
  }

  #sample(): Sample {
    const { active, idle } = this.#loopUse()
    return { atMs: this.#now(), active, idle }
  }
}
