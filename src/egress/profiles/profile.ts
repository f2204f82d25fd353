import type { ConcurrencyLimit, FeedbackSource, Found } from '../../feedback/source.ts'
import { encodeShape, type Shape } from '../../shape/shape.ts'
import type { Answer } from '../answer.ts'
import { answerOf } from '../answers/answer-of.ts'
import { targetOf } from '../answers/target.ts'
import { feedbackOfConnection } from '../dialects/connection.ts'
import type { Dialect, HttpDialect } from '../dialects/dialect.ts'
import { type InterpretOptions, interpret } from '../interpret.ts'
import { checkFields, refuse } from '../rule-error.ts'
import { compileRules } from '../rules.ts'

/** How one service answers, and what it allows. */
export interface ProfileOptions extends InterpretOptions {
  /** For logs and events. */
  readonly name: string
  /** Where to start: what the service publishes, in a form that is safe wherever its windows begin. */
  readonly shape?: StartingShape
  /** If rising latency indicates too many calls at once: a limit of running jobs, for workers that adapt. */
  readonly concurrencyLimit?: (most: number) => ConcurrencyLimit
  /** When and where the limits of the shape were read. */
  readonly read?: { readonly on: `${number}-${number}-${number}`; readonly at: `https://${string}` }
}

export type StartingShape = Pick<Shape, 'rate' | 'burst' | 'concurrency' | 'limits'>

/** How to read the answers of a service: a worker's `feedback`. */
export interface Profile extends ProfileOptions, Omit<FeedbackSource, 'name' | 'concurrencyLimit'> {}

/**
 * The largest difference in the time two requests take to arrive, as starting shapes assume it: a start may be
 * `maxLatenessMs` late (100 by default), and as much again is left for the network.
 */
export const STARTING_JITTER_MS = 200

/** The returned value is not an answer to read, but shows the target of the call, which succeeded. */
const SENT: readonly Found[] = [{ feedback: { kind: 'ok', scope: 'queue', source: 'smtp', reason: 'sent' } }]

const FIELDS = ['name', 'dialect', 'rules', 'shape', 'read', 'concurrencyLimit'] satisfies (keyof ProfileOptions)[]

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
  const { name, dialect, rules, shape } = options
  if (typeof name !== 'string' || name === '') refuse('profile.name', 'a non-empty string', name)
  if (typeof dialect !== 'function') refuse('profile.dialect', 'a function such as profiles.http.dialect', dialect)
  compileRules(rules)
  if (shape !== undefined) encodeShape(shape)
  return {
    ...options,
    listen: (outcome, time) => {
      const answer = answerOf(outcome, time)
      const target = targetOf(outcome)
      const found = answer ? interpret(answer, { dialect, rules }) : target === undefined ? [] : SENT
      return target === undefined ? found : found.map((one) => ({ ...one, target }))
    },
  }
}

/**
 * A profile with your own rules, which are checked before the rules that it has.
 *
 * ```ts
 * const rules = [{ match: { status: 503 }, trigger: '3/10min', action: { pause: '1 min' } }] as const
 * extendProfile(profiles.stripe, { rules })
 * ```
 * @throws InvalidRuleError
 */
export function extendProfile(profile: Profile, own: Pick<Profile, 'rules'> & { readonly name?: string }): Profile {
  if (typeof (profile as Partial<Profile> | undefined)?.listen !== 'function') {
    refuse('the profile to extend', 'a profile such as profiles.http', profile)
  }
  checkFields('what extends a profile', own, ['rules', 'name'])
  const { rules, name } = own
  // Before they are spread, so that a value that is not a list of rules gets its own error.
  compileRules(rules)
  const { listen: _, ...options } = profile
  return createProfile({ ...options, name: name ?? profile.name, rules: [...rules, ...profile.rules] })
}

/**
 * A profile without a starting shape: what the service allows differs by account, tier and method, or is set by the
 * operator of the server.
 */
export function shapelessProfile(name: string, dialect: HttpDialect): Profile {
  return createProfile({ name, dialect: over('http', dialect), rules: [] })
}

/** A dialect of one protocol. Of other answers it only reads whether there was a connection. */
export function over<P extends 'http' | 'smtp'>(
  protocol: P,
  dialect: Dialect<Extract<Answer, { protocol: P }>>,
): Dialect {
  return (answer) => {
    if (answer.protocol === protocol) return dialect(answer as Extract<Answer, { protocol: P }>)
    return answer.protocol === 'other' ? feedbackOfConnection(answer) : []
  }
}
