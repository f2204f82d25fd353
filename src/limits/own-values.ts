import { didYouMean } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import { checkField, wholeFrom } from '../field-check.ts'
import { intervalUs, parseRate, type RateInput } from '../rate.ts'
import { encodeRule, isBucket } from './definition.ts'
import { checkSameWindow, checkSingleton, type QueueLimit, ruleOfTier } from './queue-limits.ts'
import { decodeRate, encodeRate, type RateSchedule, type StoredRate } from './schedule.ts'

/** The settings of one value of a limit's keys, which replace the shape's. */
export interface LimitValues {
  /**
   * `'100/min'` or `{ limit, period }` (ms); for a bucket also a schedule. For a window, the period must equal the
   * limit's: counts stay.
   */
  readonly rate?: RateInput | RateSchedule
  /** Buckets: units that may pass back to back after idling. */
  readonly burst?: number
  /** `concurrency`: how many jobs of the value may run at once. */
  readonly concurrency?: number
  /** For a limit with `warmUp`: the day at which its plan continues. A rate that is set holds the plan at its day. */
  readonly day?: number
  /**
   * Until this is cleared or its time is over: a member of a pool takes no jobs, and its running ones continue; a plan
   * (`warmUp`) stays at its day.
   */
  readonly held?: true
  /** One of the limit's `tiers`, instead of each job's. `rate` and `burst` override the tier's. */
  readonly tier?: string
}

/** A change at run time for one value; a rate of null means "no limit" for it. */
export type LimitOverride = Omit<LimitValues, 'rate'> & { readonly rate?: RateInput | RateSchedule | null }

/** The fields that can be set for one value. */
export const LIMIT_VALUES: readonly (keyof LimitValues)[] = ['tier', 'rate', 'burst', 'concurrency', 'day', 'held']

/** Feedback's settings of one value, until a time: a hold, and a bound of its rate. */
export interface LimitHolds {
  readonly limited?: true
  readonly slowed?: string
  readonly paced?: string
}

/** The fields that can be lifted. */
export const LIFTED: readonly string[] = [...LIMIT_VALUES, 'limited', 'slowed', 'paced']

export type StoredLimitValue = number | string | true | StoredRate | null

/** @throws InvalidLimitError */
export function checkLimitField(field: string): void {
  if (LIFTED.includes(field)) return
  throw new InvalidLimitError(`a value of a limit has no field '${field}' to be cleared; it has ${LIFTED.join(', ')}`)
}

/**
 * The settings of one value of a limit, in the form for `lua/verbs/set-limit.lua`.
 * @throws InvalidLimitError, InvalidRateError
 */
export function encodeLimitOverride(limit: QueueLimit, override: unknown): Record<string, StoredLimitValue> {
  if (typeof override !== 'object' || override === null || Array.isArray(override)) {
    throw new InvalidLimitError(`setLimit must be given an object; got ${JSON.stringify(override) ?? String(override)}`)
  }
  if (limit.shared) {
    throw new InvalidLimitError(
      `limit "${limit.name}" is shared, and is the same in every queue and limiter: setLimit needs one that is not`,
    )
  }
  const given = Object.entries(override).filter(([, value]) => value !== undefined)
  for (const [field] of given) checkSettable(limit, field)
  if (given.length === 0)
    throw new InvalidLimitError(`setLimit needs at least one of ${LIMIT_VALUES.join(', ')}; got none`)
  const { rate, ...others } = Object.fromEntries(given) as LimitOverride
  checkTogether(limit, { ...others, ...(rate === null || rate === undefined ? {} : { rate }) })
  if (rate === undefined) return others
  return { ...others, rate: rate === null ? null : encodeRate(rate) }
}

/** The current settings of a value, in readable form; nothing for "no limit". */
export function limitInForce(limit: QueueLimit, overrides: LimitOverride & LimitHolds): LimitValues {
  const { tier, held, rate: own } = overrides
  const hold = held ? { held } : {}
  if (own === null) return hold
  const rule = ruleOfTier(limit, tier)
  if (rule.algorithm === 'concurrency')
    return { concurrency: overrides.concurrency ?? (rule.concurrency as number), ...hold }
  const rate = slower(decodeRate(encodeRate(own ?? rule.rate)), overrides)
  const burst = isBucket(rule.algorithm ?? 'gcra') ? { burst: overrides.burst ?? rule.burst ?? 1 } : {}
  return { ...(tier === undefined ? {} : { tier }), rate, ...burst, ...hold }
}

/** If a rate follows the clock, the slower one of each time applies: it stays unchanged. */
function slower(rate: string | RateSchedule, { slowed, paced }: LimitHolds): string | RateSchedule {
  const us = (one: string) => intervalUs(parseRate(one))
  if (typeof rate !== 'string') return rate
  return [slowed ?? rate, paced ?? rate].reduce((one, other) => (us(other) > us(one) ? other : one), rate)
}

function checkSettable(limit: QueueLimit, field: string): void {
  if (!(LIMIT_VALUES as readonly string[]).includes(field)) {
    throw new InvalidLimitError(
      `setLimit has no field '${field}'; it has ${LIMIT_VALUES.join(', ')}${didYouMean(field, LIMIT_VALUES)}`,
    )
  }
  const { algorithm = 'gcra', warmUp, pool } = limit
  const ofRate = isBucket(algorithm) ? ['rate', 'burst'] : ['rate']
  const counts = algorithm === 'concurrency' ? ['concurrency'] : warmUp ? ['rate', 'day', 'held'] : ofRate
  if (field === 'tier' || counts.includes(field) || (field === 'held' && pool)) return
  throw new InvalidLimitError(`limit "${limit.name}" of ${algorithm} has no ${field}: set its ${counts.join(' or ')}`)
}

/** As if they were in the shape. */
function checkTogether(limit: QueueLimit, { tier, day, held, ...values }: LimitValues): void {
  if (day !== undefined) checkField('day', day, wholeFrom(1), InvalidLimitError)
  if (held !== undefined && held !== true) {
    throw new InvalidLimitError(`held must be true, or is cleared with clearLimit; got ${JSON.stringify(held)}`)
  }
  const isKnown = tier === undefined || (typeof tier === 'string' && Object.hasOwn(limit.tiers ?? {}, tier))
  if (!isKnown) throw noSuchTier(limit.name, limit.tiers, tier)
  checkSameWindow(limit, encodeRule(limit), encodeRule({ ...limit, ...values }))
  checkSingleton({ ...limit, ...values })
}

export function noSuchTier(name: string, tiers: QueueLimit['tiers'], tier: unknown): InvalidLimitError {
  const known = tiers ? `it has ${Object.keys(tiers).join(', ')}` : 'it has none'
  return new InvalidLimitError(`limit "${name}" has no tier ${JSON.stringify(tier)}; ${known}`)
}
