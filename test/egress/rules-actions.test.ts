import { describe, expect, test } from 'vitest'
import { InvalidRuleError } from '../../src/egress/rule-error.ts'
import type { Rule } from '../../src/egress/rule-options.ts'
import { compileRules } from '../../src/egress/rules.ts'
import { InvalidInputError } from '../../src/index.ts'

const match = { status: 429 }
const compile = (rule: Partial<Rule>) => compileRules([{ match, action: { slow: 0.5 }, ...rule } as Rule])[0]

const ACTIONS: readonly [rule: Partial<Rule>, effect: unknown][] = [
  [{ action: { pause: '10 min' } }, { kind: 'pause', forMs: 600_000, hard: true }],
  [{ action: { pause: 1500 } }, { kind: 'pause', forMs: 1500, hard: true }],
  [{ action: { pause: '1 day' } }, { kind: 'pause', forMs: 86_400_000, hard: true }],
  [{ action: { pause: '0.5ms' } }, { kind: 'pause', forMs: 1, hard: true }],
  [{ action: { pause: true } }, { kind: 'pause', forMs: undefined, hard: true }],
  [
    { action: { pause: true }, duration: '2 h' },
    { kind: 'pause', forMs: 7_200_000, hard: true },
  ],
  [{ action: { slow: 0.5 } }, { kind: 'slow', factor: 0.5 }],
  [{ action: { slow: '1/min' } }, { kind: 'slow', rate: { limit: 1, period: 60_000 } }],
  [{ action: { slow: { limit: 5, period: 100 } } }, { kind: 'slow', rate: { limit: 5, period: 100 } }],
  [
    { action: { slow: 0.7 }, duration: '90 min' },
    { kind: 'slow', factor: 0.7, ttlMs: 5_400_000 },
  ],
  [
    { action: { slow: 0.7 }, duration: '30day' },
    { kind: 'slow', factor: 0.7, ttlMs: 2_592_000_000 },
  ],
  [{ action: { concurrency: 1 } }, { kind: 'concurrency', limit: 1 }],
  [
    { action: { concurrency: 4 }, duration: 1000.5 },
    { kind: 'concurrency', limit: 4, ttlMs: 1001 },
  ],
  [{ action: { retryJob: '5 min' } }, { kind: 'retryJob', afterMs: 300_000 }],
  [{ action: { retryJob: true } }, { kind: 'retryJob' }],
  [{ action: 'fatal' }, { kind: 'fatal' }],
  [{ action: 'ignore' }, undefined],
]

describe('an action is read', () => {
  test.each(ACTIONS)('%j', (rule, effect) => {
    expect(compile(rule)?.effect).toEqual(effect)
  })
})

const TRIGGERS: readonly [trigger: string | undefined, read: unknown][] = [
  [undefined, undefined],
  ['immediate', undefined],
  ['3/10min', { count: 3, periodMs: 600_000 }],
  ['2/h', { count: 2, periodMs: 3_600_000 }],
  ['100 / 1.5 ms', { count: 100, periodMs: 2 }],
]

test.each(TRIGGERS)('a trigger is read: %s', (trigger, read) => {
  expect(compile(trigger === undefined ? {} : { trigger })?.trigger).toEqual(read)
})

test('a scope is read', () => {
  expect(compile({ scope: { limit: 'daily' } })?.scope).toEqual({ limit: 'daily' })
  expect(compile({ scope: 'group' })?.scope).toBe('group')
  expect(compile({ scope: { group: 'acme' } })?.scope).toEqual({ group: 'acme' })
})

test('the scope is the queue where none is given', () => {
  expect(compile({})?.scope).toBe('queue')
  expect(compile({ scope: 'queue' })?.scope).toBe('queue')
})

const ACTION =
  "one of { pause: '10 min' }, { slow: 0.5 }, { slow: '1/min' }, { concurrency: 1 }, { retryJob: '5 min' }, 'fatal' or 'ignore'"
const DURATION = "'90 min', '2 h', '1 day' (units ms, s, min, h, day) or a number of ms > 0"
const SCOPE = "'queue', 'group', { limit: 'a name' } or { group: 'an id' }"
const TRIGGER = "'immediate' or a number of matches within a time, such as '3/10min'"
const FACTOR = "a factor > 0 and < 1, or a rate such as '1/min'"

