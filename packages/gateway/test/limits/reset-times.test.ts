import { parseDictionary } from 'structured-headers'
import { expect, test } from 'vitest'
import { combine, type LimiterOptions } from '../../../../src/limits/index.ts'
import { redisTime, useLimiters } from '../../../../test/limits/support/limiters.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { SkewedDate } from '../../../../test/support/skewed-date.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import type { Entry } from '../../src/middleware.ts'
import { requestOf } from './support/requests.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const SERIES = 40
const ANSWERS = 25
const HOUR_MS = 3_600_000
const WINDOWS: readonly LimiterOptions[] = [
  { name: 'fixed', algorithm: 'fixed-window', rate: '10/h', align: 'first' },
  { name: 'log', algorithm: 'sliding-window-log', rate: '1/h' },
  { name: 'gcra', algorithm: 'gcra', rate: '1/h', burst: 1 },
  { name: 'tokens', algorithm: 'token-bucket', rate: '1/h', burst: 1 },
  { name: 'remembered', algorithm: 'fixed-window', rate: '10/h', align: 'first', mitigation: true },
]

function headersOf(entry: Entry): Readonly<Record<string, string>> {
  return (entry.response ?? entry).headers ?? {}
}

/** What a caller is told by 25 answers in a row. */
async function seriesOf(options: LimiterOptions, key: string) {
  const limit = limiter(options)
  const middleware = rateLimit({ limit, key: () => key, headers: ['draft-7', 'x-ratelimit'] })
  const told = []
  for (let i = 0; i < ANSWERS; i++) {
    const entry = await middleware.enter(requestOf())
    told.push({ headers: headersOf(entry), isRefused: 'response' in entry })
  }
  return told
}

test.each(WINDOWS)('200 series of 25 answers: each tells one reset, that of Redis ($name)', async (options) => {
  const clock = new SkewedDate()
  for (let series = 0; series < SERIES; series++) {
    clock.set(((series % 3) - 1) * 2 * HOUR_MS)
    const key = `${options.name}-${series}`
    const before = await redisTime(client)
    const told = await seriesOf(options, key)
    const after = await redisTime(client)
    const resets = new Set(told.map(({ headers }) => headers['x-ratelimit-reset']))
    expect([key, [...resets]]).toEqual([key, [[...resets][0]]])
    const resetMs = Number([...resets][0]) * 1000
    expect(resetMs).toBeGreaterThanOrEqual(Math.floor(before) + HOUR_MS - 1)
    expect(resetMs).toBeLessThanOrEqual(after + HOUR_MS + 1000)
    expect(told.filter(({ isRefused }) => isRefused).length).toBeGreaterThanOrEqual(15)
    for (const { headers } of told) {
      // None is told to come before there is more.
      const reset = parseDictionary(headers.ratelimit as string).get('reset')?.[0]
      expect(reset).toBeGreaterThanOrEqual(3599)
      expect(reset).toBeLessThanOrEqual(3600)
    }
  }
})

test('the figures of combined limits, and of a queue of requests, are on the clock of Redis too', async () => {
  const clock = new SkewedDate()
  clock.set(2 * HOUR_MS)
  const minute = limiter({ name: 'minute', algorithm: 'fixed-window', rate: '1/min', align: 'first' })
  const hour = limiter({ name: 'hour', algorithm: 'fixed-window', rate: '1/h', align: 'first' })
  const waiting = limiter({ name: 'line', rate: '1/h', burst: 1 })
  const headers = ['x-ratelimit'] as const
  const stack = [
    rateLimit({ limit: combine([minute, hour]), key: () => 'joe', headers }),
    rateLimit({ limit: waiting, key: () => 'joe', headers, burstQueue: { maxWaiting: 0 } }),
  ]
  for (const middleware of stack) {
    const before = await redisTime(client)
    await middleware.enter(requestOf())
    const refused = await middleware.enter(requestOf())
    const resetMs = Number(headersOf(refused)['x-ratelimit-reset']) * 1000
    expect(resetMs).toBeGreaterThanOrEqual(Math.floor(before) + HOUR_MS - 1)
    expect(resetMs).toBeLessThanOrEqual((await redisTime(client)) + HOUR_MS + 1000)
  }
})
