import { InvalidInputError } from '../errors.ts'

/** The parameters of Gradient2, with Netflix's defaults except for `min`. */
export interface GradientOptions {
  /** The initial limit. Default 20, bounded by min and max. */
  readonly initial?: number
  /** Default 1. Netflix's is 20, which would not limit a pool of ten connections. */
  readonly min?: number
  /** Default 200. The size of a pool is a good value. */
  readonly max?: number
  /** How far one window moves the limit towards its result, > 0 and <= 1. Default 0.2. */
  readonly smoothing?: number
  /** Latency up to this multiple of the usual one is no sign of a queue, >= 1. Default 1.5. */
  readonly tolerance?: number
  /** The increase per window without signs of a queue, which is the allowed queue. Default 4. */
  readonly queueSize?: number
  /** Number of windows in the average of the usual latency. Default 600: at least ten minutes. */
  readonly longWindow?: number
  /** Multiplies the limit after {@link Gradient2Limit.dropped}, >= 0.5 and < 1. Default 0.9. */
  readonly backoff?: number
  /** A monotonic clock, ms. Default `performance.now`. */
  readonly now?: () => number
}

const WINDOW_MS = 1000
const WINDOW_SAMPLES = 10
/** No database answers faster. ms */
const LEAST_LATENCY_MS = 0.1
const WARM_UP_WINDOWS = 10

/**
 * Estimates how many calls may be open at once from how long they take: while the latest latency stays within
 * `tolerance` of the usual one, the limit grows; above it, the limit falls in proportion. Source: Gradient2Limit with
 * WindowedLimit of Netflix's concurrency-limits; the backoff after refusals is that of its AIMDLimit.
 *
 *     gradient = clamp(tolerance × long / short, 0.5, 1)
 *     limit    = (1 − smoothing) × limit + smoothing × (limit × gradient + queueSize)
 *
 * `short` is the mean latency of a window (1 s and at least 10 calls), `long` its exponential mean over `longWindow`
 * windows. While `long` is more than twice `short` it falls by 5% a window, so that a recovery takes effect. If less
 * than half the limit was in use, the window says nothing about a higher one, and the limit stays.
 */
export class Gradient2Limit {
  readonly #options: Required<GradientOptions>
  #limit: number
  #long = 0
  #windows = 0
  #samples = 0
  #sumMs = 0
  #mostInflight = 0
  #startedMs: number
  #droppedMs = Number.NEGATIVE_INFINITY

  /** @throws InvalidInputError for a parameter out of its range */
  constructor(options: GradientOptions = {}) {
    this.#options = checked({
      ...{ initial: 20, min: 1, max: 200, smoothing: 0.2, tolerance: 1.5, queueSize: 4, longWindow: 600, backoff: 0.9 },
      now: () => performance.now(),
      ...options,
    })
    this.#limit = this.#bounded(this.#options.initial)
    this.#startedMs = this.#options.now()
  }

  /** Calls at once, an integer of at least 1. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /**
   * Records a call that succeeded.
   * @param latencyMs how long it took; values below 0.1 and those that are not finite are ignored
   * @param inflight calls that were open when it began, including itself
   */
  sample(latencyMs: number, inflight: number): void {
    if (!(latencyMs >= LEAST_LATENCY_MS) || !Number.isFinite(latencyMs) || !(inflight >= 0)) return
    this.#samples++
    this.#sumMs += latencyMs
    this.#mostInflight = Math.max(this.#mostInflight, inflight)
    const now = this.#options.now()
    if (this.#samples < WINDOW_SAMPLES || now - this.#startedMs < WINDOW_MS) return
    this.#endWindow(this.#sumMs / this.#samples, this.#mostInflight)
    this.#startWindow(now)
  }

  /** Records a call that was refused for lack of room, or timed out. The limit falls at most once in a window. */
  dropped(): void {
    const now = this.#options.now()
    if (now - this.#droppedMs < WINDOW_MS) return
    this.#droppedMs = now
    this.#limit = this.#bounded(this.#limit * this.#options.backoff)
    // Samples under the higher limit say nothing about the lower one.
    this.#startWindow(now)
  }

  #startWindow(now: number): void {
    this.#startedMs = now
    this.#samples = 0
    this.#sumMs = 0
    this.#mostInflight = 0
  }

  #endWindow(shortMs: number, inflight: number): void {
    const { smoothing, tolerance, queueSize } = this.#options
    this.#averageIn(shortMs)
    const long = this.#long
    if (long / shortMs > 2) this.#long *= 0.95
    if (inflight * 2 < this.#limit) return
    const gradient = Math.max(0.5, Math.min(1, (tolerance * long) / shortMs))
    this.#limit = this.#bounded((1 - smoothing) * this.#limit + smoothing * (this.#limit * gradient + queueSize))
  }

  /** A plain mean at first, so that one slow start does not count as usual. */
  #averageIn(shortMs: number): void {
    this.#windows++
    const weight = this.#windows <= WARM_UP_WINDOWS ? 1 / this.#windows : 2 / (this.#options.longWindow + 1)
    this.#long += (shortMs - this.#long) * weight
  }

  #bounded(limit: number): number {
    return Math.max(this.#options.min, Math.min(this.#options.max, limit))
  }
}

function checked(options: Required<GradientOptions>): Required<GradientOptions> {
  const { initial, min, max, smoothing, tolerance, queueSize, longWindow, backoff } = options
  const refuse = (name: string, expected: string, value: unknown) => {
    throw new InvalidInputError(`gradient limit: ${name} must be ${expected}; got ${value}`)
  }
  if (!Number.isInteger(min) || min < 1) refuse('min', 'a whole number >= 1', min)
  if (!Number.isInteger(max) || max < min) refuse('max', `a whole number >= min (${min})`, max)
  if (!(initial >= 1) || !Number.isFinite(initial)) refuse('initial', 'a number >= 1', initial)
  if (!(smoothing > 0 && smoothing <= 1)) refuse('smoothing', 'a number > 0 and <= 1', smoothing)
  if (!(tolerance >= 1) || !Number.isFinite(tolerance)) refuse('tolerance', 'a number >= 1', tolerance)
  if (!(queueSize >= 0) || !Number.isFinite(queueSize)) refuse('queueSize', 'a number >= 0', queueSize)
  if (!(longWindow >= 1) || !Number.isFinite(longWindow)) refuse('longWindow', 'a number >= 1', longWindow)
  if (!(backoff >= 0.5 && backoff < 1)) refuse('backoff', 'a number >= 0.5 and < 1', backoff)
  return options
}