const got = (value: unknown) => `got ${JSON.stringify(value) ?? String(value)}`
const wrong = <T>(values: readonly T[], rule: (value: T) => object, says: string) =>
  values.map((value) => [rule(value), `${says}; ${got(value)}`] as const)

const WRONG: readonly (readonly [rule: object, message: string])[] = [
  ...wrong(
    ['pause', 5, null, undefined, {}, [], { pause: 1, slow: 0.5 }],
    (action) => ({ action }),
    `.action must be ${ACTION}`,
  ),
  [{ action: { stop: true } }, ".action has no field 'stop'; it has pause, slow, concurrency, retryJob"],
  ...['pause', 'retryJob'].flatMap((kind) =>
    wrong(
      [
        0,
        -1,
        Number.NaN,
        Number.POSITIVE_INFINITY,
        '10',
        'min',
        '5/min',
        '2 weeks',
        '25 h',
        86_400_001,
        false,
        null,
        {},
      ],
      (value) => ({ action: { [kind]: value } }),
      `.action.${kind} must be ${DURATION}, at most 1 day, or true`,
    ),
  ),
  ...wrong(
    [0, 1, 1.5, -0.5, Number.NaN, 'half', '0/s', true, null, {}],
    (slow) => ({ action: { slow } }),
    `.action.slow must be ${FACTOR}`,
  ),
  ...wrong(
    [0, 1.5, -1, '1', true, null],
    (concurrency) => ({ action: { concurrency } }),
    '.action.concurrency must be a whole number >= 1',
  ),
  ...wrong(
    [0, -5, '10', '1 year', true, null, 1e300],
    (duration) => ({ action: { slow: 0.5 }, duration }),
    `.duration must be ${DURATION}`,
  ),
  [
    { action: { pause: true }, duration: '2 day' },
    `.duration must be ${DURATION}, of a pause at most 1 day; got "2 day"`,
  ],
  [
    { action: { pause: '1 h' }, duration: '2 h' },
    '.duration and action.pause both say how long it lasts: give one of them',
  ],
  ...wrong(
    ['fatal', 'ignore', { retryJob: true }],
    (action) => ({ action, duration: '2 h' }),
    '.duration goes with pause: true, slow or concurrency',
  ),
  ...wrong(
    ['', 'now', '3', '0/min', '1.5/min', '3/0min', 3, null, true, { limit: 3, period: 1 }],
    (trigger) => ({ trigger }),
    `.trigger must be ${TRIGGER}`,
  ),
  ...wrong(
    ['ignore', 'fatal', { retryJob: true }],
    (action) => ({ action, trigger: '3/min' }),
    '.trigger goes with pause, slow or concurrency',
  ),
  ...wrong(
    ['job', '', 5, null, {}, { group: '' }, { limit: '' }, { limit: 5 }, { tenant: 'a' }, { group: 'a', limit: 'b' }],
    (scope) => ({ scope }),
    `.scope must be ${SCOPE}`,
  ),
  [{ when: 1 }, " has no field 'when'; it has match, action, scope, trigger, duration"],
]

describe('a wrong rule is refused with its place, what was expected and what came', () => {
  test.each(WRONG)('%j', (rule, message) => {
    const rules = [
      { match, action: 'fatal' },
      { match, action: { pause: 1 }, ...rule },
    ] as never
    expect(() => compileRules(rules)).toThrow(InvalidRuleError)
    expect(() => compileRules(rules)).toThrow(new InvalidRuleError(`rules[1]${message}`))
  })

  test.each([null, undefined, {}, 'fatal'])('%j is no list of rules', (rules) => {
    expect(() => compileRules(rules as never)).toThrow(
      new InvalidRuleError(`rules must be a list of rules; ${got(rules)}`),
    )
  })

  test.each([null, 5, 'fatal', []])('%j is no rule', (rule) => {
    const message = `rules[0] must be an object with match, action, scope, trigger, duration; ${got(rule)}`
    expect(() => compileRules([rule] as never)).toThrow(new InvalidRuleError(message))
  })

  test('it is an error of input', () => {
    expect(new InvalidRuleError('')).toBeInstanceOf(InvalidInputError)
    expect(new InvalidRuleError('').name).toBe('InvalidRuleError')
  })
})
