import { describe, expect, test } from 'vitest'
import type { HttpAnswer } from '../../../../src/egress/answer.ts'
import { httpDialect } from '../../../../src/egress/dialects/http.ts'
import type { Feedback } from '../../../../src/feedback/feedback.ts'
import { httpAnswer, NOW_S } from '../../signals/http-answer.ts'

type Headers = Readonly<Record<string, string>>
type Row = readonly [title: string, status: number, headers: Headers, feedback: readonly Partial<Feedback>[]]

const problem = (type: string, rest: object = {}) => ({
  type: `https://iana.org/assignments/http-problem-types#${type}`,
  ...rest,
})
const RETRY = { kind: 'retryJob', scope: 'queue', source: 'status' } as const
const SLOW = { kind: 'slow', scope: 'queue', source: 'status', factor: 0.7 } as const
const FATAL = { kind: 'fatal', scope: 'queue', source: 'status' } as const

const PRECEDENCE: readonly Row[] = [
  [
    'a vendor’s field in ms',
    429,
    { 'retry-after-ms': '350', 'retry-after': '12', ratelimit: '"a";r=0;t=30', 'x-ratelimit-reset': '60' },
    [{ kind: 'pause', forMs: 350, hard: true, source: 'retry-after', reason: '429 retry-after-ms 0.35 s' }],
  ],
  [
    'Retry-After',
    429,
    { 'retry-after': '12', ratelimit: '"a";r=0;t=30', 'x-ratelimit-reset': '60' },
    [{ kind: 'pause', forMs: 12_000, hard: true, source: 'retry-after', reason: '429 Retry-After 12 s' }],
  ],
  [
    't of RateLimit',
    429,
    { ratelimit: '"a";r=0;t=30', 'x-ratelimit-reset': '60' },
    [{ kind: 'pause', forMs: 30_000, hard: true, source: 'ratelimit', reason: '429 RateLimit a reset 30 s' }],
  ],
  [
    'X-RateLimit-Reset where RateLimit tells no time',
    429,
    { ratelimit: '"a";r=0', 'x-ratelimit-reset': '60' },
    [{ kind: 'pause', forMs: 60_000, hard: true, source: 'x-ratelimit', reason: '429 X-RateLimit reset 60 s' }],
  ],
  ['none', 429, {}, [{ kind: 'pause', forMs: undefined, hard: false, source: 'status', reason: '429' }]],
]

const REFUSED: readonly Row[] = [
  [
    'the last of the quotas that are used up',
    429,
    { ratelimit: '"a";r=0;t=3, "b";r=0;t=30, "c";r=900;t=80000' },
    [{ kind: 'pause', forMs: 30_000 }],
  ],
  [
    'a quota with something left is not why',
    429,
    { 'x-ratelimit-remaining': '900', 'x-ratelimit-reset': '3000' },
    [{ kind: 'pause', forMs: undefined }],
  ],
  [
    'a time that is a lie is cut to a day',
    429,
    { 'retry-after': '1000000' },
    [{ kind: 'pause', forMs: 86_400_000, reason: '429 Retry-After 1000000 s (cut to 24 h)' }],
  ],
  [
    'a cached answer: its RateLimit is old, its Retry-After holds',
    429,
    { age: '5', ratelimit: '"a";r=0;t=30' },
    [{ kind: 'pause', forMs: undefined }],
  ],
  [
    'concurrent requests: the policy tells how many',
    429,
    { 'ratelimit-policy': '"c";q=4;qu="concurrent-requests"', 'retry-after': '1' },
    [
      { kind: 'pause', forMs: 1000 },
      { kind: 'concurrency', scope: 'queue', source: 'ratelimit', limit: 4 },
    ],
  ],
]

const FAILED: readonly Row[] = [
  ['503 with Retry-After', 503, { 'retry-after': '20' }, [{ kind: 'pause', forMs: 20_000, hard: true }]],
  ['503', 503, {}, [SLOW, RETRY]],
  ['529', 529, {}, [SLOW, RETRY]],
  ['500', 500, {}, [RETRY]],
  ['502', 502, {}, [RETRY]],
  ['504', 504, {}, [RETRY]],
  ['504 with Retry-After', 504, { 'retry-after': '3' }, [{ ...RETRY, afterMs: 3000, reason: '504 Retry-After 3 s' }]],
  ['504 with a lie', 504, { 'retry-after': '1000000' }, [{ ...RETRY, afterMs: 86_400_000 }]],
  ['507: as any 5xx that is not named', 507, {}, [RETRY]],
  ['408', 408, {}, [RETRY]],
  ['425', 425, {}, [RETRY]],
  ['501', 501, {}, [FATAL]],
  ['505', 505, {}, [FATAL]],
  ['400', 400, {}, [FATAL]],
  ['404', 404, {}, [FATAL]],
  ['413', 413, {}, [FATAL]],
  ['413 with Retry-After', 413, { 'retry-after': '3' }, [{ ...RETRY, afterMs: 3000 }]],
  ['422', 422, {}, [FATAL]],
  ['401', 401, {}, []],
  ['403', 403, {}, []],
  ['407', 407, {}, []],
  ['409', 409, {}, []],
  ['409 with Retry-After', 409, { 'retry-after': '3' }, [{ ...RETRY, afterMs: 3000 }]],
  ['423', 423, {}, []],
  ['no status of HTTP', 999, {}, []],
  ['none at all', Number.NaN, {}, []],
]

