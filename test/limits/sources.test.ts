import { setMaxListeners } from 'node:events'
import { expect, test } from 'vitest'
import { LimitExceededError, type LimitKey } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, keysWith, sleepUntil, timed, times, useLimiters } from './support/limiters.ts'

// Each test is a row of the articles that this part of the package answers to.
const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

const DAY_MS = 86_400_000
const tiers = { free: { rate: '2/s', burst: 10 }, enterprise: { rate: '50/s', burst: 100 } }
const tierOf = (key: LimitKey) => (key === 'acme' ? 'enterprise' : 'free')

test('row 4: token bucket, tiers free 10 at 2/s and enterprise 100 at 50/s, several tokens per request', async () => {
  const api = limiter({ name: 'row-4', algorithm: 'token-bucket', rate: '2/s', tiers, tierOf })
  const first = await timed(client, () => api.take('joe', { cost: 8 }))
  const second = await timed(client, () => api.take('joe', { cost: 8 }))
  expect([first.value, second.value]).toMatchObject([
    { allowed: true, limit: 10, remaining: 2, retryAfterMs: 0 },
    { allowed: false, limit: 10 },
  ])
  // Six tokens are missing at first, at two a second.
  expect(second.value.retryAfterMs).toBeLessThanOrEqual(3000)
  expect(second.value.retryAfterMs).toBeGreaterThanOrEqual(3000 - (second.to - first.from))
  expect((await api.peek('joe', { cost: 2 })).allowed).toBe(true)

  expect(await api.take('acme', { cost: 100 })).toMatchObject({ allowed: true, limit: 100, remaining: 0 })
  const refused = await timed(client, () => api.take('acme', { cost: 50 }))
  expect(refused.value.allowed).toBe(false)
  await sleepUntil(client, refused.to + refused.value.retryAfterMs)
  expect((await api.take('acme', { cost: 50 })).allowed).toBe(true)
})

test('row 5: fixed window, 10,000 a day, counter and expiry set at once', async () => {
  const daily = limiter({ name: 'row-5', algorithm: 'fixed-window', rate: '10000/day' })
  const { value, from } = await timed(client, () => daily.take('joe', { cost: 9999 }))
  const [state] = (await keysWith(client, '{row-5}:f:')) as [string]
  const endsMs = (Math.floor(from / DAY_MS) + 1) * DAY_MS
  expect(value).toMatchObject({ allowed: true, limit: 10_000, remaining: 1, resetAt: new Date(endsMs) })
  const expiresMs = await client.pexpiretime(state)
  expect(expiresMs).toBeGreaterThanOrEqual(endsMs)
  expect(expiresMs).toBeLessThanOrEqual(endsMs + 2000)
  expect(countAllowed(await Promise.all(times(3, () => daily.take('joe'))))).toBe(1)
  // Later takes do not put the end of the window off.
  expect(Math.abs((await client.pexpiretime(state)) - expiresMs)).toBeLessThanOrEqual(1)
  expect(await daily.peek('joe')).toMatchObject({ allowed: false, remaining: 0, resetAt: new Date(endsMs) })
})

test('row 6: sliding window log, exact, unique members, for logins', async () => {
  const windowMs = 15 * 60_000
  const logins = limiter({ name: 'row-6', algorithm: 'sliding-window-log', rate: '5/15min' })
  const key = ['10.0.0.1', 'joe']
  const first = await timed(client, () => logins.take(key))
  // One script, one time: members made of the time alone would be one.
  const others = await Promise.all(times(5, () => logins.take(key)))
  expect([first.value, ...others].map(({ allowed }) => allowed)).toEqual([true, true, true, true, true, false])
  const refused = await timed(client, () => logins.peek(key))
  const freeMs = [refused.from + refused.value.retryAfterMs, refused.to + refused.value.retryAfterMs]
  expect(freeMs[1]).toBeGreaterThanOrEqual(first.from + windowMs)
  expect(freeMs[0]).toBeLessThanOrEqual(first.to + windowMs + 1)
  const state = `${redis.prefix}:limit:{row-6}:l:10.0.0.1:joe`
  // The last member is the sum of all charges; those of one µs are one.
  expect(await client.zrange(state, '-1', '-1')).toEqual(['5'])
})

