import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { HttpAnswer } from '../../../src/egress/answer.ts'
import { awsDialect } from '../../../src/egress/profiles/aws.ts'
import { MAX_PAUSE_MS } from '../../../src/feedback/feedback.ts'

function answer(fields: Partial<HttpAnswer>): HttpAnswer {
  return {
    ...{ protocol: 'http', failed: true, text: 'x', name: 'Error', code: '', status: 400, headers: {} },
    ...{ receivedAtMs: 1_800_000_000_000, ...fields },
  }
}

const slower = (source: string) => [
  { kind: 'slow', factor: 0.7, scope: 'queue', source },
  { kind: 'retryJob', scope: 'queue', source },
]

test.each([
  ...['Throttling', 'ThrottlingException', 'ThrottledException', 'RequestThrottled', 'RequestThrottledException'],
  ...['RequestLimitExceeded', 'TooManyRequestsException', 'ProvisionedThroughputExceededException'],
  ...['LimitExceededException', 'BandwidthLimitExceeded', 'SlowDown', 'PriorRequestNotComplete'],
  ...['EC2ThrottledException', 'TransactionInProgressException'],
])('%s slows down, whatever its status', (name) => {
  for (const status of [400, 503]) {
    const given = awsDialect(answer({ name, status }))
    expect(given).toMatchObject(slower('error'))
    expect(given[0]?.reason).toBe(`${status} ${name}`)
  }
})

test.each([
  ['status 429', { status: 429 }, 'status'],
  ['the mark of the SDK', { body: { $retryable: { throttling: true } } }, 'status'],
  ['the code of an older SDK', { code: 'Throttling' }, 'error'],
])('%s slows down', (_, fields, source) => {
  expect(awsDialect(answer(fields))).toMatchObject(slower(source))
})

test.each([
  ['x-amz-retry-after in ms', { 'x-amz-retry-after': '1500' }, 1500],
  ['Retry-After in s', { 'retry-after': '2' }, 2000],
  ['the more exact one of both', { 'x-amz-retry-after': '1500', 'retry-after': '2' }, 1500],
  ['a lie', { 'x-amz-retry-after': '99999999999' }, MAX_PAUSE_MS],
])('with a time it pauses: %s', (_, headers, forMs) => {
  expect(awsDialect(answer({ name: 'ThrottlingException', headers }))).toMatchObject([
    { kind: 'pause', forMs, hard: true, scope: 'queue', source: 'retry-after' },
  ])
})

test.each(['', '0', '-1', '1e3', '0x10', '1500 ms', 'soon', '١٥'])('x-amz-retry-after %j is no time', (line) => {
  const headers = { 'x-amz-retry-after': line }
  expect(awsDialect(answer({ name: 'ThrottlingException', headers }))).toMatchObject(slower('error'))
})

test.each([
  ['a good answer', { failed: false, status: 200 }, []],
  ['a request that is wrong', { name: 'ValidationException' }, []],
  ['an expired token', { name: 'ExpiredTokenException' }, []],
  ['a mark that says no throttling', { body: { $retryable: {} } }, []],
  ['a body that is none', { body: 'x' }, []],
  ['a server error', { status: 500, name: 'InternalServerError' }, [{ kind: 'retryJob' }]],
])('%s is not throttling', (_, fields, asks) => {
  expect(awsDialect(answer(fields))).toMatchObject(asks)
  expect(awsDialect(answer(fields))).toHaveLength(asks.length)
})

test('no answer breaks it', () => {
  const answers = fc.record({
    name: fc.oneof(fc.string(), fc.constantFrom('SlowDown', '__proto__')),
    status: fc.integer({ min: 100, max: 599 }),
    headers: fc.dictionary(fc.constantFrom('x-amz-retry-after', 'retry-after', 'date'), fc.string()),
    body: fc.anything(),
  })
  fc.assert(
    fc.property(answers, (some) => {
      for (const { reason } of awsDialect(answer(some))) expect(reason).not.toMatch(/[\r\n]/)
    }),
  )
})
