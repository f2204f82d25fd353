import { checkCallOptions, didYouMean } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import { checkFields, type FieldCheck, numberAbove, oneOf, wholeFrom } from '../field-check.ts'
import type { ShapeMode } from '../mode.ts'
import type { FunctionsOption } from '../redis/functions.ts'
import { type LimitRule, TIER_FIELDS, type TierRule } from './definition.ts'
import { hashTag, type LimitKey } from './limit-keys.ts'
import type { LocalLimiting } from './local-options.ts'

/** What to do when Redis does not decide: throw LimiterUnavailableError, let the request pass, or refuse it. */
export type OnError = 'throw' | 'allow' | 'deny'

/** The tier of a key; undefined means the limiter's own rule. */
export type TierOf =
  | ((key: LimitKey) => string | undefined | Promise<string | undefined>)
  | Readonly<Record<string, string>>

export interface LimiterOptions extends LimitRule, LocalLimiting {
  /** 1 to 64 letters, digits, '_', '.' or '-'. Limiters with the same name share one limit. */
  readonly name: string
  /** The prefix of every Redis key. Default `sluice`. */
  readonly prefix?: string
  /** A higher version replaces the definition for all programs. */
  readonly version?: number
  /** `enforce` (default); `shadow` decides but lets everything pass (`wouldRefuse`); `off` does not decide. */
  readonly mode?: ShapeMode
  /** How many ms to wait for Redis. Default 100. */
  readonly timeoutMs?: number
  /** If Redis cannot decide: `throw` LimiterUnavailableError (default), `allow` or `deny`. */
  readonly onError?: OnError
  /** Whether scripts run as Redis Functions: `auto` (default) or `never`. */
  readonly functions?: FunctionsOption
  /** Called with each error that `onError` handles. */
  readonly onFailure?: (error: Error, key: LimitKey) => void
  /** How many keys have their own state; all others share one (`sharesKey` in answers). Default: unlimited. */
  readonly maxKeys?: number
  /** `key`: each node of a cluster decides for some of the keys. Default: one node decides for all. */
  readonly spread?: 'key' | 'even'
  /** Rules by tier: `rate`, `burst` and `concurrency`. */
  readonly tiers?: Readonly<Record<string, TierRule>>
  /** The tier of each key: a function, or an object by key. */
  readonly tierOf?: TierOf
}

export const DEFAULT_TIMEOUT_MS = 100

const CHECKS: { readonly [F in keyof LimiterOptions]?: FieldCheck } = {
  prefix: {
    expected: 'a string without a colon at its end',
    ok: (value) => typeof value === 'string' && /^.*[^:]$/.test(value),
  },
  version: { expected: 'a whole number', ok: Number.isSafeInteger },
  mode: oneOf('enforce', 'shadow', 'off'),
  timeoutMs: numberAbove(0, 'of ms'),
  onError: oneOf('throw', 'allow', 'deny'),
  functions: oneOf('auto', 'never'),
  onFailure: { expected: 'a function', ok: (value) => typeof value === 'function' },
  maxKeys: wholeFrom(1),
  spread: oneOf('key'),
}

/** Every option; its type makes the compiler reject a missing one. */
const FIELDS: Readonly<Record<keyof LimiterOptions, true>> = {
  ...{ name: true, prefix: true, version: true, mode: true, timeoutMs: true, onError: true, onFailure: true },
  functions: true,
  ...{
    maxKeys: true,
    spread: true,
    tiers: true,
    tierOf: true,
    algorithm: true,
    rate: true,
    burst: true,
    align: true,
    timeZone: true,
  },
  ...{ concurrency: true, leaseMs: true, reservedShare: true, lendAfterMs: true, sync: true, local: true },
  mitigation: true,
}

const ONE_RATE = "units and their window are one option, such as rate: '5/15min'"
/** Options of other packages' limiters, and their replacements here. */
const OF_OTHERS: Readonly<Record<string, string>> = {
  ...{ points: ONE_RATE, max: ONE_RATE, limit: ONE_RATE, window: ONE_RATE, windowMs: ONE_RATE },
  duration: `${ONE_RATE}; in place of one without end take a long one, such as '100/365day', and call reset(key)`,
  blockDuration: 'call block(key, ms) when a request is refused',
  keyPrefix: 'it is called prefix',
  execEvenly: "gcra with burst: 1 spaces evenly, and wait(key) waits for the key's turn",
  inMemoryBlockOnConsumed: 'mitigation refuses in memory',
  insuranceLimiter: 'onError decides while Redis is unavailable',
}

/** @throws InvalidLimitError */
export function checkLimiterOptions(options: LimiterOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw new InvalidLimitError(`a limiter needs options, at least name and rate; got ${options}`)
  }
  const unknown = Object.keys(options).find((field) => !Object.hasOwn(FIELDS, field))
  if (unknown !== undefined && Object.hasOwn(OF_OTHERS, unknown)) {
    throw new InvalidLimitError(`a limiter has no option '${unknown}': ${OF_OTHERS[unknown]}`)
  }
  if (unknown !== undefined) {
    const known = Object.keys(FIELDS)
    throw new InvalidLimitError(
      `a limiter has no option '${unknown}'; it has ${known.join(', ')}${didYouMean(unknown, known)}`,
    )
  }
  checkFields(options, CHECKS, InvalidLimitError)
  for (const [tier, rule] of Object.entries(options.tiers ?? {})) checkCallOptions(`tier '${tier}'`, rule, TIER_FIELDS)
  if ((options.tiers === undefined) !== (options.tierOf === undefined)) {
    throw new InvalidLimitError('tiers and tierOf belong together: what the tiers allow, and which one a key has')
  }
  if (options.spread) checkSpread(options)
}

/** Refuses options that need all keys of a limit in one hash slot. */
function checkSpread({ name, prefix = '', maxKeys, reservedShare }: LimiterOptions): void {
  const refuse = (what: string, why: string) => {
    throw new InvalidLimitError(`limit "${name}" has spread: 'key', which does not go with ${what}: ${why}`)
  }
  if (hashTag(prefix) !== undefined) refuse(`prefix '${prefix}'`, 'its hash tag puts all keys into one slot')
  if (maxKeys !== undefined) refuse('maxKeys', 'no node sees all keys')
  if (reservedShare) refuse('reservedShare', 'queues cannot share a limit that is spread')
}
