import { checkCallOptions, gotText } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { isBucket } from '../limits/definition.ts'
import { isLimitName } from '../limits/limit-keys.ts'
import type { QueueLimit } from '../limits/queue-limits.ts'
import { parseRate, type RateInput } from '../rate.ts'
import type { Shape } from '../shape/shape.ts'
import type { FeedbackSource } from './source.ts'

/**
 * The adaptive rate: additive increase, multiplicative decrease (Chiu and Jain, 1989), applied once per round trip like
 * TCP. It never rises above the configured rate.
 */
export interface AdaptOptions {
  /** Multiplies the current rate, once for all answers to earlier departures. > 0, < 1, default 0.7. */
  readonly decrease?: number
  /** Share of the configured rate added per quiet period. > 0, <= 1, default 0.01. */
  readonly increase?: number
  /** A quiet period, ms: time without a refusal in which the rate was used. Default 10 000. */
  readonly quietMs?: number
  /** Lower bound of the rate. Default a hundredth of the configured rate. */
  readonly floor?: RateInput
}

/**
 * What the answers to the jobs of a queue are about. `by`: as in a limit of its shape; `pool`: the name of a limit with
 * one.
 */
export type FeedbackScope = 'queue' | 'group' | { readonly by: string | readonly string[] } | { readonly pool: string }

/** How a ShapedWorker responds to answers of the downstream. */
export interface FeedbackOptions {
  /** Interprets answers, such as `profiles.stripe` from `sluice/egress`. Default: answers are not inspected. */
  readonly feedback?: FeedbackSource
  /** Whether the rate adapts to the answers: `true`, or `{ decrease, increase, quietMs, floor }`. Default false: answers only cause pauses. */
  readonly adapt?: boolean | AdaptOptions
  /**
   * What a queue-wide answer holds: `'queue'` (default); `'group'`, the job's group; `{ by: 'host' }`, jobs with the same
   * host in their `keys`; or `{ pool: 'keys' }`, the job's member of the pool `keys`.
   */
  readonly feedbackScope?: FeedbackScope
  /** A job fails if it is still throttled this many ms after its first throttled attempt began. Default 3 days. */
  readonly giveUpAfterMs?: number
}

/** In the format of `lua/verbs/apply-feedback.lua`. */
export interface EncodedAdapt {
  readonly decrease: number
  readonly increase: number
  readonly quietMs: number
  /** [limit, period ms] */
  readonly floor?: readonly [number, number]
}

/** Mail servers try for four to five days (RFC 5321 4.5.4.1). */
const DEFAULT_GIVE_UP_AFTER_MS = 3 * 86_400_000
const DEFAULT_ADAPT = { decrease: 0.7, increase: 0.01, quietMs: 10_000 }

/**
 * @param options with the shape of the worker, if it has one
 * @throws InvalidInputError, InvalidRateError
 */
export function checkFeedbackOptions(options: FeedbackOptions & { readonly shape?: Shape | undefined }): {
  readonly source: FeedbackSource | undefined
  readonly scope: FeedbackScope
  readonly adapt: EncodedAdapt | undefined
  readonly giveUpAfterMs: number
} {
  const { feedback, adapt = false, feedbackScope = 'queue', giveUpAfterMs = DEFAULT_GIVE_UP_AFTER_MS } = options
  if (feedback !== undefined && typeof (feedback as Partial<FeedbackSource> | null)?.listen !== 'function') {
    throw new InvalidInputError(`feedback must be a profile, such as profiles.http; got ${gotText(feedback)}`)
  }
  if (typeof adapt !== 'boolean' && (typeof adapt !== 'object' || adapt === null)) {
    throw new InvalidInputError(`adapt must be true, false or an object of options; got ${gotText(adapt)}`)
  }
  checkScope(feedbackScope, options.shape?.limits)
  if (!(Number.isSafeInteger(giveUpAfterMs) && giveUpAfterMs >= 0)) {
    throw new InvalidInputError(`giveUpAfterMs must be a whole number >= 0 (ms); got ${gotText(giveUpAfterMs)}`)
  }
  return {
    source: feedback,
    scope: feedbackScope,
    adapt: adapt === false ? undefined : encodeAdapt(adapt === true ? {} : adapt),
    giveUpAfterMs,
  }
}

/** Whether a member of a pool is held. */
export function isOfPool(scope: unknown): scope is { readonly pool: string } {
  const { pool } = (scope ?? {}) as { readonly pool?: unknown }
  return typeof pool === 'string' && Object.keys(scope as object).length === 1
}

function checkScope(scope: FeedbackScope, limits: readonly QueueLimit[] | undefined): void {
  if (scope === 'queue' || scope === 'group' || isOfPool(scope)) return
  const names =
    typeof scope === 'object' && scope !== null && Object.keys(scope).join() === 'by' ? [scope.by].flat() : []
  if (names.length === 0 || !names.every(isLimitName)) {
    throw new InvalidInputError(
      `feedbackScope must be 'queue', 'group', { by: 'a key' } or { pool: 'a limit' }; got ${gotText(scope)}`,
    )
  }
  if (limits) limitOfScope(scope, limits)
}

/**
 * The limit whose values are held and slowed.
 * @throws InvalidInputError if there is none
 */
export function limitOfScope(
  scope: { readonly by: string | readonly string[] },
  limits: readonly QueueLimit[],
): QueueLimit {
  const sorted = (by: QueueLimit['by']) => [by ?? []].flat().toSorted().join()
  const limit = limits.find(
    ({ by, shared, algorithm = 'gcra' }) => sorted(by) === sorted(scope.by) && !shared && isBucket(algorithm),
  )
  if (limit) return limit
  const example = `{ name, by: ${JSON.stringify(scope.by)}, rate, burst }`
  const names = limits.map(({ name }) => name).join(', ') || 'none'
  throw new InvalidInputError(
    `feedbackScope ${JSON.stringify(scope)} needs a limit of the shape such as ${example}, a bucket that is not shared; it has ${names}`,
  )
}

function encodeAdapt(options: AdaptOptions): EncodedAdapt {
  checkCallOptions('adapt', options, [...Object.keys(DEFAULT_ADAPT), 'floor'])
  const { decrease, increase, quietMs, floor } = { ...DEFAULT_ADAPT, ...options }
  between('adapt.decrease', decrease, 'a number > 0 and < 1', decrease > 0 && decrease < 1)
  between('adapt.increase', increase, 'a number > 0 and at most 1', increase > 0 && increase <= 1)
  between('adapt.quietMs', quietMs, 'a number >= 1 (ms)', quietMs >= 1 && Number.isFinite(quietMs))
  if (floor === undefined) return { decrease, increase, quietMs }
  const { limit, periodMs } = parseRate(floor)
  return { decrease, increase, quietMs, floor: [limit, periodMs] }
}

function between(name: string, value: unknown, expected: string, ok: boolean): void {
  if (typeof value !== 'number' || !ok)
    throw new InvalidInputError(`${name} must be ${expected}; got ${gotText(value)}`)
}
