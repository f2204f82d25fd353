import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { HttpAnswer } from '../../../../src/egress/answer.ts'
import { type Feedback, MAX_PAUSE_MS } from '../../../../src/feedback/feedback.ts'
import { httpAnswer, NOW_DATE, NOW_MS, NOW_S } from '../../signals/http-answer.ts'
import { HTTP_PROFILES } from './http-profiles.ts'

const LONG = 100_000
const REASON = 230

const NAMES = [
  ...['retry-after', 'retry-after-ms', 'x-ms-retry-after-ms', 'x-amz-retry-after', 'date', 'age'],
  ...['ratelimit', 'ratelimit-policy', 'ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'],
  ...['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset', 'x-ratelimit-reset-after'],
  ...['x-ratelimit-next', 'x-ratelimit-retry-after', 'x-ratelimit-bucket', 'x-ratelimit-scope', 'x-ratelimit-resource'],
  ...['x-rate-limit-remaining', 'x-rate-limit-reset', 'x-ratelimit-nearlimit', 'x-shopify-shop-api-call-limit'],
  ...['x-ratelimit-limit-tokens', 'x-ratelimit-remaining-tokens', 'x-ratelimit-reset-tokens'],
  ...['anthropic-ratelimit-tokens-remaining', 'anthropic-ratelimit-tokens-reset', 'stripe-rate-limited-reason'],
  ...['x-ms-ratelimit-remaining-resource', 'sforce-limit-info', 'grpc-status', 'grpc-retry-pushback-ms'],
]
const STATUSES = [200, 201, 304, 400, 401, 403, 404, 409, 413, 429, 500, 501, 502, 503, 529, 0, 99, 600, Number.NaN]

