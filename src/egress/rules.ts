import { createHash } from 'node:crypto'
import { oneLine, type Scope } from '../feedback/feedback.ts'
import type { Trigger } from '../feedback/source.ts'
import type { Answer } from './answer.ts'
import { checkFields, InvalidRuleError, refuse } from './rule-error.ts'
import { type Condition, compileMatch, holds } from './rule-match.ts'
import { compileAction, compileScope, compileTrigger, type Effect, type Rule } from './rule-options.ts'

/** A checked rule. */
export interface CompiledRule {
  /** The same for equal rules everywhere: 16 letters, digits, '_' or '-'. Its matches are counted under this id. */
  readonly id: string
  readonly conditions: readonly Condition[]
  readonly scope: Scope
  /** undefined: the answer is ignored. */
  readonly effect: Effect | undefined
  /** undefined: acts at once. */
  readonly trigger: Trigger | undefined
}

/** How one rule applies to an answer. */
export interface RuleTest {
  readonly rule: Rule
  readonly id: string
  /** Whether all of its conditions hold. */
  readonly matches: boolean
  /** Whether this rule acts: the first one that matches. */
  readonly wins: boolean
  readonly conditions: readonly ConditionTest[]
}

export interface ConditionTest {
  /** 'status', 'header.x-reason' … */
  readonly key: string
  /** As written in the rule: '"5xx"', '["4.7.*","4.2.1"]'. */
  readonly expected: string
  /** The answer's values, 'none' if it has none. */
  readonly came: string
  readonly holds: boolean
}

const FIELDS = ['match', 'action', 'scope', 'trigger', 'duration'] satisfies (keyof Rule)[]
const PROTOCOLS: readonly Answer['protocol'][] = ['http', 'smtp', 'sql', 'other']
const ID_LENGTH = 16

/** Cached: answers are frequent, and lists of rules are few. */
const compiled = new WeakMap<readonly Rule[], readonly CompiledRule[]>()

/**
 * Validates all rules before any is used. A list is checked once: it must not be changed afterwards.
 * @throws InvalidRuleError naming the rule, the expected value and the given one
 */
export function compileRules(rules: readonly Rule[]): readonly CompiledRule[] {
  const known = Array.isArray(rules) ? compiled.get(rules) : refuse('rules', 'a list of rules', rules)
  if (known) return known
  const list = rules.map((rule, i) => compileRule(`rules[${i}]`, rule))
  compiled.set(rules, list)
  return list
}

/**
 * The first rule that an answer matches.
 * @throws InvalidRuleError
 */
export function matchRule(rules: readonly Rule[], answer: Answer): CompiledRule | undefined {
  return compileRules(rules).find((rule) => matches(rule, answer))
}

/**
 * How each rule applies to an answer, and why: for trying rules out.
 *
 * ```ts
 * testRules(rules, answerOf({ threw: error })).find((test) => test.wins)
 * ```
 * @throws InvalidRuleError also for a value that is not an answer, such as the error itself
 */
export function testRules(rules: readonly Rule[], answer: Answer): readonly RuleTest[] {
  const list = compileRules(rules)
  if (!PROTOCOLS.includes(answer?.protocol)) {
    // Only its kind: an error of a library can hold the request, with its credentials.
    const came = (answer as unknown) instanceof Error ? 'an error' : typeof answer
    throw new InvalidRuleError(`the answer must be what answerOf({ threw: error }) makes; got ${came}`)
  }
  const first = matchRule(rules, answer)
  return list.map((rule, i) => ({
    rule: rules[i] as Rule,
    id: rule.id,
    matches: matches(rule, answer),
    wins: rule === first,
    conditions: rule.conditions.map((condition) => ({
      key: condition.key,
      expected: condition.expected,
      came: oneLine(condition.read(answer).join(', ')) || 'none',
      holds: holds(condition, answer),
    })),
  }))
}

function matches({ conditions }: CompiledRule, answer: Answer): boolean {
  return conditions.every((condition) => holds(condition, answer))
}

function compileRule(path: string, rule: Rule): CompiledRule {
  checkFields(path, rule, FIELDS)
  const conditions = compileMatch(`${path}.match`, rule.match)
  const scope = compileScope(path, rule.scope)
  const effect = compileAction(path, rule)
  const trigger = compileTrigger(path, rule)
  const content = JSON.stringify([conditions.map(({ key, expected }) => [key, expected]), scope, effect, trigger])
  const id = createHash('sha256').update(content).digest('base64url').slice(0, ID_LENGTH)
  return { id, conditions, scope, effect, trigger }
}
