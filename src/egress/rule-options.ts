import { InvalidRateError } from '../errors.ts'
import { type Feedback, knownScope, MAX_PAUSE_MS, type SaidRate, SCOPES, type Scope } from '../feedback/feedback.ts'
import type { Trigger } from '../feedback/source.ts'
import { parseRate, type RateInput } from '../rate.ts'
import { checkFields, describe, InvalidRuleError, refuse } from './rule-error.ts'
import type { Match } from './rule-match.ts'

/** '90 min', '2 h', '1 day' (units ms, s, min, h, day), or ms. */
export type Duration = string | number

/** What a rule does. */
export type Action =
  /**
   * Nothing departs for this long; `true`: as long as the answer says, otherwise as long as pauses of unknown length.
   */
  | { readonly pause: Duration | true }
  /** A factor on the current rate, > 0 and < 1, or a rate such as '1/min'. */
  | { readonly slow: number | RateInput }
  /** At most this many at once. */
  | { readonly concurrency: number }
  /** Only this job waits; `true`: as long as the answer says, otherwise its own backoff. */
  | { readonly retryJob: Duration | true }
  /** The job can never succeed. */
  | 'fatal'
  /** The answer is ignored. */
  | 'ignore'

/**
 * What to do about an answer, after KumoMTA's traffic shaping automation (matcher, scope, action, trigger, duration):
 * https://github.com/KumoCorp/kumomta/blob/main/assets/policy-extras/shaping.toml
 *
 * ```ts
 * { match: { status: 421, text: '/\\[TSS04\\]/' }, action: { pause: '2 h' } }
 * { match: { code: 'ThrottlingException' }, trigger: '3/10min', action: { slow: 0.5 }, duration: '30 min' }
 * ```
 */
export interface Rule {
  readonly match: Match
  readonly action: Action
  /** Default 'queue'. */
  readonly scope?: Scope
  /**
   * '3/10min': acts when three or more answers match within ten minutes, across all workers. For pause, slow and
   * concurrency. Default 'immediate'.
   */
  readonly trigger?: string
  /** How long it lasts: for slow, concurrency, and a pause that is `true`. Default: until it has recovered. */
  readonly duration?: Duration
}

type WithoutOrigin<F> = F extends Feedback ? Omit<F, 'scope' | 'source' | 'reason'> : never
/** A rule's feedback, without its scope and reason. */
export type Effect = WithoutOrigin<Exclude<Feedback, { kind: 'ok' }>>

const ACTIONS = ['pause', 'slow', 'concurrency', 'retryJob'] as const
const COUNTED = ['pause', 'slow', 'concurrency'] satisfies (typeof ACTIONS)[number][]
const ACTION =
  "{ pause: '10 min' }, { slow: 0.5 }, { slow: '1/min' }, { concurrency: 1 }, { retryJob: '5 min' }, 'fatal' or 'ignore'"
const DURATION = "'90 min', '2 h', '1 day' (units ms, s, min, h, day) or a number of ms > 0"
const LASTING = `${DURATION}, at most 1 day, or true`

/**
 * Checks an action and its duration.
 * @returns undefined for 'ignore'
 * @throws InvalidRuleError
 */
export function compileAction(path: string, { action, duration }: Rule): Effect | undefined {
  const ttlMs = duration === undefined ? undefined : readDuration(duration)
  if (duration !== undefined && ttlMs === undefined) refuse(`${path}.duration`, DURATION, duration)
  const effect = readAction(`${path}.action`, action)
  if (ttlMs === undefined) return effect
  if (effect?.kind === 'slow' || effect?.kind === 'concurrency') return { ...effect, ttlMs }
  if (effect?.kind !== 'pause') {
    throw new InvalidRuleError(`${path}.duration goes with pause: true, slow or concurrency; got ${describe(action)}`)
  }
  if (effect.forMs !== undefined) {
    throw new InvalidRuleError(`${path}.duration and action.pause both say how long it lasts: give one of them`)
  }
  if (ttlMs > MAX_PAUSE_MS) refuse(`${path}.duration`, `${DURATION}, of a pause at most 1 day`, duration)
  return { ...effect, forMs: ttlMs }
}

/**
 * Checks when a rule acts.
 * @returns undefined for 'immediate'
 * @throws InvalidRuleError
 */
export function compileTrigger(path: string, { action, trigger = 'immediate' }: Rule): Trigger | undefined {
  if (trigger === 'immediate') return undefined
  // The other actions concern one job, whose outcome is decided before the fleet's count is known.
  if (!COUNTED.some((kind) => typeof action === 'object' && kind in action)) {
    throw new InvalidRuleError(`${path}.trigger goes with pause, slow or concurrency; got ${describe(action)}`)
  }
  const rate = typeof trigger === 'string' ? readRate(trigger) : undefined
  const periodMs = Math.ceil(rate?.period ?? Number.NaN)
  if (rate && Number.isSafeInteger(rate.limit) && Number.isSafeInteger(periodMs)) {
    return { count: rate.limit, periodMs }
  }
  return refuse(`${path}.trigger`, "'immediate' or a number of matches within a time, such as '3/10min'", trigger)
}

/** @throws InvalidRuleError */
export function compileScope(path: string, scope: unknown): Scope {
  return knownScope(scope) ?? refuse(`${path}.scope`, SCOPES, scope)
}

function readAction(path: string, action: Action): Effect | undefined {
  if (action === 'ignore') return undefined
  if (action === 'fatal') return { kind: 'fatal' }
  const kinds = typeof action === 'object' && action !== null ? Object.keys(action) : []
  if (kinds.length !== 1) refuse(path, `one of ${ACTION}`, action)
  checkFields(path, action, ACTIONS)
  const kind = kinds[0] as (typeof ACTIONS)[number]
  return readKind(`${path}.${kind}`, kind, (action as Readonly<Record<string, unknown>>)[kind])
}

function readKind(path: string, kind: (typeof ACTIONS)[number], value: unknown): Effect {
  switch (kind) {
    case 'pause':
      return { kind, forMs: readLasting(path, value), hard: true }
    case 'retryJob': {
      const afterMs = readLasting(path, value)
      return afterMs === undefined ? { kind } : { kind, afterMs }
    }
    case 'concurrency':
      if (Number.isSafeInteger(value) && (value as number) >= 1) return { kind, limit: value as number }
      return refuse(path, 'a whole number >= 1', value)
    case 'slow': {
      if (typeof value === 'number' && value > 0 && value < 1) return { kind, factor: value }
      const rate = typeof value === 'number' ? undefined : readRate(value)
      return rate ? { kind, rate } : refuse(path, "a factor > 0 and < 1, or a rate such as '1/min'", value)
    }
  }
}

/** @returns undefined for `true` */
function readLasting(path: string, value: unknown): number | undefined {
  if (value === true) return undefined
  const ms = readDuration(value)
  return ms !== undefined && ms <= MAX_PAUSE_MS ? ms : refuse(path, LASTING, value)
}

/** Integer ms: Redis keeps no fractions. */
function readDuration(value: unknown): number | undefined {
  // Read as a rate of one unit per period, so that durations and rates have the same units.
  const text = typeof value === 'string' && /^\s*\d/.test(value)
  const ms = Math.ceil(typeof value === 'number' ? value : text ? (readRate(`1/${value}`)?.period ?? 0) : 0)
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined
}

function readRate(value: unknown): SaidRate | undefined {
  try {
    const { limit, periodMs } = parseRate(value as RateInput)
    return { limit, period: periodMs }
  } catch (error) {
    if (error instanceof InvalidRateError) return undefined
    throw error
  }
}
