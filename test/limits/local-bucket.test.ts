import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { InvalidLimitError, type TierRule } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, redisTime, stopClock, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter, sentBy } = useLimiters(redis)

beforeEach(stopClock)
afterEach(() => vi.useRealTimers())

test('row 21: a local bucket in front of the global one', async () => {
  const global = { name: 'both', rate: '100/h', burst: 100 } as const
  const here = limiter({ ...global, local: { rate: '10/s', burst: 25, share: 0.25 } })
  const there = limiter({ ...global, local: { rate: '100/s', burst: 100 } })
  const answers = await Promise.all(times(40, () => here.take('joe')))
  expect(countAllowed(answers)).toBe(25)
  expect(answers.at(-1)).toMatchObject({ allowed: false, limit: 25, remaining: 0, retryAfterMs: 100, policy: 'both' })

  // What exceeds it is refused from memory.
  expect(await sentBy(() => Promise.all(times(500, () => here.take('joe'))))).toBe(0)
  const fromMs = await redisTime(client)
  expect((await there.peek('joe')).remaining, 'and was never charged').toBe(75)
  vi.advanceTimersByTime(99)
  const { retryAt, ...refused } = await here.take('joe')
  expect(refused).toMatchObject({ allowed: false, retryAfterMs: 1 })
  // By Redis's clock, as far as the last answer told it.
  expect(retryAt?.getTime()).toBeGreaterThanOrEqual(fromMs)
  expect(retryAt?.getTime()).toBeLessThanOrEqual((await redisTime(client)) + 2)
  vi.advanceTimersByTime(1)
  expect((await here.take('joe')).allowed).toBe(true)
  vi.advanceTimersByTime(200)
  expect(countAllowed(await Promise.all(times(5, () => here.take('joe'))))).toBe(2)

  // The global limit holds for what passes it.
  expect(countAllowed(await Promise.all(times(100, () => there.take('joe'))))).toBe(72)
  vi.advanceTimersByTime(1000)
  expect(await here.take('joe')).toMatchObject({ allowed: false, limit: 100 })
})

test('a wait that is no whole ms is rounded up: whoever comes back then passes', async () => {
  const api = limiter({ name: 'thirds', rate: '3/s', local: { rate: '3/s' } })
  await api.take('joe')
  const { retryAfterMs } = await api.take('joe')
  expect(retryAfterMs).toBe(334)
  vi.advanceTimersByTime(333)
  expect(await api.take('joe')).toMatchObject({ allowed: false, retryAfterMs: 1 })
  vi.advanceTimersByTime(1)
  expect(await sentBy(() => api.take('joe'))).toBe(1)
})

test('each key has a bucket of its own, and so has each limiter', async () => {
  const options = { name: 'own', rate: '100/h', burst: 100, local: { rate: '1/h', burst: 2, share: 0.01 } } as const
  const one = limiter(options)
  const other = limiter(options)
  const takes = async (limit: typeof one, key: string) =>
    countAllowed(await Promise.all(times(5, () => limit.take(key))))
  expect([await takes(one, 'joe'), await takes(one, 'ann'), await takes(other, 'joe')]).toEqual([2, 2, 2])
})

test('its burst is the share of the limit where it is not given, of each tier its own', async () => {
  const api = limiter({
    ...{ name: 'tiers', algorithm: 'fixed-window', rate: '20/h' },
    tiers: { free: { rate: '10/h' } },
    tierOf: (key) => (key === 'joe' ? 'free' : undefined),
    local: { rate: '20/h', share: 0.5 },
  })
  expect(countAllowed(await Promise.all(times(20, () => api.take('joe'))))).toBe(5)
  expect(countAllowed(await Promise.all(times(20, () => api.take('ann'))))).toBe(10)
  await expect(api.take('joe', { cost: 6 })).rejects.toThrow('cost 6 exceeds what limit "tiers" allows at once, 5')
  await expect(api.take('joe', { cost: -1 })).rejects.toThrow('cost must be a positive number')
  await expect(api.take('', {})).rejects.toThrow('a key must be a string')
})

test('the oldest bucket is forgotten where there are too many', async () => {
  const local = { rate: '1/h', burst: 1, share: 0.01, maxLocalKeys: 2 }
  const api = limiter({ name: 'many', rate: '100/h', burst: 100, local })
  const allowed = async (key: string) => (await api.take(key)).allowed
  expect([await allowed('a'), await allowed('b'), await allowed('b'), await allowed('c')]).toEqual([
    ...[true, true, false, true],
  ])
  expect([await allowed('b'), await allowed('c'), await allowed('a')]).toEqual([false, false, true])
})

test('in shadow it refuses nothing', async () => {
  const api = limiter({ name: 'shadow', rate: '2/h', burst: 2, mode: 'shadow', local: { rate: '2/h' } })
  expect(countAllowed(await Promise.all(times(5, () => api.take('joe'))))).toBe(5)
  await api.setMode('enforce')
  expect(countAllowed(await Promise.all(times(5, () => api.take('ann'))))).toBe(2)
  await api.setMode(null)
  expect(countAllowed(await Promise.all(times(5, () => api.take('ann'))))).toBe(5)
})

test.each([
  ['rate', { rate: '4/s' }, /local.rate of 4\/s is stricter than .*, 5\/s/],
  ['burst', { rate: '5/s', burst: 9 }, /local.burst 9 is stricter than .*, 10 units at once/],
  ['rate of a tier', { rate: '5/s', burst: 10 }, /local.rate of 5\/s is stricter than .*, 50\/s/, { rate: '100/s' }],
])(
  'a %s that is stricter than the share of the global limit is refused when it is made',
  (_, local, message, tier?: TierRule) => {
    const create = () =>
      limiter({
        ...{ name: 'stricter', rate: '10/s', burst: 20, local: { share: 0.5, ...local } },
        ...(tier && { tiers: { tier }, tierOf: {} }),
      })
    expect(create).toThrow(InvalidLimitError)
    expect(create).toThrow(message)
  },
)

test.each([
  [{ rate: '5/s', share: 0 }, /local.share must be a number above 0, at most 1; got 0/],
  [{ rate: '5/s', share: 1.5 }, /local.share .* got 1.5/],
  [{ rate: '50/s', burst: 2.5 }, /local.burst must be a whole number >= 1; got 2.5/],
  [{ rate: '50/s', maxLocalKeys: 0 }, /local.maxLocalKeys .* got 0/],
])('%o is refused', (local, message) => {
  expect(() => limiter({ name: 'wrong', rate: '10/s', local })).toThrow(message)
})

test('exactly the share is not stricter', () => {
  expect(() =>
    limiter({ name: 'equal', rate: '1000/min', burst: 10, local: { rate: '1000/min', burst: 10 } }),
  ).not.toThrow()
  expect(() =>
    limiter({ name: 'third', rate: '10/s', burst: 9, local: { rate: '1/300ms', burst: 3, share: 1 / 3 } }),
  ).not.toThrow()
})
