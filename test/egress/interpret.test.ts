import { describe, expect, test } from 'vitest'
import type { SmtpAnswer } from '../../src/egress/answer.ts'
import { type InterpretOptions, interpret } from '../../src/egress/interpret.ts'
import { InvalidRuleError } from '../../src/egress/rule-error.ts'
import type { Rule } from '../../src/egress/rule-options.ts'
import { compileRules } from '../../src/egress/rules.ts'
import type { Feedback } from '../../src/feedback/feedback.ts'

const answer: SmtpAnswer = {
  protocol: 'smtp',
  failed: true,
  status: 421,
  text: '421 busy',
  name: '',
  code: 'EPROTOCOL',
}
const said = { scope: 'queue', source: 'smtp', reason: '421' } as const
const pause = (forMs?: number): Feedback => ({ ...said, kind: 'pause', forMs, hard: true })
const retryJob = (afterMs: number): Feedback => ({ ...said, kind: 'retryJob', afterMs })

const profileOf = (rules: readonly Rule[], ...told: readonly Feedback[]): InterpretOptions => ({
  dialect: () => told,
  rules,
})
const rule = (change: Partial<Rule>): Rule => ({ match: { status: 421 }, action: { slow: 0.5 }, ...change })
const idOf = (one: Rule) => compileRules([one])[0]?.id

describe('what an answer says', () => {
  test('is what the dialect says where no rule matches', () => {
    const told = [pause(5000), retryJob(1000)]
    for (const rules of [[], [rule({ match: { status: 450 } })]]) {
      expect(interpret(answer, profileOf(rules, ...told))).toEqual(told.map((feedback) => ({ feedback })))
    }
    expect(interpret(answer, profileOf([]))).toEqual([])
  })

  test('is what the first rule that matches says, in the place of the dialect', () => {
    const [first, second] = [rule({ scope: { limit: 'mails' }, duration: '1 h' }), rule({ action: 'fatal' })]
    expect(interpret(answer, profileOf([rule({ match: { status: 450 } }), first, second], pause(5000)))).toEqual([
      {
        feedback: {
          ...{ kind: 'slow', factor: 0.5, ttlMs: 3_600_000, scope: { limit: 'mails' }, source: 'rule' },
          reason: 'rule: status 421',
        },
        rule: { id: idOf(first) },
      },
    ])
  })

  test('is nothing where that rule ignores it', () => {
    expect(interpret(answer, profileOf([rule({ action: 'ignore' }), rule({ action: 'fatal' })], pause(5000)))).toEqual(
      [],
    )
  })

  test('has the rule, its threshold, and what the dialect says until then', () => {
    const [counted, later] = [rule({ trigger: '3/10min' }), rule({ action: 'fatal' })]
    const [byRule, ...byDialect] = interpret(answer, profileOf([counted, later], pause(5000), retryJob(1000)))
    expect(byRule).toMatchObject({
      feedback: { kind: 'slow', factor: 0.5, source: 'rule' },
      rule: { id: idOf(counted), trigger: { count: 3, periodMs: 600_000 } },
    })
    expect(byDialect).toEqual([{ feedback: pause(5000) }, { feedback: retryJob(1000) }])
  })

  test('is refused where a rule is wrong', () => {
    expect(() => interpret(answer, profileOf([rule({ match: {} })]))).toThrow(InvalidRuleError)
  })
})

describe('a rule that says `true` lasts as long as the answer says', () => {
  const CASES: readonly [action: Rule['action'], told: readonly Feedback[], says: object][] = [
    [{ pause: true }, [pause(5000), retryJob(9000), pause()], { kind: 'pause', forMs: 9000 }],
    [{ pause: true }, [pause()], { kind: 'pause', forMs: undefined }],
    [{ pause: true }, [], { kind: 'pause', forMs: undefined }],
    [{ pause: 1000 }, [pause(5000)], { kind: 'pause', forMs: 1000 }],
    [{ retryJob: true }, [pause(5000)], { kind: 'retryJob', afterMs: 5000 }],
    [{ retryJob: 1000 }, [pause(5000)], { kind: 'retryJob', afterMs: 1000 }],
    [{ concurrency: 2 }, [pause(5000)], { kind: 'concurrency', limit: 2 }],
  ]
  test.each(CASES)('%j, %j: %j', (action, told, says) => {
    const [found, ...more] = interpret(answer, profileOf([rule({ action })], ...told))
    expect(found?.feedback).toMatchObject(says)
    expect(more).toEqual([])
  })

  test('and no time is made up where the answer has none', () => {
    const [found] = interpret(answer, profileOf([rule({ action: { retryJob: true } })], pause()))
    expect(found?.feedback).not.toHaveProperty('afterMs')
  })
})

test('the reason names all that the rule asks for, in one line, and nothing of the answer', () => {
  const reasonOf = (match: Rule['match']) => interpret(answer, profileOf([rule({ match })]))[0]?.feedback.reason
  expect(reasonOf({ status: '4yz' })).toBe('rule: status "4yz"')
  expect(reasonOf({ code: 'EPROTOCOL', text: [/BUSY/i, 'later'], status: [421, '5yz'] })).toBe(
    'rule: status [421,"5yz"] and code "EPROTOCOL" and text ["/BUSY/i","later"]',
  )
  expect(reasonOf({ text: ['busy', 'x\r\n'.repeat(500)] })).toHaveLength(200)
})
