import { checkCallOptions } from '../call-options.ts'
import { InvalidInputError } from '../errors.ts'
import { parseRate, type RateInput } from '../rate.ts'
import { describe } from './describe.ts'
import type { FeedbackSource } from './source.ts'

/**
 * The adaptive rate: additive increase, multiplicative decrease (Chiu and Jain, 1989), as TCP does it once per round
 * trip. It never rises above the configured rate.
 */
export interface AdaptOptions {
  /** The rate in force is multiplied by this, once for all answers to what departed before. > 0, < 1, default 0.7. */
  readonly decrease?: number
  /** Share of the configured rate that is added for each quiet period. > 0, <= 1, default 0.01. */
  readonly increase?: number
  /** A quiet period, ms: so long nothing was refused, and the rate was used. Default 10 000. */
  readonly quietMs?: number
  /** It never falls below. Default a hundredth of the configured rate. */
  readonly floor?: RateInput
}

/** What a ShapedWorker does with the answers of the other side. */
export interface FeedbackOptions {
  /** Tells what answers say, such as `profiles.stripe` of `sluice/egress`. Default: nothing is looked at. */
  readonly feedback?: FeedbackSource
  /** Lets the rate follow the answers. Default false: answers only pause. */
  readonly adapt?: boolean | AdaptOptions
  /** An attempt that was throttled uses up none of `attempts`; after so many the job fails. Default 100. */
  readonly maxThrottled?: number
}

/** As `lua/apply-feedback.lua` takes it. */
export interface EncodedAdapt {
  readonly decrease: number
  readonly increase: number
  readonly quietMs: number
  /** [limit, period ms] */
  readonly floor?: readonly [number, number]
}

const DEFAULT_MAX_THROTTLED = 100
const DEFAULT_ADAPT = { decrease: 0.7, increase: 0.01, quietMs: 10_000 }

/** @throws InvalidInputError, InvalidRateError */
export function checkFeedbackOptions({ feedback, adapt = false, maxThrottled }: FeedbackOptions): {
  readonly source: FeedbackSource | undefined
  readonly adapt: EncodedAdapt | undefined
  readonly maxThrottled: number
} {
  if (feedback !== undefined && typeof (feedback as Partial<FeedbackSource> | null)?.listen !== 'function') {
    throw new InvalidInputError(`feedback must be a profile, such as profiles.http; got ${describe(feedback)}`)
  }
  if (typeof adapt !== 'boolean' && (typeof adapt !== 'object' || adapt === null)) {
    throw new InvalidInputError(`adapt must be true, false or an object of options; got ${describe(adapt)}`)
  }
  if (maxThrottled !== undefined && !(Number.isSafeInteger(maxThrottled) && maxThrottled >= 0)) {
    throw new InvalidInputError(`maxThrottled must be a whole number >= 0; got ${describe(maxThrottled)}`)
  }
  return {
    source: feedback,
    adapt: adapt === false ? undefined : encodeAdapt(adapt === true ? {} : adapt),
    maxThrottled: maxThrottled ?? DEFAULT_MAX_THROTTLED,
  }
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
    throw new InvalidInputError(`${name} must be ${expected}; got ${describe(value)}`)
}