const GOOD: readonly Row[] = [
  ['200', 200, {}, [{ kind: 'ok', scope: 'queue', source: 'status', reason: '200' }]],
  ['304', 304, {}, [{ kind: 'ok', scope: 'queue', source: 'status', reason: '304' }]],
  [
    'nothing left: a count, no pause',
    200,
    { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW_S + 9) },
    [{ kind: 'ok', scope: 'queue', source: 'x-ratelimit', reason: '200, 0 left', remaining: 0, resetMs: 9000 }],
  ],
  [
    'the rate of the policy is q/w, however large r/t is',
    200,
    { ratelimit: '"a";r=10000;t=10', 'ratelimit-policy': '"a";q=10000;w=1000' },
    [
      {
        ...{ kind: 'ok', scope: 'queue', source: 'ratelimit', reason: '200, 10000 left' },
        ...{ remaining: 10_000, resetMs: 10_000, policyRate: { limit: 10_000, period: 1_000_000 } },
      },
    ],
  ],
  [
    'the lowest rate of all policies, and the count that allows the slowest pace',
    200,
    { ratelimit: '"s";r=9;t=1, "d";r=700;t=40000', 'ratelimit-policy': '"s";q=10;w=1, "d";q=86400;w=86400' },
    [
      {
        ...{ kind: 'ok', scope: 'queue', source: 'ratelimit', reason: '200, 700 left' },
        ...{ remaining: 700, resetMs: 40_000_000, policyRate: { limit: 86_400, period: 86_400_000 } },
      },
    ],
  ],
  [
    'a quota of 0 is no rate',
    200,
    { 'ratelimit-policy': '"a";q=0;w=1' },
    [{ kind: 'ok', scope: 'queue', source: 'ratelimit', reason: '200' }],
  ],
  [
    'bytes are a limit of their own, concurrency is no rate',
    200,
    {
      ratelimit: '"b";r=500;t=2, "c";r=1',
      'ratelimit-policy':
        '"b";q=1000;w=10;qu="content-bytes", "c";q=4;qu="concurrent-requests", "g";q=1;w=9;qu="goats"',
    },
    [
      { kind: 'ok', scope: 'queue', source: 'status', reason: '200' },
      {
        ...{ kind: 'ok', scope: { limit: 'content-bytes' }, source: 'ratelimit', reason: '200, 500 left' },
        ...{ remaining: 500, resetMs: 2000, policyRate: { limit: 1000, period: 10_000 } },
      },
      { kind: 'concurrency', scope: 'queue', source: 'ratelimit', limit: 4 },
    ],
  ],
]

function check(
  status: number,
  headers: Headers,
  feedback: readonly Partial<Feedback>[],
  rest: Partial<HttpAnswer> = {},
) {
  const said = httpDialect(httpAnswer({ status, headers, ...rest }))
  expect(said).toHaveLength(feedback.length)
  expect(said).toMatchObject(feedback)
}

describe('what gives the time of a pause, in this order', () => {
  test.each(PRECEDENCE)('%s', (_, status, headers, feedback) => check(status, headers, feedback))
})

describe('a refusal', () => {
  test.each(REFUSED)('%s', (_, status, headers, feedback) => check(status, headers, feedback))
})

describe('a failure', () => {
  test.each(FAILED)('%s', (_, status, headers, feedback) => check(status, headers, feedback))
})

describe('a good answer', () => {
  test.each(GOOD)('%s', (_, status, headers, feedback) => {
    expect(httpDialect(httpAnswer({ status, headers }))).toEqual(
      feedback.map((one) => (one.kind === 'concurrency' ? expect.objectContaining(one) : one)),
    )
  })
})

describe('a problem of RFC 9457', () => {
  test('quota-exceeded: by name, so it is hard even without a time', () => {
    check(429, {}, [{ kind: 'pause', forMs: undefined, hard: true, source: 'body', reason: '429 quota-exceeded' }], {
      body: problem('quota-exceeded'),
    })
  })

  test('violated-policies: the quotas that count, although something is left of them', () => {
    const headers = { ratelimit: '"a";r=5;t=30, "b";r=5;t=60' }
    check(429, headers, [{ kind: 'pause', forMs: 30_000 }], {
      body: problem('quota-exceeded', { 'violated-policies': ['a', 7] }),
    })
    check(429, headers, [{ kind: 'pause', forMs: 60_000 }], {
      body: problem('quota-exceeded', { 'policy-violations': ['b'] }),
    })
  })

  test('abnormal-usage-detected: ten minutes at least', () => {
    const body = problem('abnormal-usage-detected')
    check(429, { 'retry-after': '12' }, [{ kind: 'pause', forMs: 600_000, hard: true, source: 'body' }], { body })
    check(429, { 'retry-after': '3600' }, [{ kind: 'pause', forMs: 3_600_000, hard: true }], { body })
  })

  test('temporary-reduced-capacity: the lower policy is the rate', () => {
    const body = problem('temporary-reduced-capacity')
    const headers = { 'ratelimit-policy': '"a";q=5;w=1' }
    const slow = { kind: 'slow', rate: { limit: 5, period: 1000 }, source: 'ratelimit' } as const
    check(503, headers, [slow, RETRY], { body })
    check(503, { ...headers, 'retry-after': '2' }, [{ kind: 'pause', forMs: 2000 }, slow], { body })
    check(503, {}, [SLOW, RETRY], { body })
    check(503, headers, [SLOW, RETRY])
  })

  test('one of another registry is none of ours', () => {
    check(429, {}, [{ kind: 'pause', hard: false }], { body: { type: 'https://example.com/problems#quota-exceeded' } })
  })
})
