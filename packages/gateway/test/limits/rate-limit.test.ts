import { expect, test, vi } from 'vitest'
import { useLimiters } from '../../../../test/limits/support/limiters.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import { inOrder } from '../../src/adapters/in-order.ts'
import { byAddress } from '../../src/limits/address.ts'
import { byApiKey, byUser, hashOfApiKey } from '../../src/limits/key-functions.ts'
import { rateLimit } from '../../src/limits/rate-limit.ts'
import type { HttpRequest } from '../../src/middleware.ts'
import { call } from '../adapters/support/callers.ts'
import { middlewareOf } from '../adapters/support/middleware.ts'
import { KINDS, serve } from '../adapters/support/servers.ts'
import { readList } from '../responses/fields.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const as = (apiKey: string) => ({ headers: { 'x-api-key': apiKey } })

test.each(KINDS)('%s: what a limit allows passes and is told, the rest is refused', async (kind) => {
  const limit = limiter({ name: `basic-${kind}`, algorithm: 'fixed-window', rate: '2/h', align: 'first' })
  const behind = vi.fn(() => 'passed')
  const origin = await serve(kind, rateLimit({ limit, key: byApiKey() }), behind)
  const passed = await call(origin, as('joe'))
  expect(passed).toMatchObject({ status: 200, body: 'passed' })
  expect(readList(passed.headers['ratelimit-policy'] as string)).toEqual([{ name: limit.name, q: 2, w: 3600 }])
  expect(readList(passed.headers.ratelimit as string)).toEqual([{ name: limit.name, r: 1, t: expect.any(Number) }])
  expect((await call(origin, as('joe'))).status).toBe(200)
  const refused = await call(`${origin}/path?secret=1`, as('joe'))
  expect(refused).toMatchObject({
    status: 429,
    headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store' },
  })
  expect(readList(refused.headers.ratelimit as string)).toMatchObject([{ name: limit.name, r: 0 }])
  const { retry_after, retryAfterMs, ...problem } = JSON.parse(refused.body)
  expect(problem).toMatchObject({
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    status: 429,
    'violated-policies': [limit.name],
    limit: 2,
    remaining: 0,
    instance: '/path',
  })
  expect(refused.headers['retry-after']).toBe(String(retry_after))
  expect(retry_after * 1000).toBeGreaterThanOrEqual(retryAfterMs)
  expect(retryAfterMs).toBeGreaterThan(3_500_000)
  expect((await call(origin, as('ann'))).status).toBe(200)
  expect(behind).toHaveBeenCalledTimes(3)
})

test('the address is the key where it is asked for, and callers of whom nobody knows share one', async () => {
  const limit = limiter({ name: 'shared', rate: '2/h', burst: 2 })
  const origin = await serve('node', rateLimit({ limit, key: byApiKey() }))
  const byIp = await serve('node', rateLimit({ limit, key: byAddress({ trustProxy: ['loopback'] }) }))
  const statuses = [await call(origin), await call(origin), await call(origin), await call(origin, as('joe'))]
  expect(statuses.map(({ status }) => status)).toEqual([200, 200, 429, 200])
  const from = async (address: string) => (await call(byIp, { headers: { 'x-forwarded-for': address } })).status
  expect([await from('8.8.8.8'), await from('1.1.1.1, 8.8.8.8'), await from('8.8.8.8')]).toEqual([200, 200, 429])
  expect([await from('2001:db8::1'), await from('2001:db8::2'), await from('2001:db8::3')]).toEqual([200, 200, 429])
  expect(await from('2001:db8:0:1::1')).toBe(200)
})

test('who is called nobody is somebody', async () => {
  const limit = limiter({ name: 'nobody', rate: '1/h' })
  const key = byUser(({ url }) => (url === '/nobody' ? 'nobody' : undefined))
  const origin = await serve('node', rateLimit({ limit, key }))
  const statuses = [await call(origin), await call(`${origin}/nobody`), await call(`${origin}/other`)]
  expect(statuses.map(({ status }) => status)).toEqual([200, 200, 429])
})

test('no API key is kept in Redis', async () => {
  const limit = limiter({ name: 'hashed', rate: '9/h', burst: 9 })
  const origin = await serve('node', rateLimit({ limit, key: byApiKey() }))
  await call(origin, as('sk_live_secret'))
  const keys = await client.keys(`${redis.prefix}*hashed*`)
  expect(keys.some((key) => key.includes(hashOfApiKey('sk_live_secret')))).toBe(true)
  expect(keys.join()).not.toContain('sk_live_secret')
})

