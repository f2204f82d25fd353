import { checkCallOptions, didYouMean } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import { checkFields, type FieldCheck, oneOf, wholeFrom } from '../field-check.ts'
import type { ShapeMode } from '../mode.ts'
import type { RateInput } from '../rate.ts'
import {
  completeRule,
  describeRule,
  encodeRule,
  type LimitRule,
  type LimitWire,
  quotaOf,
  type SpreadRule,
  TIER_FIELDS,
  type TierRule,
} from './definition.ts'
import {
  checkLimitName,
  encodeKey,
  isLimitName,
  type LimitKey,
  NAME_RULE,
  ONE_FOR_ALL,
  statePrefix,
} from './limit-keys.ts'
import { quotasOf, type WarmUp } from './warm-up.ts'

/** A further limit that the departures of a queue must meet. */
export interface QueueLimit extends LimitRule {
  /** 1 to 64 letters, digits, '_', '.' or '-'. */
  readonly name: string
  /** What the limit counts: a job's `costs[unit]`, or 1 if it has none; a job with 0 does not wait. Default: its `cost`. */
  readonly unit?: string
  /**
   * `group`, a name in the jobs' `keys`, or up to 4 of these: each value or combination is limited separately. A job
   * that lacks one is not limited.
   */
  readonly by?: string | readonly string[]
  /** With `by`: `rate` and `burst` for jobs or values of a tier. */
  readonly tiers?: Readonly<Record<string, TierRule>>
  /** With `by`, instead of a rate: quotas that grow over days. */
  readonly warmUp?: WarmUp
  /** With `by`: `refuse` refuses jobs that lack a key (MissingKeyError). */
  readonly missing?: 'refuse'
  /** With `by`: how many values may be in use at once; a job with a new value is refused (TooManyKeysError). Default: unlimited. */
  readonly maxKeys?: number
  /** 1 to 100 names, such as those of API keys: each is limited separately. */
  readonly pool?: readonly string[]
  /** With `pool`: `group` keeps each group on one member while that member is free. Default: members take turns. */
  readonly sticky?: 'group'
  /** With `by` and `concurrency: 1`: what happens to a second job with the same value. Default `wait`. */
  readonly onConflict?: 'wait' | 'cancel-newest' | 'cancel-running'
  /** Accepts jobs that cost more than the limit allows at once; `settleCost` charges the rest. Default false. */
  readonly clampCost?: boolean
  /** `even`: spreads a quota per day, week or month over the rest of its window. Not for shared limits. */
  readonly spread?: 'even' | 'key'
  /** With `spread`: the hours in which the quota is spent, such as `'08:00-20:00'` or `'mon-fri 08:00-20:00'`. Default: always. */
  readonly within?: string
  /** With `spread`: the slowest pace until the quota is used up. */
  readonly minRate?: RateInput
  /** Whether all queues and limiters that use the name share one state, or one per value with `by`. Default false. */
  readonly shared?: boolean
  /** If shared, without `by`: the key as passed to `limiter.take`. Default: none. */
  readonly key?: LimitKey
  /** If shared: the limiter's `prefix`. Default: `sluice`, or the hash tag of the queue's prefix. */
  readonly prefix?: string
  /** If shared: a higher version replaces the definition for all programs. */
  readonly version?: number
  /** `enforce` (default), `shadow` or `off`, as in a shape. */
  readonly mode?: ShapeMode
}

