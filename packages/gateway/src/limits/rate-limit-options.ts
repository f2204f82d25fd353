import { checkCallOptions, InvalidInputError } from 'sluice/internal'
import type { CombinedLimiter, LimitAnswer, Limiter } from 'sluice/limits'
import type { HttpRequest, HttpResponse } from '../middleware.ts'
import { HEADER_FORMS, type HeaderForm } from '../responses/rate-limit-fields.ts'
import type { AllowList } from './allow-list.ts'
import type { BurstQueue } from './burst-queue.ts'
import { checkFieldName, checkFunction, type KeyOf } from './key-functions.ts'

/** One limit, or several combined. */
export type Limits = Limiter | CombinedLimiter

/** Units that a request costs. */
export type Cost = number | ((request: HttpRequest) => number | Promise<number>)

/** One for all limits, or one for each by its name. */
export type ByLimit<T> = T | Readonly<Record<string, T>>

/**
 * Called for each refusal by a limit, before it is sent: if it returns a response, that is sent instead.
 * @param limit the limiter's answer; for several limits, that of the binding one
 */
export type OnLimit = (
  request: HttpRequest,
  response: HttpResponse,
  limit: LimitAnswer,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that only observes returns nothing
) => HttpResponse | undefined | void | Promise<HttpResponse | undefined | void>

export interface RateLimitOptions {
  /** A limiter, or several joined by `combine`; or one of these for each tier, with `default` for the rest. */
  readonly limit: Limits | Readonly<Record<string, Limits>>
  /**
   * What a request counts against: `byAddress()`, `byApiKey()`, `byUser(fn)`, `composeKeys([…])` or a function of the
   * request; or one of these for each limit.
   */
  readonly key: ByLimit<KeyOf>
  /** Units that a request takes, or a function that returns them. Default 1. */
  readonly cost?: ByLimit<Cost>
  /** The tier of a request. Default: its identity's tier. */
  readonly tier?: (request: HttpRequest) => string | undefined | Promise<string | undefined>
  /** Whether a request is neither limited nor counted. */
  readonly skip?: (request: HttpRequest) => boolean | Promise<boolean>
  /** Callers that are neither limited nor counted. */
  readonly allow?: AllowList
  /** Called for each refusal; a response that it returns is sent instead. */
  readonly onLimit?: OnLimit
  /** How responses report the limit. Default ['draft-10']; [] for none. */
  readonly headers?: readonly HeaderForm[]
  /** The header field that names shadow-mode limits that would have refused the request. Default: none. */
  readonly shadowHeader?: string
  /** The name of a limit that several routes share, sent as `X-RateLimit-Bucket`. */
  readonly bucket?: string
  /** `{ maxWaiting, maxWaitMs, delay }`: requests over the limit wait their turn. Cannot be used with `combine`. */
  readonly burstQueue?: BurstQueue
}

const OPTIONS: readonly (keyof RateLimitOptions)[] = [
  ...(['limit', 'key', 'cost', 'tier', 'skip', 'allow', 'onLimit', 'headers'] as const),
  ...(['shadowHeader', 'bucket', 'burstQueue'] as const),
]

/** Checks each option by itself. @throws InvalidInputError */
export function checkRateLimitOptions(options: RateLimitOptions): void {
  checkCallOptions('rateLimit', options, OPTIONS)
  const { tier, skip, onLimit, headers = [], shadowHeader, bucket } = options
  for (const [option, value] of Object.entries({ tier, skip, onLimit })) {
    if (value !== undefined) checkFunction(option, value)
  }
  if (!Array.isArray(headers) || !headers.every((form) => HEADER_FORMS.includes(form))) {
    const forms = HEADER_FORMS.map((form) => `'${form}'`).join(', ')
    throw new InvalidInputError(`headers must be a list of ${forms}; got ${JSON.stringify(headers)}`)
  }
  if (shadowHeader !== undefined) checkFieldName('shadowHeader', shadowHeader)
  if (bucket !== undefined && (typeof bucket !== 'string' || bucket === '')) {
    throw new InvalidInputError(`bucket must be a name; got ${JSON.stringify(bucket)}`)
  }
}

/** The limits by tier; a single limit is the default. @throws InvalidInputError */
export function tiersOf(limit: RateLimitOptions['limit']): ReadonlyMap<string, Limits> {
  if (isLimit(limit)) return new Map([['default', limit]])
  const tiers: ReadonlyMap<string, Limits> = new Map(Object.entries(limit ?? {}))
  if (tiers.has('default') && [...tiers.values()].every(isLimit)) return tiers
  throw new InvalidInputError(
    'limit must be a limiter, limiters joined by combine, or an object of these by tier with a default; ' +
      `got ${tiers.size > 0 ? `an object of ${[...tiers.keys()].join(', ')}` : String(limit)}`,
  )
}

/** Also accepts a limit of another copy of the package. */
function isLimit(value: unknown): value is Limits {
  return typeof (value as Partial<Limiter> | undefined)?.take === 'function'
}