test('a cost is a number or said of the request; what can never pass is 422 and not told to come again', async () => {
  const limit = limiter({ name: 'costs', rate: '10/h', burst: 10 })
  const cost = async (request: HttpRequest) => Number(request.header('x-cost'))
  const origin = await serve('node', rateLimit({ limit, key: byUser(() => 'joe'), cost }))
  const left = async (units: string) => {
    const { status, headers } = await call(origin, { headers: { 'x-cost': units } })
    return [status, readList(headers.ratelimit as string)[0]?.r]
  }
  expect(await left('4')).toEqual([200, 6])
  expect(await left('7')).toEqual([429, 6])
  expect(await left('6')).toEqual([200, 0])
  const never = await call(origin, { headers: { 'x-cost': '11' } })
  expect(never).toMatchObject({ status: 422, headers: { 'content-type': 'application/problem+json' } })
  expect(never.headers).not.toHaveProperty('retry-after')
  const flat = await serve('node', rateLimit({ limit, key: () => 'ann', cost: 3 }))
  expect(readList((await call(flat)).headers.ratelimit as string)).toMatchObject([{ r: 7 }])
})

test('a function of the user that breaks is a failure of the server, and lets nobody pass', async () => {
  const limit = limiter({ name: 'broken', rate: '10/h' })
  const broken = () => Promise.reject(new Error('broken'))
  for (const options of [{ key: broken }, { key: () => 'joe', cost: broken }, { key: () => 'joe', skip: broken }]) {
    const behind = vi.fn(() => 'passed')
    const origin = await serve('node', rateLimit({ limit, ...options }), behind)
    expect((await call(origin)).status).toBe(500)
    expect(behind).not.toHaveBeenCalled()
  }
})

test('who is skipped or allowed is not limited, and not counted', async () => {
  const limit = limiter({ name: 'allowed', rate: '1/h' })
  const allow = { addresses: ['10.1.0.0/16', '2001:db8::/32'], trustProxy: 1, keys: [hashOfApiKey('friend'), 'other'] }
  const skip = async ({ url }: { url: string }) => url === '/healthz'
  const origin = await serve('node', rateLimit({ limit, key: byApiKey(), skip, allow }))
  const free = async (path: string, headers: Record<string, string>) => {
    const said = [await call(origin + path, { headers }), await call(origin + path, { headers })]
    expect(said[0]?.headers.ratelimit === undefined).toBe(said[1]?.status === 200)
    return said.map(({ status }) => status).join()
  }
  expect(await free('/healthz', {})).toBe('200,200')
  expect(await free('/', { 'x-forwarded-for': '10.1.2.3' })).toBe('200,200')
  expect(await free('/', { 'x-forwarded-for': '2001:db8::7' })).toBe('200,200')
  expect(await free('/', { 'x-api-key': 'friend' })).toBe('200,200')
  expect(await free('/', { 'x-api-key': 'other' })).toBe('200,429')
  expect(await free('/', { 'x-forwarded-for': '10.1.2.3, 10.2.0.1' })).toBe('200,429')
})

test('onLimit sees each refusal, and may answer in its place', async () => {
  const limit = limiter({ name: 'told', rate: '1/h' })
  const seen: unknown[] = []
  const key = byUser(() => 'joe')
  const looking = rateLimit({ limit, key, onLimit: (...told) => void seen.push(...told) })
  const origin = await serve('node', looking)
  expect([(await call(origin)).status, (await call(`${origin}/second`)).status]).toEqual([200, 429])
  expect(seen).toMatchObject([{ url: '/second' }, { status: 429 }, { policy: 'told', allowed: false, remaining: 0 }])
  const own = { status: 418, headers: { 'x-why': 'tea' }, body: 'no' }
  const replacing = await serve('node', rateLimit({ limit, key, onLimit: async () => own }))
  expect(await call(replacing)).toMatchObject({ status: 418, headers: { 'x-why': 'tea' }, body: 'no' })
})