/** The fields of a rule; the type makes the compiler reject a missing one. */
const RULE_FIELDS: Readonly<Record<keyof SpreadRule, true>> = {
  ...{ algorithm: true, rate: true, burst: true, align: true, timeZone: true, concurrency: true, leaseMs: true },
  ...{ reservedShare: true, lendAfterMs: true, spread: true, within: true, minRate: true },
}
/** The fields of a limit besides those of its rule and {@link SHARED_ONLY}. */
const OWN_FIELDS = [
  'name',
  'unit',
  'by',
  'tiers',
  'warmUp',
  'missing',
  'maxKeys',
  'pool',
  'sticky',
  'onConflict',
  'clampCost',
  'mode',
  'shared',
] as const
const SHARED_ONLY = ['key', 'prefix', 'version'] as const
const YES_OR_NO: FieldCheck = { expected: 'true or false', ok: (value) => typeof value === 'boolean' }
const CHECKS: { readonly [F in keyof QueueLimit]?: FieldCheck } = {
  missing: oneOf('refuse'),
  sticky: oneOf('group'),
  maxKeys: wholeFrom(1),
  onConflict: oneOf('wait', 'cancel-newest', 'cancel-running'),
  clampCost: YES_OR_NO,
  shared: YES_OR_NO,
}
/** The name of the group in `by`. */
const GROUP = 'group'
/** Maximum number of members of a pool: each departure reads the states of all. */
const MOST_MEMBERS = 100
const MEMBER = /^[\w.:-]{1,64}$/
/** Fields that pools do not allow, and why. */
const NOT_IN_POOLS = {
  by: 'a job names no member',
  shared: 'members are those of one queue',
  tiers: 'a member is set apart with setLimit',
  reservedShare: 'no limiter takes of it',
} as const
/** Maximum number of names in one `by`. */
const MOST_NAMES = 4
/** With more, each departure would read and charge more states than its script has time for. */
const MOST_KEYED = 8
/** How a limit with `by` begins. As in `lua/shape/parsed.lua`. */
const KEYED = '{"by":['

/**
 * Validates the limits of a shape and encodes them for storage: JSON, as `lua/limits/queue-limits.lua` reads it, each with
 * the rule as it was given, apart from the order of `by`; those with `by` come last. Stored as text, because JSON encoded
 * by Redis keeps only 14 digits of a number.
 * @returns null for none
 * @throws InvalidLimitError, InvalidRateError, InvalidKeyError
 */
export function encodeQueueLimits(limits: unknown): string | null {
  if (!Array.isArray(limits)) {
    throw new InvalidLimitError(`shape.limits must be a list of limits; got ${JSON.stringify(limits) ?? limits}`)
  }
  const names = new Set<string>()
  const stored = (limits as readonly QueueLimit[]).map((given) => {
    const limit = completeLimit(given)
    const encoded = encodeQueueLimit(limit)
    if (names.has(limit.name)) throw new InvalidLimitError(`shape.limits has two limits of the name "${limit.name}"`)
    names.add(limit.name)
    return encoded
  })
  const keyed = stored.filter(({ by }) => by)
  if (keyed.length > MOST_KEYED) {
    throw new InvalidLimitError(`shape.limits may have at most ${MOST_KEYED} limits with by; got ${keyed.length}`)
  }
  return stored.length === 0 ? null : JSON.stringify([...stored.filter(({ by }) => !by), ...keyed])
}

/** The limits of the queue as a whole and those with `by`, in their stored form; undefined for none. */
export function splitQueueLimits(stored: string): { readonly queue?: string; readonly keyed?: string } {
  const at = stored.indexOf(KEYED)
  if (at < 0) return { queue: stored }
  return { ...(at > 1 ? { queue: `${stored.slice(0, at - 1)}]` } : {}), keyed: `[${stored.slice(at)}` }
}

/**
 * The name of a limit that counts by group alone, undefined if there is none. Limits by other keys give a queue groups,
 * if it has none.
 */
export function groupLimitIn(stored: string): string | undefined {
  const { keyed } = splitQueueLimits(stored)
  const limits = keyed ? decodeQueueLimits(keyed) : []
  return limits.every(({ by }) => by === GROUP) ? limits[0]?.name : undefined
}

/** The name of a limit whose groups keep members, undefined if there is none. */
export function stickyLimitIn(stored: string): string | undefined {
  return decodeQueueLimits(stored).find(({ sticky }) => sticky)?.name
}

/** Whether it counts by the group of a job, among others. */
export function isByGroup({ by }: QueueLimit): boolean {
  return [by].flat().includes(GROUP)
}

/** The limits as they were given. */
export function decodeQueueLimits(stored: string): readonly QueueLimit[] {
  return (JSON.parse(stored) as { rule: QueueLimit }[]).map(({ rule }) => rule)
}

/** Whether a limit applies to a job with these keys. */
export function isSubject({ by }: QueueLimit, keys: Readonly<Record<string, string>> = {}): boolean {
  return [by ?? GROUP].flat().every((name) => name === GROUP || Object.hasOwn(keys, name))
}

