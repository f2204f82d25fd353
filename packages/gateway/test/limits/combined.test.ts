import { expect, test } from 'vitest'
import { combine } from '../../../../src/limits/index.ts'
import { useLimiters } from '../../../../test/limits/support/limiters.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { byApiKey, byUser } from '../../src/limits/key-functions.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import { call } from '../adapters/support/callers.ts'
import { KINDS, serve } from '../adapters/support/servers.ts'
import { readList } from '../responses/fields.ts'
import { requestOf } from './support/requests.ts'

const redis = useRedis(import.meta.url)
const { limiter } = useLimiters(redis)
const as = (apiKey: string) => ({ headers: { 'x-api-key': apiKey } })

test.each(KINDS)('%s: all limits are told; the longest wait is told, and all that refuse are named', async (kind) => {
  const [hour, day] = [`hour-${kind}`, `day-${kind}`]
  const limit = combine([
    limiter({ name: hour, algorithm: 'fixed-window', rate: '2/h', align: 'first' }),
    limiter({ name: day, algorithm: 'fixed-window', rate: '3/day', align: 'first' }),
  ])
  const key = { [hour]: byApiKey(), [day]: byUser(() => 'all') }
  const origin = await serve(kind, rateLimit({ limit, key }))
  const first = await call(origin, as('joe'))
  expect(readList(first.headers.ratelimit as string)).toMatchObject([
    { name: hour, r: 1 },
    { name: day, r: 2 },
  ])
  expect(readList(first.headers['ratelimit-policy'] as string)).toEqual([
    { name: hour, q: 2, w: 3600 },
    { name: day, q: 3, w: 86_400 },
  ])
  expect((await call(origin, as('joe'))).status).toBe(200)
  const byHour = JSON.parse((await call(origin, as('joe'))).body)
  expect(byHour).toMatchObject({ status: 429, 'violated-policies': [hour], limit: 2, remaining: 0 })
  expect((await call(origin, as('ann'))).status).toBe(200)
  const refused = await call(origin, as('joe'))
  const byBoth = JSON.parse(refused.body)
  expect(byBoth['violated-policies']).toEqual([day, hour])
  expect(byBoth.retryAfterMs).toBeGreaterThan(80_000_000)
  expect(Number(refused.headers['retry-after']) * 1000).toBeGreaterThanOrEqual(byBoth.retryAfterMs)
})

test('one key is the key of all limits; of those that an object leaves out there is one for all', async () => {
  const [user, all] = [
    limiter({ name: 'user', rate: '9/h', burst: 9 }),
    limiter({ name: 'all', rate: '9/h', burst: 9 }),
  ]
  const limit = combine([user, all])
  await call(await serve('node', rateLimit({ limit, key: byApiKey() })), as('joe'))
  expect([(await user.peek()).remaining, (await all.peek()).remaining]).toEqual([9, 9])
  await call(await serve('node', rateLimit({ limit, key: { user: byApiKey() } })), as('joe'))
  expect([(await user.peek()).remaining, (await all.peek()).remaining]).toEqual([9, 8])
})

test('costs are those of all limits, or of each', async () => {
  const [requests, units] = [
    limiter({ name: 'requests', rate: '9/h', burst: 9 }),
    limiter({ name: 'units', rate: '90/h', burst: 90 }),
  ]
  const limit = combine([requests, units])
  const left = async (options: object) => {
    await call(await serve('node', rateLimit({ limit, key: () => 'joe', ...options })))
    return [(await requests.peek('joe')).remaining, (await units.peek('joe')).remaining]
  }
  expect(await left({})).toEqual([8, 89])
  expect(await left({ cost: 2 })).toEqual([6, 87])
  expect(await left({ cost: { units: async () => 20 } })).toEqual([5, 67])
})

test('in shadow nothing shows but in the field that is asked for', async () => {
  const dark = limiter({ name: 'dark', rate: '1/h', mode: 'shadow' })
  const limit = combine([dark, limiter({ name: 'lit', rate: '9/h', burst: 9 })])
  const key = byUser(() => 'joe')
  const silent = await serve('node', rateLimit({ limit, key }))
  const telling = await serve('node', rateLimit({ limit, key, shadowHeader: 'X-RateLimit-Shadow' }))
  expect((await call(telling)).headers).not.toHaveProperty('x-ratelimit-shadow')
  const said = await call(telling)
  expect(said).toMatchObject({ status: 200, headers: { 'x-ratelimit-shadow': 'dark' } })
  expect(readList(said.headers.ratelimit as string)).toMatchObject([{ name: 'lit', r: 7 }])
  const quiet = await call(silent)
  expect(quiet.status).toBe(200)
  expect(JSON.stringify(quiet.headers)).not.toMatch(/shadow|dark/)
  const named = rateLimit({ limit: dark, key, headers: [], shadowHeader: 'X-Dark' })
  expect(await named.enter(requestOf())).toEqual({ headers: { 'x-dark': 'dark' } })
  await dark.setMode('enforce')
  expect(JSON.parse((await call(telling)).body)).toMatchObject({ status: 429, 'violated-policies': ['dark'] })
})
