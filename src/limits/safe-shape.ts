import { checkArgument } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import { checkField, numberAbove, numberFrom, wholeFrom } from '../field-check.ts'
import { intervalUs, parseRate, type RateInput } from '../rate.ts'

/** A provider with a quota per window, a fixed window or a sliding log, with unknown window boundaries. */
export interface WindowProvider {
  readonly model?: 'window'
  /** Units, whole, at least 1. */
  readonly quota: number
  /** Length of the window. */
  readonly windowMs: number
  /** The largest difference in the time that two units take to reach the provider. ms, default 0. */
  readonly jitterMs?: number
  /**
   * Units that may start together, whole, at most the quota. Default 2% of it, at least 1. A higher burst lowers the
   * rate.
   */
  readonly burst?: number
}

/** A provider with a token bucket. */
export interface TokenBucketProvider {
  readonly model: 'token-bucket'
  /** The rate at which it refills. */
  readonly rate: RateInput
  /** Tokens that its bucket holds, at least 1. */
  readonly burst: number
  /** As for windows. ms, default 0. */
  readonly jitterMs?: number
}

/** A queue's shape, or the rule of a `gcra` limiter. */
export interface SafeShape {
  /** One unit per interval; `period` is the interval, ms. */
  readonly rate: { readonly limit: number; readonly period: number }
  /** Units. */
  readonly burst: number
}

/** Limits keep intervals in 1/1024 µs: the smallest safe interval is the first such step above the bound. */
const STEPS_PER_US = 1024
const STEPS_PER_MS = STEPS_PER_US * 1000
const DEFAULT_BURST_SHARE = 0.02

/**
 * The fastest shape that never breaks a provider's limit, wherever its windows begin.
 *
 * With an interval I, a burst b and delays from 0 to J, at most b + (w + J) / I units, rounded down, fall into any
 * closed window of length w. That is no more than the quota q if I > (w + J) / (q - b + 1): strictly, as at equality the unit at the
 * far end of the window would be one too many. The interval is the first above that bound on the grid on which limits
 * keep intervals, 1/1024 µs.
 *
 * For a token bucket of rate R and burst B, both 1 / I <= R and b + J / I <= B must hold. The rate is met first, and
 * the burst is the highest that then remains; if none remains, the interval is longer.
 *
 * ```ts
 * safeShape({ quota: 100, windowMs: 60_000, jitterMs: 500, burst: 10 }) // a unit every 664.8… ms
 * createLimiter(redis, { name: 'provider', ...safeShape({ quota: 100, windowMs: 60_000, jitterMs: 500 }) })
 * ```
 * @throws InvalidLimitError, InvalidRateError
 */
export function safeShape(provider: WindowProvider | TokenBucketProvider): SafeShape {
  checkArgument(
    typeof provider === 'object' && provider !== null,
    'safeShape: the provider',
    '{ quota, windowMs } or { model, … }',
    provider,
  )
  checkField('jitterMs', provider.jitterMs ?? 0, numberFrom(0, 'of ms'), InvalidLimitError)
  return provider.model === 'token-bucket' ? forTokenBucket(provider) : forWindow(provider)
}

function forWindow({ quota, windowMs, jitterMs = 0, burst }: WindowProvider): SafeShape {
  checkField('quota', quota, wholeFrom(1), InvalidLimitError)
  checkField('windowMs', windowMs, numberAbove(0, 'of ms'), InvalidLimitError)
  const b = burst ?? Math.max(1, Math.floor(quota * DEFAULT_BURST_SHARE))
  checkField('burst', b, wholeFrom(1), InvalidLimitError)
  if (b > quota) {
    throw new InvalidLimitError(
      `burst ${b} is more than the ${quota} that the provider allows: set it to at most ${quota}`,
    )
  }
  const parts = quota - b + 1
  const total = (windowMs + jitterMs) * STEPS_PER_MS
  let steps = Math.floor(total / parts) + 1
  // Rounding must not make the interval too short.
  while (steps * parts <= total) steps++
  return shapeOf(steps, b)
}

function forTokenBucket({ rate, burst, jitterMs = 0 }: TokenBucketProvider): SafeShape {
  checkField('burst', burst, numberFrom(1), InvalidLimitError)
  const shortest = intervalUs(parseRate(rate)) * STEPS_PER_US
  if (burst === 1 && jitterMs > 0) {
    throw new InvalidLimitError(
      `a bucket of burst ${burst} allows no jitter, but jitterMs is ${jitterMs} ms: two units may arrive together, ` +
        'however far apart they leave',
    )
  }
  const jitter = jitterMs * STEPS_PER_MS
  const steps = Math.ceil(Math.max(shortest, jitter === 0 ? 0 : jitter / (burst - 1)))
  return shapeOf(steps, Math.max(1, Math.floor(burst - jitter / steps)))
}

function shapeOf(steps: number, burst: number): SafeShape {
  const period = steps / STEPS_PER_MS
  if (!Number.isSafeInteger(steps)) throw new InvalidLimitError(`the interval is too long: ${period} ms`)
  return { rate: { limit: 1, period }, burst }
}
