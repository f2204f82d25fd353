import fc from 'fast-check'
import { expect, test } from 'vitest'
import { githubDialect } from '../../../../src/egress/profiles/github.ts'
import { readHttpSignals } from '../../../../src/egress/signals/http-signals.ts'
import { httpAnswer, NOW_DATE, NOW_MS } from '../../../../test/egress/signals/http-answer.ts'
import type { Policy } from '../../src/responses/policy.ts'
import { type ProblemKind, type ProblemTerms, problemResponse } from '../../src/responses/problem.ts'
import type { HeaderForm } from '../../src/responses/rate-limit-fields.ts'
import { readList } from './fields.ts'

const FULL: ProblemTerms = { status: 429, kind: 'quota-exceeded', detail: 'The queue is full.', retryAfterMs: 4321 }
const ADMIT: Policy = { name: 'admit', quota: 10, remaining: 0, resetMs: 4321 }
const atOnce = { nowMs: NOW_MS, random: () => 0 }

function problem(terms: Partial<ProblemTerms>, given = atOnce) {
  const { status, headers, body } = problemResponse({ ...FULL, ...terms }, given)
  return { status, headers, body: JSON.parse(body as string) as Record<string, unknown> }
}

test('an answer has all that a refused caller needs', () => {
  const policies = [ADMIT]
  expect(problem({ instance: '/queues/orders/jobs', violatedPolicies: ['admit'], policies })).toEqual({
    status: 429,
    headers: {
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      'retry-after': '5',
      'ratelimit-policy': '"admit";q=10',
      ratelimit: '"admit";r=0;t=5',
    },
    body: {
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Quota exceeded',
      status: 429,
      detail: 'The queue is full.',
      instance: '/queues/orders/jobs',
      'violated-policies': ['admit'],
      limit: 10,
      remaining: 0,
      retryAfterMs: 4321,
      retry_after: 5,
    },
  })
})

// draft-ietf-httpapi-ratelimit-headers-10, section 5: the types, states and names of its examples.
test.each<[ProblemKind, number, string[]]>([
  ['quota-exceeded', 429, ['daily', 'bandwidth']],
  ['temporary-reduced-capacity', 503, ['hourly']],
  ['abnormal-usage-detected', 429, ['hourly']],
])('%s is read as what it is', (kind, status, violatedPolicies) => {
  const { body, headers } = problem({ kind, status, violatedPolicies })
  expect(body).toMatchObject({
    type: `https://iana.org/assignments/http-problem-types#${kind}`,
    status,
    'violated-policies': violatedPolicies,
  })
  const signals = readHttpSignals(httpAnswer({ status, headers, body }))
  expect(signals.problem).toEqual({ type: kind, violated: violatedPolicies })
  expect(signals.wait?.ms).toBe(5000)
})

test('about:blank has the title of its status, and no time that nobody gave', () => {
  const { body, headers } = problem({ kind: 'about:blank', status: 413, retryAfterMs: undefined })
  expect(body).toEqual({ type: 'about:blank', title: 'Payload Too Large', status: 413, detail: 'The queue is full.' })
  expect(headers).toEqual({ 'content-type': 'application/problem+json', 'cache-control': 'no-store' })
})

test.each([429, 503])('%i always says when to come again', (status) => {
  const { body, headers } = problem({ status, retryAfterMs: undefined })
  expect([headers['retry-after'], body.retryAfterMs, body.retry_after]).toEqual(['1', 1000, 1])
})

test.each([
  [0, 1],
  [0.2, 1],
  [99.1, 100],
  [Number.NaN, 1],
  [Number.POSITIVE_INFINITY, 2_147_483_647_000],
])('retryAfterMs %d is told as %i', (retryAfterMs, told) => {
  expect(problem({ retryAfterMs }).body.retryAfterMs).toBe(told)
})

test('what else is given comes with it, and takes the place of nothing', () => {
  const { headers, body } = problem({
    headers: { 'www-authenticate': 'Bearer', 'cache-control': 'public', 'retry-after': '0' },
    extra: { mayBeStored: true, status: 200, retry_after: 0 },
  })
  expect(headers).toMatchObject({ 'www-authenticate': 'Bearer', 'cache-control': 'no-store', 'retry-after': '5' })
  expect(body).toMatchObject({ mayBeStored: true, status: 429, retry_after: 5 })
})

