import { InvalidLimitError } from '../errors.ts'
import { intervalUs, parseRate, type RateInput } from '../rate.ts'

/** A provider that allows q units per w ms, in a fixed window or in a sliding log; where its windows begin is unknown. */
export interface WindowProvider {
  readonly model?: 'window'
  /** Units, whole, at least 1. */
  readonly q: number
  /** The window, ms. */
  readonly w: number
  /** How much longer one unit is on its way to the provider than another one, at most. ms, default 0. */
  readonly jitterMs?: number
  /** Units that may leave together, whole, at most q. Default 2 % of q, at least 1: every one costs rate. */
  readonly burst?: number
}

/** A provider with a token bucket. */
export interface TokenBucketProvider {
  readonly model: 'token-bucket'
  /** How fast its tokens come back. */
  readonly rate: RateInput
  /** Tokens that its bucket holds, at least 1. */
  readonly burst: number
  /** As for windows. ms, default 0. */
  readonly jitterMs?: number
}

/** A queue's shape, or the rule of a limiter of `gcra`. */
export interface SafeShape {
  /** One unit per interval; `period` is the interval, ms. */
  readonly rate: { readonly limit: number; readonly period: number }
  /** Units. */
  readonly burst: number
}

/** Limits keep their intervals in parts of a µs: the smallest interval is the first of these above the bound. */
const STEPS_PER_US = 1024
const STEPS_PER_MS = STEPS_PER_US * 1000
const DEFAULT_BURST_SHARE = 0.02

/**
 * The fastest shape that can never break a provider's limit, wherever its windows begin.
 *
 * What leaves by an interval I and a burst b and is late by 0 to J is at most b + (w + J) / I in any closed window of w,
 * rounded down. That is no more than q where I > (w + J) / (q - b + 1): strictly, as at equality the unit at the far end
 * of the window would be the one too many. The interval is the first above it on the grid on which limits keep
 * intervals, 1/1024 µs.
 *
 * For a token bucket of rate R and burst B both have to hold: 1 / I <= R, and b + J / I <= B. The rate comes first, the
 * burst is the highest that is left; where none is, the interval is longer.
 *
 * ```ts
 * safeShape({ q: 100, w: 60_000, jitterMs: 500, burst: 10 }) // a unit every 664.8… ms
 * createLimiter(redis, { name: 'provider', ...safeShape({ q: 100, w: 60_000, jitterMs: 500 }) })
 * ```
 * @throws InvalidLimitError, InvalidRateError
 */
export function safeShape(provider: WindowProvider | TokenBucketProvider): SafeShape {
  checkNumber('jitterMs', provider.jitterMs ?? 0, 'a number of ms >= 0', (value) => value >= 0)
  return provider.model === 'token-bucket' ? forTokenBucket(provider) : forWindow(provider)
}

function forWindow({ q, w, jitterMs = 0, burst }: WindowProvider): SafeShape {
  checkNumber('q', q, 'a whole number >= 1', isWhole)
  checkNumber('w', w, 'a number of ms > 0', (value) => value > 0)
  const b = burst ?? Math.max(1, Math.floor(q * DEFAULT_BURST_SHARE))
  checkNumber('burst', b, 'a whole number >= 1', isWhole)
  if (b > q) {
    throw new InvalidLimitError(`burst ${b} is more than the ${q} that the provider allows: set it to at most ${q}`)
  }
  const parts = q - b + 1
  const total = (w + jitterMs) * STEPS_PER_MS
  let steps = Math.floor(total / parts) + 1
  // What was rounded in between must not make it too short.
  while (steps * parts <= total) steps++
  return shapeOf(steps, b)
}

function forTokenBucket({ rate, burst, jitterMs = 0 }: TokenBucketProvider): SafeShape {
  checkNumber('burst', burst, 'a number >= 1', (value) => value >= 1)
  const shortest = intervalUs(parseRate(rate)) * STEPS_PER_US
  if (burst === 1 && jitterMs > 0) {
    throw new InvalidLimitError(
      `a bucket of burst ${burst} allows no jitter, and there is one of ${jitterMs} ms: two units may come together, ` +
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

function isWhole(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 1
}

function checkNumber(field: string, value: unknown, expected: string, ok: (value: number) => boolean): void {
  if (typeof value === 'number' && Number.isFinite(value) && ok(value)) return
  throw new InvalidLimitError(`${field} must be ${expected}; got ${JSON.stringify(value) ?? value}`)
}
