import { describe, expect, test } from 'vitest'
import type { Answer, HttpAnswer, OtherAnswer, SmtpAnswer, SqlAnswer } from '../../src/egress/answer.ts'
import { InvalidRuleError } from '../../src/egress/rule-error.ts'
import type { Match } from '../../src/egress/rule-match.ts'
import { compileRules, matchRule } from '../../src/egress/rules.ts'

const came = { failed: true, text: '', name: '', code: '' }
const http = (given: Partial<HttpAnswer>): Answer => ({
  ...{ ...came, protocol: 'http', status: 200, headers: {}, receivedAtMs: 0 },
  ...given,
})
const smtp = (given: Partial<SmtpAnswer>): Answer => ({ ...came, protocol: 'smtp', ...given })
const sql = (given: Partial<SqlAnswer>): Answer => ({ ...came, protocol: 'sql', ...given })
const other = (given: Partial<OtherAnswer>): Answer => ({ ...came, protocol: 'other', ...given })

const MATCHES: readonly [match: Match, answer: Answer, matches: boolean][] = [
  [{ status: 429 }, http({ status: 429 }), true],
  [{ status: 429 }, http({ status: 428 }), false],
  [{ status: 421 }, smtp({ status: 421 }), true],
  [{ status: 421 }, smtp({}), false],
  [{ status: 429 }, other({ code: '429' }), false],
  [{ status: '5xx' }, http({ status: 503 }), true],
  [{ status: '5xx' }, http({ status: 499 }), false],
  [{ status: '4YZ' }, smtp({ status: 450 }), true],
  [{ status: '4yz' }, smtp({ status: 550 }), false],
  [{ status: [408, '5xx'] }, http({ status: 408 }), true],
  [{ status: [408, '5xx'] }, http({ status: 500 }), true],
  [{ status: [408, '5xx'] }, http({ status: 409 }), false],
  [{ code: 'ECONNRESET' }, other({ code: 'ECONNRESET' }), true],
  [{ code: 'ThrottlingException' }, http({ name: 'ThrottlingException' }), true],
  [{ code: 'Throttling' }, http({ name: 'ThrottlingException' }), false],
  [{ code: 'econnreset' }, other({ code: 'ECONNRESET' }), false],
  [{ code: ['EDNS', 'ESOCKET'] }, smtp({ code: 'ESOCKET' }), true],
  [{ enhanced: '4.7.1' }, smtp({ enhanced: '4.7.1' }), true],
  [{ enhanced: '4.7.1' }, smtp({ enhanced: '4.7.10' }), false],
  [{ enhanced: '4.7.*' }, smtp({ enhanced: '4.7.28' }), true],
  [{ enhanced: '4.7.*' }, smtp({ enhanced: '4.3.0' }), false],
  [{ enhanced: '5.*.*' }, smtp({ enhanced: '5.1.1' }), true],
  [{ enhanced: '5.*.*' }, smtp({}), false],
  [{ enhanced: ['4.2.1', '4.7.28'] }, smtp({ enhanced: '4.7.28' }), true],
  [{ sqlstate: '53300' }, sql({ sqlstate: '53300' }), true],
  [{ sqlstate: '53300' }, sql({ sqlstate: '53400' }), false],
  [{ sqlstate: '53*' }, sql({ sqlstate: '53400' }), true],
  [{ sqlstate: '53*' }, sql({ sqlstate: '40001' }), false],
  [{ sqlstate: '53*' }, sql({}), false],
  [{ sqlstate: '40*' }, other({ code: '40001' }), false],
  [{ sqlstate: ['40001', '40P01'] }, sql({ sqlstate: '40P01' }), true],
  [{ header: { 'X-Reason': 'burst' } }, http({ headers: { 'x-reason': 'Too much Burst' } }), true],
  [{ header: { 'x-reason': /^burst$/ } }, http({ headers: { 'x-reason': 'a burst' } }), false],
  [{ header: { 'x-reason': '/^burst$/i' } }, http({ headers: { 'x-reason': 'BURST' } }), true],
  [{ header: { 'x-reason': ['burst', 'global'] } }, http({ headers: { 'x-reason': 'global' } }), true],
  [{ header: { 'x-reason': 'burst' } }, http({}), false],
  [{ header: { 'x-reason': '/./', via: 'edge' } }, http({ headers: { 'x-reason': 'a' } }), false],
  [{ header: { 'x-reason': '/./', via: 'edge' } }, http({ headers: { 'x-reason': 'a', via: 'Edge 1' } }), true],
  [{ header: { constructor: '/./' } }, http({}), false],
  [{ header: { 'x-reason': 'a' } }, smtp({}), false],
  [{ text: 'try LATER' }, smtp({ text: '421 Please Try later' }), true],
  [{ text: 'try later' }, smtp({ text: '421 try again later' }), false],
  [{ text: /TS{1,2}04/ }, smtp({ text: '421 [TSS04]' }), true],
  [{ text: /tss04/ }, smtp({ text: '421 [TSS04]' }), false],
  [{ text: /tss04/i }, smtp({ text: '421 [TSS04]' }), true],
  [{ text: '/^421 .TS?S04/' }, smtp({ text: '421 [TSS04]' }), true],
  [{ text: ['busy', /slow ?down/i] }, other({ text: 'Please SlowDown' }), true],
  [{ text: 'THROTTLED' }, http({ body: { errors: [{ extensions: { code: 'THROTTLED' } }] } }), true],
  [{ text: 'busy' }, http({ body: 'We are busy' }), true],
  [{ text: 'busy' }, http({ text: 'busy', body: {} }), true],
  [{ text: 'busy' }, http({ body: `${'x'.repeat(9_996)}busy` }), true],
  [{ text: 'busy' }, http({ body: `${'x'.repeat(9_997)}busy` }), false],
  [{ text: 'busy' }, http({ text: `${'x'.repeat(9_997)}busy` }), false],
  [{ text: '/^$/' }, other({}), false],
  [{ status: 403, text: 'quota' }, http({ status: 403, text: 'quota' }), true],
  [{ status: 403, text: 'quota' }, http({ status: 403, text: 'forbidden' }), false],
  [{ status: 403, text: 'quota' }, http({ status: 429, text: 'quota' }), false],
]