test('fields come in the words that are asked for, or not at all; a shared limit has a bucket', async () => {
  const limit = limiter({ name: 'forms', algorithm: 'fixed-window', rate: '100/h', align: 'first' })
  const key = byUser(() => 'joe')
  const fields = async (options: object) => {
    const { headers } = await call(await serve('node', rateLimit({ limit, key, ...options })))
    const told = Object.entries(headers).filter(([name]) => name.includes('ratelimit'))
    // An hour, of which some of these requests have used a part.
    return Object.fromEntries(told.map(([name, value]) => [name, `${value}`.replace(/359\d/, '3600')]))
  }
  expect(await fields({})).toEqual({ ratelimit: '"forms";r=99;t=3600', 'ratelimit-policy': '"forms";q=100;w=3600' })
  expect(await fields({ headers: [] })).toEqual({})
  expect(await fields({ headers: ['draft-6'] })).toEqual({
    'ratelimit-policy': '100;w=3600',
    'ratelimit-limit': '100',
    'ratelimit-remaining': '97',
    'ratelimit-reset': '3600',
  })
  expect(await fields({ headers: ['x-ratelimit-delta'], bucket: 'search' })).toEqual({
    'x-ratelimit-limit': '100',
    'x-ratelimit-remaining': '96',
    'x-ratelimit-reset': '3600',
    'x-ratelimit-bucket': 'search',
  })
})

test('of a bucket t is when the next unit comes, not when all are there', async () => {
  const limit = limiter({ name: 'next', rate: '60/h', burst: 60 })
  const origin = await serve('node', rateLimit({ limit, key: () => 'joe', cost: 30 }))
  const [first, second] = [await call(origin), await call(origin)]
  expect(readList(first.headers['ratelimit-policy'] as string)).toEqual([{ name: 'next', q: 60, w: 3600 }])
  for (const [{ headers }, r] of [
    [first, 30],
    [second, 0],
  ] as const) {
    const [told] = readList(headers.ratelimit as string)
    expect(told).toMatchObject({ name: 'next', r })
    expect(told?.t).toBeGreaterThanOrEqual(55)
    expect(told?.t).toBeLessThanOrEqual(60)
  }
  // Refused, it is when what was asked for is there: half an hour, as in Retry-After.
  const { headers } = await call(origin)
  expect(readList(headers.ratelimit as string)[0]?.t).toBeGreaterThanOrEqual(1795)
})

test('a window that seconds can not tell is not told', async () => {
  const limit = limiter({ name: 'short', rate: '50/s' })
  const { headers } = await call(await serve('node', rateLimit({ limit, key: () => 'joe' })))
  expect(headers['ratelimit-policy']).toBe('"short";q=1')
})

test('each tier has its limit, and who has none has the default', async () => {
  const limit = {
    default: limiter({ name: 'tier-free', rate: '1/h' }),
    pro: limiter({ name: 'tier-pro', rate: '2/h', burst: 2 }),
  }
  const token = middlewareOf((request) => {
    const tier = request.header('x-tier')
    request.identity = { name: 'joe', ...(tier !== undefined && { tier }) }
    return {}
  })
  const origin = await serve('node', inOrder([token, rateLimit({ limit, key: byUser() })]))
  const policy = async (tier?: string) => {
    const { status, headers } = await call(origin, { headers: tier === undefined ? {} : { 'x-tier': tier } })
    return `${status} ${readList(headers.ratelimit as string)[0]?.name}`
  }
  expect(await policy('pro')).toBe('200 tier-pro')
  expect(await policy()).toBe('200 tier-free')
  expect(await policy('constructor')).toBe('429 tier-free')
  expect(await policy('pro')).toBe('200 tier-pro')
  expect(await policy('pro')).toBe('429 tier-pro')
  const asked = await serve('node', rateLimit({ limit, key: () => 'ann', tier: async () => 'pro' }))
  expect((await call(asked)).headers.ratelimit).toMatch(/^"tier-pro";r=1/)
})

test('a limiter’s own tiers hold', async () => {
  const tiers = { pro: { rate: '5/h', burst: 5 } }
  const limit = limiter({
    name: 'own-tiers',
    rate: '1/h',
    tiers,
    tierOf: async (key) => (key === 'ann' ? 'pro' : undefined),
  })
  const origin = await serve('node', rateLimit({ limit, key: byUser(({ url }) => url.slice(1)) }))
  expect((await call(`${origin}/ann`)).headers['ratelimit-policy']).toBe('"own-tiers";q=5;w=3600')
  expect((await call(`${origin}/joe`)).headers['ratelimit-policy']).toBe('"own-tiers";q=1;w=3600')
})