test('row 7: sliding window counter, prev x (1 - elapsed) + current', async () => {
  const windowMs = 1500
  const api = limiter({ name: 'row-7', algorithm: 'sliding-window-counter', rate: { limit: 100, period: windowMs } })
  const { resetAt } = await api.take('joe', { cost: 80 })
  const startMs = resetAt.getTime() - windowMs
  await sleepUntil(client, startMs + 0.4 * windowMs)
  const leftAt = (timeMs: number) => 100 - 10 - 80 * Math.max(0, 1 - (timeMs - startMs) / windowMs)
  const { value, from, to } = await timed(client, () => api.take('joe', { cost: 10 }))
  expect(value.allowed).toBe(true)
  expect(value.remaining).toBeGreaterThanOrEqual(Math.floor(leftAt(from)))
  expect(value.remaining).toBeLessThanOrEqual(Math.floor(leftAt(to)))
})

test('row 13: keying by ip, api key, user and composite, hashed where needed, aggressive expiry', async () => {
  const api = limiter({ name: 'row-13', rate: '60/min', burst: 5 })
  const secret = `sk_live_${'x'.repeat(100)}`
  const keys = ['10.0.0.1', '2001:db8::1', secret, 42, ['10.0.0.1', 'joe@example.com'], ['a', 'b'], 'a:b', 'ab']
  for (const key of keys) expect((await api.take(key)).remaining).toBe(4)
  const states = await keysWith(client, '{row-13}:g:')
  const short = states.map((state) => state.replace(/^.*\{row-13\}:g:/, ''))
  expect(short.filter((key) => !key.startsWith('#'))).toEqual([
    '10.0.0.1',
    '10.0.0.1:joe@example.com',
    '42',
    'a:b',
    'ab',
  ])
  expect(short.join()).not.toContain('sk_live')
  expect(Math.max(...short.map((key) => key.length))).toBeLessThanOrEqual(28)
  const left = await Promise.all(states.map((state) => client.pttl(state)))
  // One unit comes back within a second, and one more is for clocks that differ.
  expect(Math.min(...left)).toBeGreaterThan(0)
  expect(Math.max(...left)).toBeLessThanOrEqual(2000)
})

test('row 15: stable reset times, consecutive answers do not wobble', async () => {
  const buckets = ['gcra', 'token-bucket', 'leaky-bucket'] as const
  const windows = ['fixed-window', 'sliding-window-log', 'sliding-window-counter'] as const
  for (const algorithm of [...buckets, ...windows]) {
    const api = limiter({ name: `row-15-${algorithm}`, algorithm, rate: '7/h', burst: 7 })
    const { resetAt } = await api.take('joe', { cost: 3 })
    for (let i = 0; i < 20; i++) expect([algorithm, (await api.peek('joe')).resetAt]).toEqual([algorithm, resetAt])
    const refused = [await api.take('joe', { cost: 5 }), await api.take('joe', { cost: 6 })]
    expect(refused).toMatchObject([
      { allowed: false, resetAt },
      { allowed: false, resetAt },
    ])
  }
})

test('row 20: burst queue, nginx rate, burst, delayed or nodelay', async () => {
  const proxy = limiter({ name: 'row-20', rate: '1/s' })
  const stop = new AbortController()
  setMaxListeners(50, stop.signal)
  const options = { maxWaiting: 20, nodelay: 5, signal: stop.signal }
  const startMs = performance.now()
  const passed: { place: number; afterMs: number }[] = []
  const wait = async (place: number) => {
    await proxy.wait('10.0.0.1', options)
    passed.push({ place, afterMs: performance.now() - startMs })
  }
  await wait(0)
  const waiting = times(20, (i) => wait(i + 1))
  const refused = await proxy.wait('10.0.0.1', options).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(LimitExceededError)
  expect((refused as LimitExceededError).retryAfterMs).toBeLessThanOrEqual(1000)
  await Promise.all(waiting.slice(0, 5))
  expect(passed.map(({ place }) => place)).toEqual([0, 1, 2, 3, 4, 5])
  await waiting[6]
  stop.abort(new Error('enough'))
  const ends = await Promise.allSettled(waiting.slice(7))
  expect(ends.map((end) => end.status === 'rejected' && String(end.reason))).toEqual(times(13, () => 'Error: enough'))
  // Their slots are one second apart: the sixth waits for that of the first.
  expect(passed.map(({ place }) => place)).toEqual(times(8, (place) => place))
  expect(passed[6]?.afterMs).toBeGreaterThanOrEqual(999)
  expect(passed[7]?.afterMs).toBeGreaterThanOrEqual(1999)
})