/** Values that are almost right, and values that are not right at all. */
const values = fc.oneof(
  fc.constantFrom('0', '-1', '12', '2.0', '1e400', 'NaN', 'Infinity', '-0', '9'.repeat(15), '9'.repeat(400), ' ', '\0'),
  fc.constantFrom(NOW_DATE, 'Thu, 01 Jan 1970 00:00:00 GMT', 'Fri, 31 Dec 9999 23:59:59 GMT', '9999-12-31T23:59:59Z'),
  fc.constantFrom(String(NOW_S), String(NOW_MS), `${NOW_MS}000`, '6m0s', '999999999999999d', '40/40', '0/1', 'true'),
  fc.constantFrom('"a";r=0;t=999999999999999', '"a";q=999999999999999;w=1', 'limit=0, reset=0', '"a";q=1;w=0', '0;w=1'),
  fc.constantFrom('api-usage=9/1', 'x;1,y;2', '8', 'line\r\nset-cookie: a=b', '\u001b[31mred', '__proto__;r=1'),
  fc.nat().map(String),
  fc.double().map(String),
  fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
  fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.stringMatching(/^[";:=,?@%()a-z0-9. -]{0,60}$/),
)
const headers = fc.dictionary(fc.constantFrom(...NAMES), values)
const figures = fc.oneof(fc.double(), fc.integer(), fc.constantFrom(-1, 0, Number.NaN, Number.POSITIVE_INFINITY, 1e300))
const bodies = fc.oneof(
  fc.anything({ withNullPrototype: true }),
  fc.record({ retry_after: figures, global: fc.anything(), usage: fc.record({ total_tokens: figures }) }),
  fc.record({
    errors: fc.constantFrom([{ extensions: { code: 'THROTTLED' } }], [{ type: 'RATE_LIMITED' }], 'no list'),
    extensions: fc.record({
      cost: fc.record({
        requestedQueryCost: figures,
        actualQueryCost: figures,
        throttleStatus: fc.record({ currentlyAvailable: figures, restoreRate: figures }),
      }),
    }),
  }),
  fc.constantFrom('quota-exceeded', 'temporary-reduced-capacity', 'abnormal-usage-detected').map((type) => ({
    type: `https://iana.org/assignments/http-problem-types#${type}`,
    'violated-policies': ['a', null],
  })),
)
const answers = fc
  .record({ status: fc.constantFrom(...STATUSES), headers, body: bodies, text: fc.string(), url: fc.string() })
  .map((given) => httpAnswer(given))

const isLength = (ms: number | undefined, max = Number.MAX_SAFE_INTEGER) =>
  ms === undefined || (Number.isInteger(ms) && ms >= 0 && ms <= max)
const isRate = (rate: { limit: number; period: number } | undefined) =>
  rate === undefined || (rate.limit > 0 && rate.period > 0 && Number.isFinite(rate.limit / rate.period))
const isCount = (count: number | undefined) => count === undefined || (count >= 0 && count <= Number.MAX_SAFE_INTEGER)

/** Whether every figure is one that the meter can take. */
function isSound(said: Feedback): boolean {
  if (said.reason.length > REASON || /\p{Cc}/u.test(said.reason) || said.reason === '') return false
  if (said.kind === 'ok') {
    const { remaining, resetMs, policyRate, costUsed } = said
    return isCount(remaining) && isLength(resetMs) && isRate(policyRate) && isCount(costUsed)
  }
  if (said.kind === 'pause') return isLength(said.forMs, MAX_PAUSE_MS)
  if (said.kind === 'retryJob') return isLength(said.afterMs, MAX_PAUSE_MS)
  if (said.kind === 'slow') return isRate(said.rate) && (said.factor === undefined) !== (said.rate === undefined)
  return said.kind === 'concurrency' ? Number.isInteger(said.limit) && Number(said.limit) >= 1 : true
}

/** A throttled job is retried by whoever applies the pause. */
function isNotToldTwice(feedback: readonly Feedback[]): boolean {
  const kinds = feedback.map(({ kind }) => kind)
  return !(kinds.includes('pause') && kinds.includes('retryJob'))
}

describe.each(Object.entries(HTTP_PROFILES))('%s against a hostile peer', (_, { dialect }) => {
  test('says only what the meter can take', () => {
    fc.assert(
      fc.property(answers, (answer: HttpAnswer) => {
        const feedback = dialect(answer)
        expect(feedback.filter((said) => !isSound(said))).toEqual([])
        expect(isNotToldTwice(feedback)).toBe(true)
      }),
      { numRuns: 300 },
    )
  })

  test('every 429 holds or slows the fleet, or ends the job', () => {
    const kinds = new Set(['pause', 'slow', 'retryJob', 'fatal'])
    fc.assert(
      fc.property(headers, bodies, (fields, body) => {
        const feedback = dialect(httpAnswer({ status: 429, headers: fields, body }))
        expect(feedback.some(({ kind }) => kinds.has(kind))).toBe(true)
      }),
      { numRuns: 100 },
    )
  })

  test.each([
    ['digits', '9'.repeat(LONG)],
    ['durations', '1s'.repeat(LONG / 2)],
    ['almost a duration', `${'1'.repeat(LONG)}x`],
    ['items', '"a";r=1;t=1, '.repeat(LONG / 13)],
    ['policies', '"a";q=1;w=1, '.repeat(LONG / 13)],
    ['parameters', `"a"${';a=1'.repeat(LONG / 4)}`],
    ['lists in lists', '('.repeat(LONG)],
    ['spaces', ' '.repeat(LONG)],
    ['spaces and a figure', `${' '.repeat(LONG)}7`],
    ['commas', ','.repeat(LONG)],
    ['a String without an end', `"${'\\"'.repeat(LONG / 2)}`],
    ['a date', `Sat, 21 Nov 2026 ${'12:'.repeat(LONG / 3)}`],
    ['names of counts', 'a;1,'.repeat(LONG / 4)],
  ])('100 kB of %s in every field and in the body take no time', (_name, value) => {
    const fields = Object.fromEntries(NAMES.map((name) => [name, value]))
    const error = { code: value, type: value, message: value }
    const body = {
      error,
      message: value,
      errors: Array(LONG).fill(error),
      type: value,
      'violated-policies': Array(LONG),
    }
    const started = process.cpuUsage()
    for (const status of [200, 403, 429, 503]) {
      const feedback = dialect(httpAnswer({ status, headers: fields, body, text: value, code: value, url: value }))
      expect(feedback.filter((said) => !isSound(said))).toEqual([])
    }
    const { user } = process.cpuUsage(started)
    expect(user / 1000).toBeLessThan(2000)
  })
})

test('no getter of what was thrown is run', () => {
  const body = Object.defineProperty({}, 'error', {
    get: () => {
      throw new Error('read')
    },
  })
  for (const { dialect } of Object.values(HTTP_PROFILES))
    expect(() => dialect(httpAnswer({ status: 429, body }))).not.toThrow()
})
