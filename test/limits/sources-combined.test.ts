import { expect, test } from 'vitest'
import { combine } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { countAllowed, times, useLimiters } from './support/limiters.ts'

// Rows of the articles, as in sources.test.ts: those that take several limits at once.
const redis = useRedis(import.meta.url)
const { limiter } = useLimiters(redis)

test('row 10: several keys at once, per user and global, refuse if any is exceeded, Retry-After is the longest', async () => {
  const user = limiter({ name: 'row-10-user', rate: '2/min', burst: 2 })
  const everybody = limiter({ name: 'row-10-all', rate: '3/h', burst: 3 })
  const api = combine([user, everybody])
  const take = (name: string) => api.take({ 'row-10-user': name })
  expect(countAllowed([await take('ann'), await take('ann'), await take('bob')])).toBe(3)
  const both = await take('ann')
  expect(both).toMatchObject({
    allowed: false,
    policy: 'row-10-all',
    answers: [{ allowed: false }, { allowed: false }],
  })
  expect(both.retryAfterMs).toBe(both.answers[1]?.retryAfterMs)
  expect(both.retryAfterMs).toBeGreaterThan(both.answers[0]?.retryAfterMs as number)
  expect(await take('eve')).toMatchObject({ allowed: false, answers: [{ allowed: true, remaining: 2 }, {}] })
  expect((await user.peek('eve')).remaining).toBe(2)
})

test('row 11: several windows at once, 10/s and 100/min and 1000/h', async () => {
  const rates = { second: '10/s', minute: '100/min', hour: '1000/h' }
  const limits = Object.entries(rates).map(([name, rate]) =>
    limiter({ name, algorithm: 'token-bucket', rate, burst: Number.parseInt(rate, 10) }),
  )
  const api = combine(limits)
  for (const limit of limits) {
    const keys = { second: limit.name, minute: limit.name, hour: limit.name }
    expect((await api.take(keys)).answers.map(({ remaining }) => remaining)).toEqual([9, 99, 999])
    await limit.penalty(limit.name, 2000)
    const refused = await api.take(keys)
    expect(refused).toMatchObject({ allowed: false, policy: limit.name })
    expect(refused.answers.filter(({ allowed }) => !allowed)).toHaveLength(1)
  }
})

test('row 12: hierarchies, region > account > method > client, the narrowest wins', async () => {
  const names = ['region', 'account', 'method', 'client']
  for (const narrow of names) {
    const limits = names.map((name) =>
      limiter({ name: `${name}-of-${narrow}`, rate: '1/h', burst: name === narrow ? 2 : 50 }),
    )
    const api = combine(limits)
    const keys = Object.fromEntries(limits.map(({ name }, i) => [name, ['eu', 'acme', 'POST', 7].slice(0, i + 1)]))
    const answers = [await api.take(keys), await api.take(keys), await api.take(keys)]
    expect(answers.map(({ allowed }) => allowed)).toEqual([true, true, false])
    expect(new Set(answers.map(({ policy }) => policy))).toEqual(new Set([`${narrow}-of-${narrow}`]))
    // Refused requests cost none of the wider limits.
    expect(answers[2]?.answers.map(({ remaining }) => remaining).sort()).toEqual([0, 48, 48, 48])
  }
})

test('row 17: tiers and secondary limits, concurrent requests, cost points', async () => {
  const primary = { 'row-17': 'acme', concurrent: 'acme', points: 'acme' }
  const limits = [
    limiter({
      name: 'row-17',
      rate: '60/h',
      burst: 60,
      tiers: { app: { rate: '5000/h', burst: 5000 } },
      tierOf: { acme: 'app' },
    }),
    limiter({ name: 'concurrent', algorithm: 'concurrency', concurrency: 3, leaseMs: 60_000 }),
    limiter({ name: 'points', algorithm: 'sliding-window-log', rate: '20/min' }),
  ]
  const api = combine(limits)
  const [read, ...written] = [
    await api.take(primary),
    ...(await Promise.all(times(2, () => api.take(primary, { costs: { points: 5 } })))),
  ]
  expect(read?.answers).toMatchObject([{ limit: 5000, remaining: 4999 }, { remaining: 2 }, { remaining: 19 }])
  expect(countAllowed(written)).toBe(2)
  expect(await api.take(primary)).toMatchObject({ allowed: false, policy: 'concurrent' })
  expect(await read?.answers[1]?.lease?.release()).toBe(true)
  expect(await api.take(primary, { costs: { points: 10 } })).toMatchObject({ allowed: false, policy: 'points' })
  expect(await api.take(primary)).toMatchObject({
    allowed: true,
    answers: [{ remaining: 4996 }, { remaining: 0 }, { remaining: 8 }],
  })
})
