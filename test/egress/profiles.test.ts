import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Answer, HttpAnswer, SmtpAnswer, SqlAnswer } from '../../src/egress/answer.ts'
import { interpret } from '../../src/egress/interpret.ts'
import { profiles } from '../../src/egress/profiles/index.ts'
import {
  createProfile,
  extendProfile,
  type Profile,
  STARTING_JITTER_MS,
  type StartingShape,
} from '../../src/egress/profiles/profile.ts'
import { InvalidRuleError } from '../../src/egress/rule-error.ts'
import { compileRules, testRules } from '../../src/egress/rules.ts'
import { InvalidShapeError } from '../../src/index.ts'
import { parseRate, type RateInput } from '../../src/rate.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { ROOT } from '../package/code-blocks.ts'

const ALL: readonly (readonly [name: string, profile: Profile])[] = Object.entries(profiles)
const came = { failed: true, text: '', name: '', code: '' }
const http = (given: Partial<HttpAnswer>): Answer => ({
  ...{ ...came, protocol: 'http', status: 429, headers: {}, receivedAtMs: Date.UTC(2026, 10, 22) },
  ...given,
})
const smtp = (given: Partial<SmtpAnswer>): Answer => ({ ...came, protocol: 'smtp', ...given })
const sql = (given: Partial<SqlAnswer>): Answer => ({ ...came, protocol: 'sql', ...given })

test('docs/feedback.md names every profile, and no other', () => {
  const page = readFileSync(join(ROOT, 'docs', 'feedback.md'), 'utf8')
  const named = /^Profiles: ([^.]*)\./m.exec(page)?.[1] ?? ''
  expect(named.match(/(?<=`)\w+(?=`)/g)?.toSorted()).toEqual(Object.keys(profiles).toSorted())
})

describe.each(ALL)('%s', (name, profile) => {
  test('has its name, rules that are right and a shape that a queue takes', () => {
    expect(profile.name).toBe(name)
    expect(compileRules(profile.rules)).toHaveLength(profile.rules.length)
    expect(() => encodeShape(profile.shape ?? {})).not.toThrow()
  })

  test('says when and where the limits of its shape were read', () => {
    expect(profile.read === undefined).toBe(profile.shape === undefined)
    if (!profile.read) return
    expect(new Date(profile.read.on).toJSON().slice(0, 10)).toBe(profile.read.on)
    const { protocol, href } = new URL(profile.read.at)
    expect([protocol, href]).toEqual(['https:', profile.read.at])
  })

  test('says nothing of an error that it does not know', () => {
    expect(interpret({ ...came, protocol: 'other', code: 'EUNKNOWN' }, profile)).toEqual([])
  })
})

/** What the services publish: units, window in ms. */
const WINDOWS: readonly [name: keyof typeof profiles, q: number, w: number][] = [
  ['stripe', 25, 1000],
  ['github', 5000, 3_600_000],
  ['slack', 1, 1000],
  ['discord', 50, 1000],
  ['ses', 1, 1000],
]

describe('a starting shape keeps what is published, wherever the windows begin and however late one request is', () => {
  test.each(WINDOWS)('%s: %i per %i ms', (name, q, w) => {
    const { rate, burst = 1 } = profiles[name].shape as StartingShape
    const { limit, periodMs } = parseRate(rate as RateInput)
    const most = burst + Math.floor(((w + STARTING_JITTER_MS) * limit) / periodMs)
    expect(most).toBeLessThanOrEqual(q)
    // And is no slower than it has to be: a burst and what the jitter takes are all that is lost.
    expect((limit * w) / periodMs).toBeGreaterThan(((q - burst) * w) / (w + STARTING_JITTER_MS) - 1)
  })

  test('shopify: a bucket of 40 that leaks 2 per second', () => {
    const { rate, burst = 1 } = profiles.shopify.shape as StartingShape
    const { limit, periodMs } = parseRate(rate as RateInput)
    expect((limit * 1000) / periodMs).toBe(2)
    expect(burst + (2 * STARTING_JITTER_MS) / 1000).toBeLessThanOrEqual(40)
    expect(burst).toBe(39)
  })

  test('ses: 200 in any 24 hours', () => {
    const [day, ...more] = profiles.ses.shape?.limits ?? []
    expect(more).toEqual([])
    expect(day).toMatchObject({ algorithm: 'sliding-window-log', rate: { limit: 200, period: 86_400_200 } })
  })

  test.each([
    ['github', 100],
    ['gmail', 5],
    ['smtp', 10],
    ['postgres', 97],
  ] as const)('%s: %i at once', (name, concurrency) => {
    expect(profiles[name].shape?.concurrency).toBe(concurrency)
  })
})

