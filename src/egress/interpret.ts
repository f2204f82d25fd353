import { type Feedback, oneLine } from '../feedback/feedback.ts'
import type { Found } from '../feedback/source.ts'
import type { Answer } from './answer.ts'
import type { Dialect, QuotaLimits } from './dialects/dialect.ts'
import type { Effect, Rule } from './rule-options.ts'
import { type CompiledRule, matchRule } from './rules.ts'

/** How a profile reads answers. */
export interface InterpretOptions {
  readonly dialect: Dialect
  /**
   * Limits of the shape that stand for the `gates` of the service: `{ requests: 'rpm', tokens: 'tpm' }`. Answers steer
   * these (limits with `by`: for the keys of the job alone), and a refused call holds them instead of the queue.
   * Default: successful answers steer the limits named like the gates.
   */
  readonly quota?: QuotaLimits
  /** Checked before the dialect: the first matching rule replaces it. */
  readonly rules: readonly Rule[]
}

/**
 * The meaning of an answer according to a profile. The first matching rule replaces the dialect. If it acts only after
 * a number of matches, the dialect's findings are added: until then, only they take effect.
 * @throws InvalidRuleError if the rules were not checked before
 */
export function interpret(answer: Answer, { dialect, rules, quota }: InterpretOptions): readonly Found[] {
  const rule = matchRule(rules, answer)
  if (rule && !rule.effect) return []
  const found = dialect(answer, quota)
  const byDialect = found.map((feedback) => ({ feedback }))
  if (!rule?.effect) return byDialect
  const { id, trigger } = rule
  const feedback = feedbackOf(rule, withGivenTime(rule.effect, found))
  return trigger ? [{ feedback, rule: { id, trigger } }, ...byDialect] : [{ feedback, rule: { id } }]
}

/** The reason quotes the rule, not the answer, which may hold a job's data: reasons are shown to more people. */
function feedbackOf({ conditions, scope }: CompiledRule, effect: Effect): Feedback {
  const why = conditions.map(({ key, expected }) => `${key} ${expected}`).join(' and ')
  return { ...effect, scope, source: 'rule', reason: oneLine(`rule: ${why}`) }
}

/** A pause or a retry without a time of its own lasts as long as the answer says, if it says so. */
function withGivenTime(effect: Effect, found: readonly Feedback[]): Effect {
  const times = found.flatMap((one) =>
    one.kind === 'pause' ? (one.forMs ?? []) : one.kind === 'retryJob' ? (one.afterMs ?? []) : [],
  )
  if (times.length === 0) return effect
  if (effect.kind === 'pause') return { ...effect, forMs: effect.forMs ?? Math.max(...times) }
  if (effect.kind === 'retryJob') return { ...effect, afterMs: effect.afterMs ?? Math.max(...times) }
  return effect
}