describe('what matches', () => {
  test.each(MATCHES.map((row) => ({ match: row[0], answer: row[1], matches: row[2] })))(
    '$match, $answer: $matches',
    ({ match, answer, matches }) => {
      expect(matchRule([{ match, action: 'ignore' }], answer) !== undefined).toBe(matches)
    },
  )

  test.each(['g', 'y', 'gi'])('a regular expression with the flags %s finds the same again and again', (flags) => {
    const rules = [{ match: { text: new RegExp('busy', flags) }, action: 'ignore' }] as const
    const answer = other({ text: 'busy' })
    for (let i = 0; i < 3; i++) expect(matchRule(rules, answer)).toBeDefined()
  })

  test('a body that can not be written is no match, and no error', () => {
    const circle: Record<string, unknown> = { busy: true }
    circle.self = circle
    expect(matchRule([{ match: { text: 'busy' }, action: 'ignore' }], http({ body: circle }))).toBeUndefined()
  })
})

const STATUS = "a status from 100 to 599, a class such as '5xx' or '4yz', or a list of these"
const CODE = "an error's code or name such as 'ECONNRESET', or a list of these"
const ENHANCED = "an enhanced status code such as '4.7.1' or '4.7.*', or a list of these"
const SQLSTATE = "an SQLSTATE such as '53300', a class such as '53*', or a list of these"
const PATTERN = "a non-empty string, a regular expression such as '/busy|later/i', or a list of these"
const HEADER = "an object of header names and patterns, such as { 'x-reason': 'burst' }"

const WRONG: readonly (readonly [match: unknown, message: string])[] = [
  ...[99, 600, 429.5, '429', '5x', 'xx', '6xx', null, true, [], [429, '42x'], {}].map(
    (value) => [{ status: value }, `.status must be ${STATUS}; got ${JSON.stringify(value)}`] as const,
  ),
  ...['', 5, null, [], ['a', ''], {}].map(
    (value) => [{ code: value }, `.code must be ${CODE}; got ${JSON.stringify(value)}`] as const,
  ),
  ...['4.7', '3.7.1', '4.7.1.1', '*.7.1', '4.7.1000', '4.7.x', 471, []].map(
    (value) => [{ enhanced: value }, `.enhanced must be ${ENHANCED}; got ${JSON.stringify(value)}`] as const,
  ),
  ...['5330', '533000', '5*', '533*', '53', '53_00', '40p01', 53300, []].map(
    (value) => [{ sqlstate: value }, `.sqlstate must be ${SQLSTATE}; got ${JSON.stringify(value)}`] as const,
  ),
  ...['', 5, null, [], {}, ['a', 1]].map(
    (value) => [{ text: value }, `.text must be ${PATTERN}; got ${JSON.stringify(value)}`] as const,
  ),
  [{ text: '/(/' }, '.text must be a regular expression that compiles; got "/(/": Invalid regular expression: '],
  [{ text: '/a/zz' }, `.text must be a regular expression that compiles; got "/a/zz": Invalid flags`],
  [{ header: { a: '/[/i' } }, `.header['a'] must be a regular expression that compiles; got "/[/i": Invalid regular`],
  [{ header: { a: 5 } }, `.header['a'] must be ${PATTERN}; got 5`],
  [{ header: {} }, `.header must be ${HEADER}; got {}`],
  [{ header: 'x-reason' }, `.header must be ${HEADER}; got "x-reason"`],
  [{ header: null }, `.header must be ${HEADER}; got null`],
  [{ header: { 'x reason': 'a' } }, '.header must be an object of header names and patterns; got {"x reason":"a"}'],
  [{}, ' needs at least one of status, code, enhanced, sqlstate, text, header; got none'],
  [{ status: undefined }, ' needs at least one of status, code, enhanced, sqlstate, text, header; got none'],
  [{ state: 1 }, " has no field 'state'; it has status, code, enhanced, sqlstate, text, header"],
  ['5xx', ' must be an object with status, code, enhanced, sqlstate, text, header; got "5xx"'],
  [null, ' must be an object with status, code, enhanced, sqlstate, text, header; got null'],
  [undefined, ' must be an object with status, code, enhanced, sqlstate, text, header; got undefined'],
]

describe('a wrong match is refused with the rule, what was expected and what came', () => {
  test.each(WRONG)('%j', (match, message) => {
    const rules = [
      { match: { status: 429 }, action: 'ignore' },
      { match, action: 'ignore' },
    ] as never
    expect(() => compileRules(rules)).toThrow(InvalidRuleError)
    expect(() => compileRules(rules)).toThrow(`rules[1].match${message}`)
  })
})
