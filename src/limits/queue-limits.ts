import { didYouMean } from '../call-options.ts'
import { InvalidLimitError } from '../errors.ts'
import type { ShapeMode } from '../mode.ts'
import { describeRule, encodeRule, type LimitRule, quotaOf } from './definition.ts'
import { checkLimitName, encodeKey, type LimitKey, ONE_FOR_ALL, statePrefix } from './limit-keys.ts'

/** A further limit that the departures of a queue must meet. */
export interface QueueLimit extends LimitRule {
  /** 1 to 64 letters, digits, '_', '.' or '-'; unique among the limits of the queue. */
  readonly name: string
  /**
   * What it counts: a job's `costs[unit]`, 1 if the job has none; a job of 0 takes nothing and does not wait for it.
   * Default: the job's `cost`.
   */
  readonly unit?: string
  /** `queue`, the default: one state for the queue. `group`: one for each of its groups; needs `shape.groups`. */
  readonly per?: 'queue' | 'group'
  /** One bucket for every queue and every limiter that uses the name. Default false: the queue has its own. */
  readonly shared?: boolean
  /** If shared: the key of the bucket, as passed to `limiter.take`. Default: the one state for all. */
  readonly key?: LimitKey
  /** If shared: the limiter's `prefix`. Default: `sluice`, or the hash tag of the queue's prefix. */
  readonly prefix?: string
  /** If shared: a higher version replaces the definition for all. */
  readonly version?: number
  /** Default `enforce`. */
  readonly mode?: ShapeMode
}

/** The fields of a rule; the type makes the compiler reject a missing one. */
const RULE_FIELDS: Readonly<Record<keyof LimitRule, true>> = {
  ...{ algorithm: true, rate: true, burst: true, align: true, timeZone: true, concurrency: true, leaseMs: true },
  ...{ reservedShare: true, lendAfterMs: true },
}
/** The fields of a limit besides those of its rule and {@link SHARED_ONLY}. */
const OWN_FIELDS = ['name', 'unit', 'per', 'mode', 'shared'] as const
const SHARED_ONLY = ['key', 'prefix', 'version'] as const
/** How a limit per group begins. As in `lua/shape/shapes.lua`. */
const PER_GROUP = '{"per":"group",'

/**
 * Validates the limits of a shape and encodes them for storage: JSON, as `lua/limits/queue-limits.lua` reads it, each with
 * the rule as it was given; those per group come last. Stored as text, because JSON encoded by Redis keeps only 14 digits of a number.
 * @returns null for none
 * @throws InvalidLimitError, InvalidRateError, InvalidKeyError
 */
export function encodeQueueLimits(limits: unknown): string | null {
  if (!Array.isArray(limits)) {
    throw new InvalidLimitError(`shape.limits must be a list of limits; got ${JSON.stringify(limits) ?? limits}`)
  }
  const names = new Set<string>()
  const stored = (limits as readonly QueueLimit[]).map((limit) => {
    const encoded = encodeQueueLimit(limit)
    if (names.has(limit.name)) throw new InvalidLimitError(`shape.limits has two limits of the name "${limit.name}"`)
    names.add(limit.name)
    return encoded
  })
  const inOrder = [...stored.filter(({ per }) => !per), ...stored.filter(({ per }) => per)]
  return stored.length === 0 ? null : JSON.stringify(inOrder)
}

/** The limits of the queue and those of each of its groups, in their stored form; undefined for none. */
export function splitQueueLimits(stored: string): { readonly queue?: string; readonly group?: string } {
  const at = stored.indexOf(PER_GROUP)
  if (at < 0) return { queue: stored }
  return { ...(at > 1 ? { queue: `${stored.slice(0, at - 1)}]` } : {}), group: `[${stored.slice(at)}` }
}

/** The name of a limit per group, undefined if there is none. */
export function groupLimitIn(stored: string): string | undefined {
  const { group } = splitQueueLimits(stored)
  return group && decodeQueueLimits(group)[0]?.name
}

/** The limits as they were given. */
export function decodeQueueLimits(stored: string): readonly QueueLimit[] {
  return (JSON.parse(stored) as { rule: QueueLimit }[]).map(({ rule }) => rule)
}

/** What a job with these costs takes from a limit. As in `lua/limits/queue-limits.lua`. */
export function costUnder(
  { unit, algorithm }: QueueLimit,
  cost: number,
  costs: Readonly<Record<string, number>> = {},
): number {
  const asked = unit === undefined ? cost : (costs[unit] ?? 1)
  return algorithm === 'concurrency' ? Math.ceil(asked) : asked
}

/** The most that a job may cost under a limit. */
export function mostUnder(limit: QueueLimit): number {
  return quotaOf(encodeRule(limit))
}

function encodeQueueLimit(limit: QueueLimit): { readonly per?: 'group'; readonly [field: string]: unknown } {
  if (typeof limit !== 'object' || limit === null) {
    throw new InvalidLimitError(`shape.limits must be a list of limits; got ${JSON.stringify(limit) ?? limit} in it`)
  }
  const { name, unit, per = 'queue', shared = false, key = ONE_FOR_ALL, prefix, version, mode, ...rule } = limit
  checkLimitName(name)
  if ('spread' in limit) {
    throw new InvalidLimitError(`limit "${name}" has a spread, but the limits of a queue lie in one slot: leave it out`)
  }
  const unknown = Object.keys(rule).find((field) => !Object.hasOwn(RULE_FIELDS, field))
  if (unknown !== undefined) {
    const known = [...OWN_FIELDS, ...SHARED_ONLY, ...Object.keys(RULE_FIELDS)]
    const fields = `${known.join(', ')}${didYouMean(unknown, known)}`
    throw new InvalidLimitError(`limit "${name}" has no field '${unknown}'; it has ${fields}`)
  }
  if (unit !== undefined && (typeof unit !== 'string' || unit === '')) {
    throw new InvalidLimitError(`unit of limit "${name}" must be a name; got ${JSON.stringify(unit)}`)
  }
  if (typeof shared !== 'boolean')
    throw new InvalidLimitError(`shared of limit "${name}" must be true or false; got ${shared}`)
  const odd = SHARED_ONLY.find((field) => !shared && limit[field] !== undefined)
  if (odd) throw new InvalidLimitError(`limit "${name}" has a ${odd}, but is not shared: set shared: true`)
  checkPer(limit)
  const wire = encodeRule(rule, mode)
  const agreed = shared ? { shared, prefix, version, definition: describeRule(rule) } : {}
  const state = statePrefix(wire.algorithm) + encodeKey(key)
  return { ...(per === 'group' ? { per } : {}), ...wire, name, unit, ...agreed, state, rule: limit }
}

/** What has no meaning, or would not be exact, for each group. */
function checkPer({ name, per = 'queue', shared, algorithm }: QueueLimit): void {
  if (per !== 'queue' && per !== 'group') {
    throw new InvalidLimitError(`per of limit "${name}" must be 'queue' or 'group'; got ${JSON.stringify(per) ?? per}`)
  }
  if (per === 'queue') return
  if (shared) {
    throw new InvalidLimitError(`limit "${name}" is per group, and no other queue has these groups: leave shared out`)
  }
  if (algorithm === 'concurrency') {
    throw new InvalidLimitError(
      `limit "${name}" is per group, where 'concurrency' is not possible: set shape.groups.concurrency`,
    )
  }
}