/** The value of each name that a limit counts by, for a job with these. */
export function keysUnder(
  { by }: QueueLimit,
  group = '',
  keys: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string | undefined>> {
  return Object.fromEntries([by ?? []].flat().map((name) => [name, name === GROUP ? group : keys[name]]))
}

/** The units that a job with these costs takes from a limit. As in `lua/limits/queue-limits.lua`. */
export function costUnder(
  { unit, algorithm }: QueueLimit,
  cost: number,
  costs: Readonly<Record<string, number>> = {},
): number {
  const asked = unit === undefined ? cost : (costs[unit] ?? 1)
  return algorithm === 'concurrency' ? Math.ceil(asked) : asked
}

/** The most that a job may cost under a limit. @param tier of the job */
export function mostUnder(limit: QueueLimit, tier?: string): number {
  return quotaOf(encodeRule(ruleOfTier(limit, tier)))
}

/** A limit as it applies to a tier; unchanged without one, or for an unknown one. */
export function ruleOfTier(limit: QueueLimit, tier: string | undefined): QueueLimit {
  const { tiers = {} } = limit
  return tier !== undefined && Object.hasOwn(tiers, tier) ? { ...limit, ...tiers[tier] } : limit
}

/** @throws InvalidLimitError, InvalidRateError */
function completeLimit(limit: QueueLimit): QueueLimit {
  if (typeof limit !== 'object' || limit === null) return limit
  const { name, spread, warmUp } = limit
  if (spread === undefined || spread === 'even') return warmUp ? limit : completeRule(limit)
  throw new InvalidLimitError(
    `spread of limit "${name}" must be 'even', as the limits of a queue lie in one slot; got ${JSON.stringify(spread)}`,
  )
}

function encodeQueueLimit(given: QueueLimit): { readonly by?: readonly string[]; readonly [field: string]: unknown } {
  if (typeof given !== 'object' || given === null) {
    throw new InvalidLimitError(`shape.limits must be a list of limits; got ${JSON.stringify(given) ?? given} in it`)
  }
  const plan = given.warmUp === undefined ? undefined : quotasOf(given.name, given.warmUp)
  const limit = plan ? planned(given, plan) : given
  const {
    name,
    unit,
    by: _,
    tiers,
    warmUp,
    missing: _missing,
    maxKeys,
    pool,
    sticky,
    onConflict,
    clampCost,
    shared = false,
    key = ONE_FOR_ALL,
    prefix,
    version,
    mode,
    ...rule
  } = limit
  checkOwnFields(limit, rule)
  const names = namesBy(limit)
  if (names) checkKeyed(limit)
  else checkWithoutKeys(limit)
  const wire = encodeRule(rule, mode)
  const agreed = shared ? { shared, prefix, version, definition: describeRule(rule) } : {}
  const state = statePrefix(wire.algorithm) + encodeKey(key)
  const fields = { ...wire, name, unit, ...(clampCost ? { clamp: true } : {}), ...agreed, state }
  if (!names) return { ...fields, ...(pool && { pool, sticky: sticky && true }), rule: limit }
  const ofTiers = tiers === undefined ? {} : { tiers: encodeTiers(limit, tiers) }
  const bound = {
    ...(maxKeys === undefined ? {} : { maxKeys }),
    ...(isSingleton(limit) ? { onConflict } : {}),
  }
  const warms = plan === undefined ? {} : { plan, maxRefused: warmUp?.maxRefused }
  const asGiven = { ...limit, by: names.length === 1 ? names[0] : names }
  return { by: names, ...fields, ...ofTiers, ...bound, ...warms, rule: asGiven }
}

/** @param rule the limit's fields that belong to its rule */
function checkOwnFields(limit: QueueLimit, rule: object): void {
  const { name, unit, shared = false, pool } = limit
  checkLimitName(name)
  const unknown = Object.keys(rule).find((field) => !Object.hasOwn(RULE_FIELDS, field))
  if (unknown !== undefined) {
    const known = [...OWN_FIELDS, ...SHARED_ONLY, ...Object.keys(RULE_FIELDS)]
    const fields = `${known.join(', ')}${didYouMean(unknown, known)}`
    throw new InvalidLimitError(`limit "${name}" has no field '${unknown}'; it has ${fields}`)
  }
  if (unit !== undefined && (typeof unit !== 'string' || unit === '')) {
    throw new InvalidLimitError(`unit of limit "${name}" must be a name; got ${JSON.stringify(unit)}`)
  }
  const odd = SHARED_ONLY.find((field) => !shared && limit[field] !== undefined)
  if (odd) throw new InvalidLimitError(`limit "${name}" has a ${odd}, but is not shared: set shared: true`)
  checkFields(limit, CHECKS, InvalidLimitError, `limit "${name}": `)
  if (pool === undefined) checkWithoutPool(limit)
  else checkPool(limit)
  checkSingleton(limit)
}

function checkWithoutPool({ name, sticky }: QueueLimit): void {
  if (sticky !== undefined) throw new InvalidLimitError(`limit "${name}" has sticky, which is about members: set pool`)
}

/** @throws InvalidLimitError */
function checkPool(limit: QueueLimit): void {
  const { name, pool } = limit
  const members: readonly unknown[] = Array.isArray(pool) ? pool : []
  const isFine = members.length <= MOST_MEMBERS && members.every((one) => typeof one === 'string' && MEMBER.test(one))
  if (members.length === 0 || !isFine) {
    throw new InvalidLimitError(
      `pool of limit "${name}" must be a list of 1 to ${MOST_MEMBERS} names, each of 1 to 64 letters, digits, '_', '.', ':' ` +
        `or '-'; got ${JSON.stringify(pool) ?? pool}`,
    )
  }
  const twice = members.find((one, i) => members.indexOf(one) < i)
  if (twice !== undefined) throw new InvalidLimitError(`pool of limit "${name}" has "${twice}" twice`)
  for (const [field, why] of Object.entries(NOT_IN_POOLS)) {
    if (!limit[field as keyof typeof NOT_IN_POOLS]) continue
    throw new InvalidLimitError(`limit "${name}" has a pool and ${field}, but ${why}: leave one of them out`)
  }
}

/** Whether at most one job of a value is in the queue at a time. */
export function isSingleton({ onConflict = 'wait' }: QueueLimit): boolean {
  return onConflict !== 'wait'
}

/** @throws InvalidLimitError */
export function checkSingleton(limit: QueueLimit): void {
  const { name, by, algorithm, concurrency, onConflict, unit, tiers, shared } = limit
  if (onConflict === undefined) return
  if (by === undefined || algorithm !== 'concurrency' || concurrency !== 1) {
    const needed = "algorithm: 'concurrency', concurrency: 1 and by"
    throw new InvalidLimitError(
      `limit "${name}" has onConflict, which needs ${needed}; got ${JSON.stringify({ algorithm, concurrency, by })}`,
    )
  }
  const odd = Object.entries({ unit, tiers, shared }).find(([, value]) => value !== undefined && value !== false)
  if (!odd) return
  throw new InvalidLimitError(
    `limit "${name}" has onConflict, which counts each job of this queue as one: leave ${odd[0]} out`,
  )
}

/** A window with the quota of the first day: the limit of a value without data. */
function planned(limit: QueueLimit, [quota]: readonly (number | null)[]): QueueLimit {
  const { name, by, tiers, shared, warmUp } = limit
  const rule = { algorithm: 'fixed-window', align: 'day', rate: `${quota}/day` } as const
  const odd = (Object.keys(rule) as (keyof typeof rule)[]).find(
    (field) => limit[field] !== undefined && limit[field] !== rule[field],
  )
  if (odd) throw new InvalidLimitError(`limit "${name}" has a warmUp, which says its ${odd}: leave ${odd} out`)
  if (by === undefined) {
    throw new InvalidLimitError(
      `limit "${name}" has a warmUp, which is that of values: set by, such as by: 'group', under which jobs without a group share one plan`,
    )
  }
  if (tiers || shared) {
    throw new InvalidLimitError(`limit "${name}" has a warmUp: leave ${tiers ? 'tiers' : 'shared'} out`)
  }
  if (warmUp?.maxRefused !== undefined && [by].flat().join() !== GROUP) {
    throw new InvalidLimitError(
      `maxRefused of limit "${name}" needs by: 'group', whose refusals are counted; got ${JSON.stringify(by)}`,
    )
  }
  return { ...limit, ...rule }
}

/** A limit as it applies to a value on the first day of its plan, without later days. */
export function onFirstDay({ warmUp, ...limit }: QueueLimit): QueueLimit {
  if (warmUp === undefined) return limit
  const { warmUp: _, ...first } = planned({ ...limit, warmUp }, quotasOf(limit.name, warmUp))
  return first
}

/** The fields that differ for each tier. */
function encodeTiers(limit: QueueLimit, tiers: unknown): Readonly<Record<string, object>> {
  const { name, mode } = limit
  const isObject = typeof tiers === 'object' && tiers !== null && !Array.isArray(tiers)
  const entries = isObject ? Object.entries(tiers as Readonly<Record<string, TierRule>>) : []
  if (entries.length === 0) {
    const got = JSON.stringify(tiers) ?? tiers
    throw new InvalidLimitError(
      `tiers of limit "${name}" must be { tier: { rate, burst } } for at least one; got ${got}`,
    )
  }
  const own = entries.map(([tier, rule]) => {
    if (!isLimitName(tier))
      throw new InvalidLimitError(`a tier of limit "${name}" needs a name of ${NAME_RULE}; got '${tier}'`)
    checkCallOptions(`tier '${tier}' of limit "${name}"`, rule, TIER_FIELDS)
    const [base, wire] = [encodeRule(limit, mode), encodeRule({ ...limit, ...rule }, mode)]
    checkSameWindow(limit, base, wire)
    const fields = (['interval', 'burst', 'limit'] as const).flatMap((field) =>
      wire[field] === undefined ? [] : [[field, wire[field]]],
    )
    const isTimed = rule.rate !== undefined && (base.schedule ?? wire.schedule) !== undefined
    return [tier, { ...Object.fromEntries(fields), ...(isTimed ? { schedule: wire.schedule ?? false } : {}) }] as const
  })
  return Object.fromEntries(own)
}

/** Counts of one window mean nothing for another. */
export function checkSameWindow({ name }: QueueLimit, base: LimitWire, other: LimitWire): void {
  if (base.window === other.window || base.algorithm === 'concurrency') return
  const [expected, given] = [base, other].map(({ window = 0 }) => window / 1000)
  throw new InvalidLimitError(
    `limit "${name}" counts windows of ${expected} ms, and so do its tiers and values; got a rate per ${given} ms`,
  )
}

/** The names that a limit counts by, in stored order: the group, then names of keys. */
function namesBy({ name, by }: QueueLimit): readonly string[] | undefined {
  if (by === undefined) return undefined
  const given: readonly unknown[] = Array.isArray(by) ? by : [by]
  if (given.length === 0 || given.length > MOST_NAMES || !given.every(isLimitName)) {
    throw wrongBy(name, `must be a name, or a list of 1 to ${MOST_NAMES} names, of ${NAME_RULE}`, by)
  }
  if (new Set(given).size < given.length) throw wrongBy(name, 'has a name twice', by)
  if (given.includes('queue')) throw wrongBy(name, "may not name 'queue', which it is without by", by)
  return [...given].sort((a, b) => Number(b === GROUP) - Number(a === GROUP) || (a < b ? -1 : 1))
}

function wrongBy(name: string, why: string, by: unknown): InvalidLimitError {
  return new InvalidLimitError(`by of limit "${name}" ${why}; got ${JSON.stringify(by) ?? by}`)
}

/** Fields that only limits with `by` have. */
function checkWithoutKeys({ name, missing, maxKeys, tiers }: QueueLimit): void {
  if (maxKeys !== undefined) throw new InvalidLimitError(`limit "${name}" has maxKeys, which is about keys: set by`)
  if (missing !== undefined) throw new InvalidLimitError(`limit "${name}" has missing, which is about keys: set by`)
  if (tiers !== undefined) throw new InvalidLimitError(`limit "${name}" has tiers, which are those of values: set by`)
}

/** Fields that limits by key do not allow. */
function checkKeyed({ name, key, shared, tiers, maxKeys }: QueueLimit): void {
  const own = Object.entries({ tiers, maxKeys }).find(([, value]) => value !== undefined)
  if (shared && own) {
    throw new InvalidLimitError(
      `limit "${name}" is shared, and is the same in every queue and limiter: leave ${own[0]} out`,
    )
  }
  if (key === undefined) return
  throw new InvalidLimitError(`limit "${name}" has by, so that its keys are those of jobs: leave key out`)
}
