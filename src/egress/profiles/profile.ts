import type { ConcurrencyLimit, FeedbackSource, Found } from '../../feedback/source.ts'
import { isLimitName, NAME_RULE } from '../../limits/limit-keys.ts'
import { encodeShape, type Shape } from '../../shape/shape.ts'
import type { Answer } from '../answer.ts'
import { answerOf } from '../answers/answer-of.ts'
import { targetOf } from '../answers/target.ts'
import { feedbackOfConnection } from '../dialects/connection.ts'
import type { Dialect, HttpDialect } from '../dialects/dialect.ts'
import { type InterpretOptions, interpret } from '../interpret.ts'
import { checkFields, InvalidRuleError, refuse } from '../rule-error.ts'
import { compileRules } from '../rules.ts'

/** How one service answers, and what it allows. */
export interface ProfileOptions extends InterpretOptions {
  /** For logs and events. */
  readonly name: string
  /** The quotas that its dialect reads by name: those that `quota` can map to limits. Default: none. */
  readonly gates?: readonly string[]
  /** A starting point: what the service publishes, in a form that is safe wherever its windows begin. */
  readonly shape?: StartingShape
  /** A limit of running jobs, if rising latency indicates too many calls at once: for workers that adapt. */
  readonly concurrencyLimit?: (most: number) => ConcurrencyLimit
  /** When and where the limits of the shape were read. */
  readonly read?: { readonly on: `${number}-${number}-${number}`; readonly at: `https://${string}` }
}

export type StartingShape = Pick<Shape, 'rate' | 'burst' | 'concurrency' | 'limits'>

/** How to read the answers of a service: a worker's `feedback`. */
export interface Profile extends ProfileOptions, Omit<FeedbackSource, 'name' | 'concurrencyLimit'> {}

/**
 * The assumed maximum difference in arrival delays of two requests, for starting shapes: a start may be `maxLatenessMs`
 * late (100 by default), and as much again is left for the network.
 */
export const STARTING_JITTER_MS = 200

/** The returned value is not an answer to read, but shows the target of the successful call. */
const SENT: readonly Found[] = [{ feedback: { kind: 'ok', scope: 'queue', source: 'smtp', reason: 'sent' } }]

const FIELDS = [
  'name',
  'dialect',
  'rules',
  'shape',
  'read',
  'concurrencyLimit',
  'gates',
  'quota',
] satisfies (keyof ProfileOptions)[]

/**
 * A profile for a service of your own.
 *
 * ```ts
 * const rules = [{ match: { status: 402 }, action: 'fatal' }] as const
 * createProfile({ name: 'billing', dialect: profiles.http.dialect, rules })
 * ```
 * @throws InvalidRuleError, InvalidShapeError, InvalidRateError, InvalidLimitError
 */
export function createProfile(options: ProfileOptions): Profile {
  checkFields('profile', options, FIELDS)
  const { name, dialect, rules, shape, gates = [], quota } = options
  if (typeof name !== 'string' || name === '') refuse('profile.name', 'a non-empty string', name)
  if (typeof dialect !== 'function') refuse('profile.dialect', 'a function such as profiles.http.dialect', dialect)
  compileRules(rules)
  if (quota !== undefined) checkQuota(name, gates, quota)
  if (shape !== undefined) encodeShape(shape)
  return {
    ...options,
    listen: (outcome, time) => {
      const answer = answerOf(outcome, time)
      const target = targetOf(outcome)
      const found = answer ? interpret(answer, options) : target === undefined ? [] : SENT
      return target === undefined ? found : found.map((one) => ({ ...one, target }))
    },
  }
}

function checkQuota(name: string, gates: readonly string[], quota: unknown): void {
  if (gates.length === 0) {
    throw new InvalidRuleError(`profile.quota is for services whose answers name quotas; ${name} names none`)
  }
  checkFields('profile.quota', quota, gates)
  const entries = Object.entries(quota as object)
  if (entries.length === 0) refuse('profile.quota', `a limit for at least one of ${gates.join(', ')}`, quota)
  const wrong = entries.find(([, limit]) => !isLimitName(limit))
  if (wrong) refuse(`profile.quota.${wrong[0]}`, `the name of a limit, of ${NAME_RULE}`, wrong[1])
}

/**
 * A profile with your own rules, which are checked before the rules that it has, or with limits for its quotas.
 *
 * ```ts
 * const rules = [{ match: { status: 503 }, trigger: '3/10min', action: { pause: '1 min' } }] as const
 * extendProfile(profiles.stripe, { rules })
 * extendProfile(profiles.openai, { quota: { requests: 'rpm', tokens: 'tpm' } })
 * ```
 * @throws InvalidRuleError
 */
export function extendProfile(profile: Profile, own: Partial<Pick<Profile, 'rules' | 'name' | 'quota'>>): Profile {
  if (typeof (profile as Partial<Profile> | undefined)?.listen !== 'function') {
    refuse('the profile to extend', 'a profile such as profiles.http', profile)
  }
  checkFields('what extends a profile', own, ['rules', 'name', 'quota'])
  const { name, quota = profile.quota } = own
  const rules = (own.quota ? (own.rules ?? []) : own.rules) as Profile['rules']
  // Before they are spread, so that a value that is not a list of rules gets its own error.
  compileRules(rules)
  const { listen: _, ...options } = profile
  const all = { ...options, name: name ?? profile.name, rules: [...rules, ...profile.rules] }
  return createProfile(quota ? { ...all, quota } : all)
}

/**
 * A profile without a starting shape: the service's limits differ by account, tier and method, or are set by the
 * operator of the server.
 */
export function shapelessProfile(name: string, dialect: HttpDialect, gates?: readonly string[]): Profile {
  return createProfile({ name, dialect: over('http', dialect), rules: [], ...(gates && { gates }) })
}

/** A dialect of one protocol. For other answers it only checks whether there was a connection. */
export function over<P extends 'http' | 'smtp'>(
  protocol: P,
  dialect: Dialect<Extract<Answer, { protocol: P }>>,
): Dialect {
  return (answer, quota) => {
    if (answer.protocol === protocol) return dialect(answer as Extract<Answer, { protocol: P }>, quota)
    return answer.protocol === 'other' ? feedbackOfConnection(answer) : []
  }
}
