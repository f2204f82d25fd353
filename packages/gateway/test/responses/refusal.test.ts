import { expect, test } from 'vitest'
import {
  CannotStartInTimeError,
  CostTooHighError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidCostError,
  InvalidDeadlineError,
  InvalidInputError,
  InvalidJobIdError,
  InvalidKeyError,
  InvalidLimitError,
  InvalidShapeError,
  LimitConflictError,
  LimitExceededError,
  LimiterUnavailableError,
  QueueFullError,
  QueueUnavailableError,
  TooLargeError,
  UnsupportedOptionError,
  WaitTimeoutError,
} from '../../../../src/errors.ts'
import { NOW_MS } from '../../../../test/egress/signals/http-answer.ts'
import { refusalResponse } from '../../src/responses/refusal.ts'

const HOST = 'redis-7.internal'
const AT = { policyName: 'admit', instance: '/queues/orders/jobs' }
const full = new QueueFullError('orders', { retryAfterMs: 2500, depth: 98, capacity: 100, paused: false })
const late = new CannotStartInTimeError('orders', {
  ...{ retryAfterMs: 7000, depth: 40, capacity: 100, paused: false, maxWaitMs: 5000 },
  startsAt: new Date(NOW_MS + 12_000),
})
const timedOut = (cause?: unknown) => new WaitTimeoutError('orders', 50, { cause })
const unavailable = (mayBeStored: boolean) => new QueueUnavailableError('orders', `connect to ${HOST}`, mayBeStored)

function answered(error: unknown, at = {}) {
  const answer = refusalResponse(error, { ...AT, ...at }, { nowMs: NOW_MS, random: () => 0 })
  return answer && { ...answer, body: JSON.parse(answer.body as string) as Record<string, unknown> }
}

test('a full queue: 429, with the figures of its admission', () => {
  const { status, headers, body } = answered(full, { partitionKey: Uint8Array.of(1, 2, 3) }) ?? {}
  expect(status).toBe(429)
  expect(headers).toEqual({
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
    'retry-after': '3',
    'ratelimit-policy': '"admit";q=100;pk=:AQID:',
    ratelimit: '"admit";r=2;t=3;pk=:AQID:',
  })
  expect(body).toEqual({
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: 'Quota exceeded',
    status: 429,
    detail: 'The queue is full: 98 of 100 places are taken.',
    instance: '/queues/orders/jobs',
    'violated-policies': ['admit'],
    limit: 100,
    remaining: 2,
    retryAfterMs: 2500,
    retry_after: 3,
  })
})

test('the fields come in the forms that are asked for', () => {
  const { headers } = answered(full, { forms: ['x-ratelimit-delta'] }) ?? {}
  expect(headers).toMatchObject({ 'x-ratelimit-limit': '100', 'x-ratelimit-remaining': '2', 'x-ratelimit-reset': '3' })
  expect(headers).not.toHaveProperty('ratelimit')
})

test.each<[what: string, error: Error, violated: string]>([
  ['the queue', unavailable(false), 'admit'],
  ['a wait for a place', timedOut(unavailable(false)), 'admit'],
  ['a wait that ended without a refusal', timedOut(), 'admit'],
  ['a limit', new LimiterUnavailableError('per-user', `connect to ${HOST}`), 'per-user'],
  ...[
    "OOM command not allowed when used memory > 'maxmemory'.",
    'BUSY Redis is busy running a script.',
    'LOADING Redis is loading the dataset in memory',
    "READONLY You can't write against a read only replica.",
    `connect ECONNREFUSED ${HOST}:6379`,
    'Connection is closed.',
  ].map((text): [string, Error, string] => [text, new Error(text), 'admit']),
])('Redis does not serve: 503, never 429, and not a word of Redis. %s', (_, error, violated) => {
  const { status, headers, body } = answered(error, { capacity: 100 }) ?? {}
  expect(status).toBe(503)
  expect(headers).toMatchObject({ 'retry-after': '5', 'cache-control': 'no-store' })
  expect(body).toMatchObject({
    type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
    'violated-policies': [violated],
    remaining: 0,
    retryAfterMs: 5000,
    retry_after: 5,
  })
  expect(JSON.stringify([headers, body])).not.toMatch(/redis|connect|ECONN|OOM|maxmemory/i)
})

test.each([true, false])('whether the job may be stored is told: %s', (mayBeStored) => {
  expect(answered(unavailable(mayBeStored), { capacity: 100 })?.body).toMatchObject({ mayBeStored, limit: 100 })
})

test('what could not start in time: 429, with when it would start', () => {
  const { status, headers, body } = answered(late) ?? {}
  expect([status, headers?.['retry-after']]).toEqual([429, '7'])
  expect(body).toMatchObject({
    'violated-policies': ['admit'],
    detail: 'The job would start at 2026-11-21T12:00:12.000Z, later than a wait of 5000 ms.',
    startsAt: '2026-11-21T12:00:12.000Z',
    limit: 100,
    remaining: 60,
    retryAfterMs: 7000,
  })
})

test('a limit with too many in line: 429 by its own name', () => {
  const { status, body } = answered(new LimitExceededError('per-user', 'its turn comes too late', 900)) ?? {}
  expect([status, body?.['violated-policies'], body?.retryAfterMs]).toEqual([429, ['per-user'], 900])
})

test('a wait for a place that was refused in the end is a refusal', () => {
  expect(answered(timedOut(full))).toEqual(answered(full))
})

test.each([
  [413, new TooLargeError('orders', 200, 100)],
  [422, new IdempotencyConflictError('orders')],
  [422, new CostTooHighError(5, 2)],
  [422, new InvalidCostError('cost must be > 0; got -1')],
  [422, new InvalidDeadlineError('mustStartBefore lies in the past')],
  [422, new InvalidJobIdError('meta is no job id')],
  [422, new InvalidKeyError('a key must not be empty')],
  [422, new UnsupportedOptionError('limiter is no option')],
])('%i for a mistake of the caller, in its words and without a time to come again: %s', (status, error) => {
  const answer = answered(error)
  expect(answer?.status).toBe(status)
  expect(answer?.body).toMatchObject({ type: 'about:blank', status, detail: error.message })
  expect(answer?.headers).not.toHaveProperty('retry-after')
})

test('a key whose first request still runs: 409, with when it may be known', () => {
  const { status, headers, body } = answered(new IdempotencyInFlightError('orders', 1500)) ?? {}
  expect([status, headers?.['retry-after'], body?.retryAfterMs]).toEqual([409, '2', 1500])
})

test.each([
  new Error(`no such table on ${HOST}`),
  new TypeError('undefined is not a function'),
  'a text',
  undefined,
  new InvalidInputError('an option of the program'),
  new InvalidShapeError('burst must be >= 1; got 0'),
  new InvalidLimitError('quota must be >= 1; got 0'),
  new LimitConflictError('per-user', '{}', '{}'),
])('what is none of the caller has no answer here: %s', (error) => {
  expect(answered(error)).toBeUndefined()
})

test('a bulk is told how many places it needs', () => {
  const bulk = new QueueFullError('orders', { retryAfterMs: 2500, depth: 98, capacity: 100, paused: false, needed: 5 })
  expect(answered(bulk)).toMatchObject({
    body: { detail: 'The queue is full: 98 of 100 places are taken, 5 are needed.' },
  })
})