const retryAfter = { 'retry-after': '7' }
const THROTTLED: readonly [name: keyof typeof profiles, answer: Answer, says: object][] = [
  ['http', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000, source: 'retry-after' }],
  ['stripe', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['stripe', http({ body: { error: { code: 'lock_timeout' } } }), { kind: 'retryJob' }],
  ['github', http({ status: 403, headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['slack', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['discord', http({ body: { retry_after: 1.5, global: true } }), { kind: 'pause', forMs: 1500, scope: 'queue' }],
  ['shopify', http({ headers: { 'retry-after': '2.0' } }), { kind: 'pause', forMs: 2000 }],
  ['openai', http({ headers: { 'retry-after-ms': '1234' } }), { kind: 'pause', forMs: 1234 }],
  ['anthropic', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['anthropic', http({ status: 529 }), { kind: 'slow' }],
  ['aws', http({ status: 400, name: 'ThrottlingException' }), { kind: 'slow' }],
  ['akamai', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['atlassian', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['azure', http({ headers: { 'x-ms-retry-after-ms': '1234' } }), { kind: 'pause', forMs: 1234 }],
  ['cloudflare', http({}), { kind: 'pause', forMs: 300_000 }],
  ['grpc', http({ status: 200, headers: { 'grpc-status': '8' } }), { kind: 'pause', hard: true }],
  ['mailerlite', http({ headers: { 'x-ratelimit-retry-after': '7' } }), { kind: 'pause', forMs: 7000 }],
  ['salesforce', http({ headers: retryAfter }), { kind: 'pause', forMs: 7000 }],
  ['ses', http({ status: 400, name: 'ThrottlingException' }), { kind: 'slow' }],
  ['ses', smtp({ status: 454, text: '454 Throttling failure: Daily message quota exceeded.' }), { kind: 'pause' }],
  ['gmail', smtp({ status: 421, enhanced: '4.7.28', text: '421-4.7.28 unusual rate' }), { kind: 'pause' }],
  ['smtp', smtp({ status: 421, enhanced: '4.7.0', text: '421 4.7.0 [TSS04]' }), { kind: 'pause', forMs: 7_200_000 }],
  [
    'smtp',
    smtp({ status: 451, text: '451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)' }),
    { kind: 'slow', rate: { limit: 1, period: 60_000 }, ttlMs: 5_400_000, source: 'rule' },
  ],
  [
    'smtp',
    smtp({ status: 451, text: '451 4.7.650 [192.0.2.1] has been temporarily rate limited due to IP reputation.' }),
    { kind: 'slow', rate: { limit: 1, period: 60_000 }, ttlMs: 5_400_000, source: 'rule' },
  ],
  ['postgres', sql({ sqlstate: '53300', code: '53300', text: 'too many clients' }), { kind: 'pause' }],
]

describe('a refusal is understood', () => {
  test.each(THROTTLED.map(([name, answer, says]) => ({ name, answer, says })))(
    '$name: $answer.status$answer.sqlstate $answer.name$answer.text is $says',
    ({ name, answer, says }) => {
      expect(interpret(answer, profiles[name])[0]?.feedback).toMatchObject(says)
    },
  )

  test('every profile is asked', () => {
    expect(new Set(THROTTLED.map(([name]) => name)).size).toBe(ALL.length)
  })
})

describe('what Discord bans for is counted', () => {
  const scoped = (scope: string) => http({ headers: { 'x-ratelimit-scope': scope } })
  test.each([
    [http({ status: 401 }), true],
    [http({ status: 403 }), true],
    [scoped('user'), true],
    [scoped('global'), true],
    [scoped('shared'), false],
    [http({ status: 404 }), false],
    [http({ status: 200, failed: false }), false],
  ])('%j: %s', (answer, counted) => {
    const [found] = interpret(answer, profiles.discord)
    expect(testRules(profiles.discord.rules, answer).some((one) => one.wins)).toBe(counted)
    expect(found?.rule?.trigger).toEqual(counted ? { count: 4000, periodMs: 600_000 } : undefined)
  })

  test('what the dialect says of a refusal is said all the same', () => {
    const answer = http({ headers: { 'x-ratelimit-scope': 'user', ...retryAfter } })
    const said = interpret(answer, profiles.discord).map(({ feedback, rule }) => [feedback.kind, rule !== undefined])
    expect(said).toEqual([
      ['pause', true],
      ['pause', false],
    ])
  })
})

describe('a profile of one’s own', () => {
  const rules = [{ match: { status: 402 }, action: 'fatal' }] as const
  const { dialect } = profiles.http

  test('asks its rules before those that it extends', () => {
    const base = createProfile({ name: 'base', dialect, rules: [{ match: { status: '4xx' }, action: { pause: 1 } }] })
    const extended = extendProfile(base, { rules })
    expect(interpret(http({ status: 402 }), extended)[0]?.feedback.kind).toBe('fatal')
    expect(interpret(http({ status: 404 }), extended)[0]?.feedback.kind).toBe('pause')
    expect(interpret(http({ status: 402 }), base)[0]?.feedback.kind).toBe('pause')
    expect(extended.name).toBe('base')
  })

  test('keeps all else, and takes a name', () => {
    const { listen: _, rules: own, ...rest } = extendProfile(profiles.smtp, { rules, name: 'mails' })
    const { shape, read } = profiles.smtp
    expect(rest).toEqual({ name: 'mails', dialect: profiles.smtp.dialect, shape, read })
    expect(own).toEqual([...rules, ...profiles.smtp.rules])
  })

  test('listens to what a processor threw or returned, the extended rules first', async () => {
    const server = createServer((_, response) => response.writeHead(503, { 'retry-after': '3' }).end('closed'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    try {
      const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
      await response.text()
      const time = { receivedAtMs: Date.now(), latencyMs: 1 }
      const kinds = (profile: Profile) =>
        profile.listen({ returned: response }, time).map(({ feedback }) => [feedback.kind, feedback.source])
      expect(kinds(profiles.http)).toEqual([['pause', 'retry-after']])
      const strict = extendProfile(profiles.http, { rules: [{ match: { status: 503 }, action: 'fatal' }] })
      expect(kinds(strict)).toEqual([['fatal', 'rule']])
      expect(strict.listen({ returned: 'no answer' }, time)).toEqual([])
      expect(strict.listen({ threw: new Error('of the processor itself') }, time)).toEqual([])
    } finally {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    }
  })

  test.each([
    [profiles.openai, 'x-ratelimit', '1s'],
    [profiles.azure, 'x-ratelimit', '1'],
    [profiles.anthropic, 'anthropic-ratelimit', '2026-11-22T00:00:01Z'],
  ])('maps the quotas of a language model to limits', (profile, family, reset) => {
    const left = (name: string, remaining: number) => {
      const field = (part: string) =>
        family === 'x-ratelimit' ? `${family}-${part}-${name}` : `${family}-${name}-${part}`
      return { [field('limit')]: '60', [field('remaining')]: String(remaining), [field('reset')]: reset }
    }
    const headers = (requests: number, tokens: number) => ({ ...left('requests', requests), ...left('tokens', tokens) })
    const mapped = extendProfile(profile, { quota: { requests: 'rpm', tokens: 'tpm' } })
    const hears = (of: Profile, given: Partial<HttpAnswer>) =>
      interpret(http(given), of).map(({ feedback }) => [feedback.kind, feedback.scope])
    const good = { status: 200, failed: false, headers: headers(3, 5) }
    const [rpm, tpm] = [{ limit: 'rpm' }, { limit: 'tpm' }]
    expect(hears(mapped, good)).toEqual([
      ['ok', rpm],
      ['ok', tpm],
    ])
    expect(hears(profile, good)).toEqual([
      ['ok', { limit: 'requests' }],
      ['ok', { limit: 'tokens' }],
    ])
    expect(hears(extendProfile(profile, { quota: { tokens: 'tpm' } }), good)[0]).toEqual(['ok', { limit: 'requests' }])
    expect(hears(mapped, { headers: headers(3, 0) })).toEqual([['pause', tpm]])
    expect(hears(mapped, { headers: { ...headers(0, 0), 'retry-after': '9' } })).toEqual([
      ['pause', rpm],
      ['pause', tpm],
    ])
    expect(hears(mapped, { headers: { 'retry-after': '9' } })).toEqual([
      ['pause', rpm],
      ['pause', tpm],
    ])
    expect(hears(mapped, {})).toEqual([
      ['pause', rpm],
      ['pause', tpm],
    ])
    expect(hears(profile, { headers: headers(3, 0) })).toEqual([['pause', 'queue']])
    const one = extendProfile(profile, { quota: { requests: 'all', tokens: 'all' } })
    expect(hears(one, { headers: headers(0, 0) })).toEqual([['pause', { limit: 'all' }]])
    // Other answers, and rules, name their scope themselves.
    expect(hears(mapped, { status: 503, headers: { 'retry-after': '9' } })[0]).toEqual(['pause', 'queue'])
    expect(hears(extendProfile(mapped, { rules: [{ match: { status: 429 }, action: { pause: 5 } }] }), {})).toEqual([
      ['pause', 'queue'],
    ])
  })

  test.each([
    [profiles.http, { requests: 'rpm' }, 'profile.quota is for services whose answers name quotas; http names none'],
    [profiles.openai, { request: 'rpm' }, "profile.quota has no field 'request'; it has requests, tokens"],
    [profiles.openai, {}, 'profile.quota must be a limit for at least one of requests, tokens; got {}'],
    [profiles.openai, { tokens: 'a b' }, 'profile.quota.tokens must be the name of a limit, of 1 to 64 letters'],
    [profiles.openai, 'rpm', 'profile.quota must be an object with requests, tokens; got "rpm"'],
  ])('refuses limits for quotas of %o: %j', (profile, quota, message) => {
    expect(() => extendProfile(profile, { quota: quota as never })).toThrow(InvalidRuleError)
    expect(() => extendProfile(profile, { quota: quota as never })).toThrow(message)
  })

  const right = { name: 'mine', dialect, rules }
  const FIELDS = 'name, dialect, rules, shape, read, concurrencyLimit, gates, quota'
  test.each([
    [null, `profile must be an object with ${FIELDS}; got null`],
    [{ ...right, rule: [] }, `profile has no field 'rule'; it has ${FIELDS}`],
    [{ ...right, name: '' }, 'profile.name must be a non-empty string; got ""'],
    [{ ...right, dialect: 'http' }, 'profile.dialect must be a function such as profiles.http.dialect; got "http"'],
    [{ ...right, rules: undefined }, 'rules must be a list of rules; got undefined'],
    [{ ...right, rules: [...rules, { match: {} }] }, 'rules[1].match needs at least one of '],
  ])('is refused: %j', (options, message) => {
    expect(() => createProfile(options as never)).toThrow(InvalidRuleError)
    expect(() => createProfile(options as never)).toThrow(message)
  })

  test('is refused with a wrong shape, or a wrong rule by its place among those given', () => {
    expect(() => createProfile({ ...right, shape: { burst: 0 } })).toThrow(InvalidShapeError)
    expect(() => extendProfile(profiles.smtp, { rules: [{ match: {}, action: 'fatal' }] })).toThrow(
      'rules[0].match needs',
    )
    expect(() => extendProfile(profiles.smtp, {} as never)).toThrow('rules must be a list of rules; got undefined')
    const misspelled = { rules: [], names: 'mails' } as never
    expect(() => extendProfile(profiles.smtp, misspelled)).toThrow("what extends a profile has no field 'names'")
    expect(() => extendProfile('smtp' as never, { rules: [] })).toThrow(
      'the profile to extend must be a profile such as profiles.http; got "smtp"',
    )
  })
})