test('the names of violated policies are those of the fields', () => {
  const { headers, body } = problem({ violatedPolicies: ['é'], policies: [{ ...ADMIT, name: 'é' }] })
  expect(body['violated-policies']).toEqual([readList(headers.ratelimit)[0]?.name])
})

test('limit and remaining are those of what was violated, unless they are given', () => {
  const policies = [
    { ...ADMIT, quota: 20, remaining: 3 },
    { ...ADMIT, name: 'other', quota: 5, remaining: 2 },
  ]
  const violatedPolicies = ['admit']
  expect(problem({ policies, violatedPolicies }).body).toMatchObject({ limit: 20, remaining: 3 })
  expect(problem({ policies, violatedPolicies, limit: 7, remaining: 1 }).body).toMatchObject({ limit: 7, remaining: 1 })
})

test('a policy that is not why the answer refuses tells of no reset', () => {
  const daily = { name: 'daily', quota: 5000, remaining: 900, resetMs: 36_000_000 }
  const { headers } = problem({ policies: [ADMIT, daily], forms: ['draft-10', 'x-ratelimit-delta'] })
  expect(headers).toMatchObject({
    ratelimit: '"admit";r=0;t=5, "daily";r=900',
    'retry-after': '5',
    'x-ratelimit-reset': '5',
  })
})

const limit = fc.record({
  name: fc.constantFrom('a', 'b', 'c'),
  quota: fc.nat(100),
  remaining: fc.nat(2),
  resetMs: fc.option(fc.nat(100_000), { nil: undefined }),
})
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

test('Retry-After is never earlier than the true time, nor than any reset in the same answer', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(limit, { selector: ({ name }) => name }),
      fc.subarray(['a', 'b', 'c']),
      fc.double({ min: 0, max: 100_000, noNaN: true }),
      chance,
      (policies, violatedPolicies, retryAfterMs, random) => {
        const forms: HeaderForm[] = ['draft-10', 'draft-6', 'x-ratelimit-delta']
        const terms = { policies, violatedPolicies, retryAfterMs, forms }
        const { headers, body } = problem(terms, { nowMs: NOW_MS, random: () => random })
        const seconds = Number(headers['retry-after'])
        const resets = readList(headers.ratelimit).map(({ t = 0 }) => t as number)
        const alone = [headers['ratelimit-reset'], headers['x-ratelimit-reset']].map((text = '0') => Number(text))
        const notBefore = Math.max(retryAfterMs / 1000, ...resets, ...alone)
        expect(headers['retry-after']).toMatch(/^[1-9]\d*$/)
        expect(seconds).toBeGreaterThanOrEqual(notBefore)
        expect(seconds).toBeLessThanOrEqual(Math.max(1, Math.ceil(notBefore * 1.2)))
        expect(body.retry_after).toBe(seconds)
        expect(body.retryAfterMs).toBeGreaterThanOrEqual(retryAfterMs)
        expect(body.retryAfterMs).toBeLessThanOrEqual(seconds * 1000)
      },
    ),
    { numRuns: 500 },
  )
})

test('a client of GitHub waits for the reset, and for Retry-After where it is there', () => {
  const policies = [{ ...ADMIT, quota: 5000, resetAtMs: NOW_MS + 60_000 }]
  const { headers, status } = problem({ retryAfterMs: 60_000, policies, forms: ['x-ratelimit'] })
  const answer = httpAnswer({ status, headers: { ...headers, date: NOW_DATE } })
  expect(githubDialect(answer)).toMatchObject([{ kind: 'pause', forMs: 60_000, source: 'retry-after' }])
  const { 'retry-after': _, ...withoutRetryAfter } = answer.headers
  expect(githubDialect({ ...answer, headers: withoutRetryAfter })).toMatchObject([
    { kind: 'pause', forMs: 60_000, source: 'x-ratelimit' },
  ])
  expect(githubDialect({ ...answer, headers: withoutRetryAfter, status: 403 })).toMatchObject([{ forMs: 60_000 }])
})
