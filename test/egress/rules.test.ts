import { describe, expect, test } from 'vitest'
import type { HttpAnswer } from '../../src/egress/answer.ts'
import { answerOf } from '../../src/egress/answers/answer-of.ts'
import type { Rule } from '../../src/egress/rule-options.ts'
import { compileRules, matchRule, testRules } from '../../src/egress/rules.ts'

const answer: HttpAnswer = {
  ...{ protocol: 'http', failed: true, text: 'Too many\r\nrequests', name: 'HttpError', code: '' },
  ...{ status: 429, headers: { 'x-reason': 'burst' }, receivedAtMs: 0 },
}
const RULES: readonly Rule[] = [
  { match: { status: '5xx' }, action: 'fatal' },
  { match: { status: ['4xx', 503], header: { 'X-Reason': /^b/i } }, action: { pause: '1 min' } },
  { match: { text: 'too many', code: 'ETIMEDOUT', enhanced: '4.*.*' }, action: 'ignore' },
  { match: { status: 429 }, action: { slow: 0.5 } },
]

describe('testing rules', () => {
  test('takes what answerOf finds in an error, and not the error itself', () => {
    const error = Object.assign(new Error('too many requests'), { status: 429, headers: { 'x-reason': 'burst' } })
    expect(testRules(RULES, answerOf({ threw: error })).find(({ wins }) => wins)?.rule).toBe(RULES[1])
    for (const none of [error, undefined, {}]) {
      expect(() => testRules(RULES, none as never)).toThrow(
        /^the answer must be what answerOf\({ threw: error }\) makes; got /,
      )
    }
  })

  test('says of each whether it matches, whether it is the one, and why', () => {
    expect(testRules(RULES, answer).map(({ id: _, ...rest }) => rest)).toEqual([
      {
        ...{ rule: RULES[0], matches: false, wins: false },
        conditions: [{ key: 'status', expected: '"5xx"', came: '429', holds: false }],
      },
      {
        ...{ rule: RULES[1], matches: true, wins: true },
        conditions: [
          { key: 'status', expected: '["4xx",503]', came: '429', holds: true },
          { key: 'header.x-reason', expected: '"/^b/i"', came: 'burst', holds: true },
        ],
      },
      {
        ...{ rule: RULES[2], matches: false, wins: false },
        conditions: [
          { key: 'code', expected: '"ETIMEDOUT"', came: 'HttpError', holds: false },
          { key: 'enhanced', expected: '"4.*.*"', came: 'none', holds: false },
          { key: 'text', expected: '"too many"', came: 'Too many requests', holds: true },
        ],
      },
      {
        ...{ rule: RULES[3], matches: true, wins: false },
        conditions: [{ key: 'status', expected: '429', came: '429', holds: true }],
      },
    ])
  })

  test('where none matches, none wins', () => {
    expect(testRules(RULES, { ...answer, status: 200 }).some((one) => one.matches || one.wins)).toBe(false)
    expect(matchRule(RULES, { ...answer, status: 200 })).toBeUndefined()
    expect(testRules([], answer)).toEqual([])
  })

  test('the ids are those under which matches are counted', () => {
    expect(testRules(RULES, answer).map((one) => one.id)).toEqual(compileRules(RULES).map((rule) => rule.id))
  })
})

describe('an id', () => {
  const idOf = (rule: Rule) => compileRules([rule])[0]?.id as string
  const rule: Rule = { match: { status: 429, text: /slow/i }, action: { slow: 0.5 }, trigger: '3/10min' }

  test('is safe as part of a key', () => {
    const many: readonly Rule[] = Array.from({ length: 200 }, (_, i) => ({ match: { code: `E${i}` }, action: 'fatal' }))
    for (const { id } of compileRules(many)) expect(id).toMatch(/^[\w-]{16}$/)
  })

  test('is the same for the same rule, wherever it stands and however it is written', () => {
    const same: readonly Rule[] = [
      { trigger: '3/10 min', action: { slow: 0.5 }, match: { text: '/slow/i', status: 429 }, scope: 'queue' },
      { ...rule, trigger: '3/600s' },
    ]
    for (const one of same) expect(idOf(one)).toBe(idOf(rule))
    const [a, b] = [
      { 'X-A': '1', 'x-b': '2' },
      { 'x-b': '2', 'x-a': '1' },
    ].map((header) => idOf({ ...rule, match: { header } }))
    expect(a).toBe(b)
    expect(compileRules([RULES[0] as Rule, rule])[1]?.id).toBe(idOf(rule))
  })

  test.each<[string, Partial<Rule>]>([
    ['match', { match: { status: 430, text: /slow/i } }],
    ['a flag', { match: { status: 429, text: /slow/ } }],
    ['action', { action: { slow: 0.6 } }],
    ['trigger', { trigger: '4/10min' }],
    ['scope', { scope: { limit: 'acme' } }],
    ['duration', { duration: '1 h' }],
  ])('is another one with another %s', (_, change) => {
    expect(idOf({ ...rule, ...change })).not.toBe(idOf(rule))
  })
})

test('a list is checked once', () => {
  expect(compileRules(RULES)).toBe(compileRules(RULES))
})
