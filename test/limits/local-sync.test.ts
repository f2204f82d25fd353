import { afterEach, expect, test, vi } from 'vitest'
import { createLimiter, LimiterUnavailableError } from '../../src/limits/index.ts'
import { startProxy } from '../support/proxy.ts'
import { connectionOptions, useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { countAllowed, stopClock, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { limiter, sentBy } = useLimiters(redis)

afterEach(() => vi.useRealTimers())

test('one lease answers many takes, in their order, while it is under way and after', async () => {
  stopClock()
  const api = limiter({ name: 'flight', rate: '100/h', burst: 100, sync: { intervalMs: 1000, share: 0.2 } })
  await api.peek()
  const order: number[] = []
  const takes = () =>
    Promise.all(times(10, (i) => api.take('joe', { cost: 1 }).finally(() => order.push(i)))).then((answers) =>
      answers.map(({ remaining }) => remaining),
    )
  expect(await sentBy(async () => expect(await takes()).toEqual(times(10, (i) => 19 - i)))).toBe(1)
  expect(order).toEqual(times(10, (i) => i))
  expect(await sentBy(async () => expect(await takes()).toEqual(times(10, (i) => 9 - i)))).toBe(0)
  expect(await sentBy(() => api.take('joe'))).toBe(1)
  expect((await api.peek('joe')).remaining, 'both shares are charged').toBe(60)
  // 19 are left: 20 need a lease, and what comes after them waits, though it could pass.
  const costs = [20, 1, 1]
  const answered: number[] = []
  await Promise.all(costs.map((cost) => api.take('joe', { cost }).finally(() => answered.push(cost))))
  expect(answered).toEqual(costs)
  expect(await sentBy(() => api.take('joe', { cost: 17 })), 'what is left of the last share is used up').toBe(0)
})

test('a share that is not used in time is dropped, and stays charged', async () => {
  stopClock()
  const api = limiter({ name: 'dropped', rate: '100/h', burst: 100, sync: { intervalMs: 1000 } })
  await api.take('joe')
  vi.advanceTimersByTime(999)
  expect(await sentBy(() => api.take('joe'))).toBe(0)
  vi.advanceTimersByTime(1)
  expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 9 })
  expect((await api.peek('joe')).remaining).toBe(80)
})

test('what is left is leased where there is no whole share, then the cost alone; then it is over, from memory', async () => {
  stopClock()
  const api = limiter({ name: 'fallback', rate: '16/h', burst: 16, sync: { intervalMs: 1000, share: 0.6 } })
  const plain = limiter({ name: 'fallback', rate: '16/h', burst: 16 })
  expect(countAllowed(await Promise.all(times(30, () => api.take('joe'))))).toBe(16)
  const refused = await plain.take('joe')
  const answers = await sentBy(async () => {
    const [answer] = await Promise.all(times(1000, () => api.take('joe')))
    expect(answer).toMatchObject({ allowed: false, remaining: 0, limit: 16, policy: 'fallback' })
    expect(Math.abs((answer?.retryAfterMs as number) - refused.retryAfterMs)).toBeLessThan(5000)
  })
  expect(answers).toBe(0)
  // A cost above the share is leased as it is.
  expect(await api.take('ann', { cost: 12 })).toMatchObject({ allowed: true, remaining: 0 })
  expect(await api.take('ann', { cost: 3 })).toMatchObject({ allowed: true, remaining: 1 })
  expect(await api.take('ann', { cost: 2 })).toMatchObject({ allowed: false })
  await expect(api.take('ann', { cost: 17 })).rejects.toThrow('cost 17 exceeds')
  await expect(api.take('ann', { cost: Number.NaN })).rejects.toThrow('cost must be')
  await expect(api.take(['ann', ''])).rejects.toThrow('a key must be')
})

test('a block and a reset by this limiter hold at once; a reward keeps the share and asks again', async () => {
  stopClock()
  const api = limiter({ name: 'verbs', rate: '20/h', burst: 20, sync: { intervalMs: 1000, share: 0.5 } })
  const takes = async (key: string) => (await api.take(key)).allowed
  expect(await takes('joe')).toBe(true)
  await Promise.all([api.take('joe'), api.block('joe', 60_000)])
  expect(await takes('joe')).toBe(false)
  await api.reset('joe')
  expect((await api.take('joe')).remaining).toBe(9)
  await api.reset('joe')
  expect((await api.peek('joe')).remaining).toBe(20)
  expect((await api.take('joe')).remaining).toBe(9)

  expect(countAllowed(await Promise.all(times(25, () => api.take('ann'))))).toBe(20)
  await api.reward('ann', 3)
  expect(countAllowed(await Promise.all(times(5, () => api.take('ann'))))).toBe(3)
  await api.take('eve')
  await api.reward('eve', 1)
  expect(await sentBy(() => api.take('eve'))).toBe(0)
})

test('in shadow everything passes, and what would have been refused is told', async () => {
  stopClock()
  const api = limiter({ name: 'shadow', rate: '4/h', burst: 4, mode: 'shadow', sync: { intervalMs: 1000, share: 0.5 } })
  const answers = await Promise.all(times(6, () => api.take('joe')))
  expect(answers.map(({ allowed, wouldRefuse }) => [allowed, wouldRefuse])).toEqual([
    ...times(4, () => [true, undefined]),
    ...times(2, () => [true, true]),
  ])
  await api.setMode('enforce')
  expect((await api.take('joe')).allowed).toBe(false)
})

test('tiers have shares of their own, also where the tier is looked up', async () => {
  stopClock()
  const tierOf = vi.fn(async () => 'free' as string | undefined)
  const tiers = { free: { burst: 2 } }
  const sync = { intervalMs: 1000, share: 1 }
  const api = limiter({ name: 'tiers', rate: '10/h', burst: 10, tiers, tierOf, sync })
  expect(countAllowed(await Promise.all(times(5, () => api.take('joe'))))).toBe(2)
  tierOf.mockImplementation(async () => undefined)
  expect(await api.take('joe')).toMatchObject({ allowed: true, remaining: 9 })
})

test('it leases for so many keys, and drops the oldest', async () => {
  stopClock()
  const sync = { intervalMs: 1000, maxLocalKeys: 2 }
  const api = limiter({ name: 'many', rate: '100/h', burst: 100, sync })
  for (const key of ['a', 'b', 'c']) await api.take(key)
  expect(await sentBy(() => Promise.all(['b', 'c'].map((key) => api.take(key))))).toBe(0)
  expect(await sentBy(() => api.take('a'))).toBe(1)
})

test('who still waits for a share that was dropped is charged for what it asked, and leaves nothing in memory', async () => {
  stopClock()
  const sync = { intervalMs: 1000, maxLocalKeys: 1 }
  const api = limiter({ name: 'replaced', rate: '100/h', burst: 100, sync })
  await Promise.all([api.take('a'), api.take('a'), api.take('a', { cost: 20 }), api.take('b')])
  // The whole share that was under way, and then one and twenty.
  expect((await api.peek('a')).remaining).toBe(100 - 10 - 1 - 20)
})

test('keys of one name share nothing with others that look alike', async () => {
  stopClock()
  const api = limiter({ name: 'alike', rate: '2/h', burst: 2, sync: { intervalMs: 1000, share: 1 } })
  const same = [
    ['7', 7, ['7']],
    [['a', 'b']],
    ['a:b'],
    ['::a'],
    [['', 'a'].join(':')],
    ['#'],
    ['x'.repeat(65)],
  ] as const
  for (const keys of same) {
    const [first] = keys
    expect([first, await api.take(first as string)]).toEqual([first, expect.objectContaining({ remaining: 1 })])
    for (const key of keys.slice(1)) expect((await api.take(key as string)).limit).toBe(2)
    expect([first, (await api.take(first as string)).allowed]).toEqual([first, keys.length === 1])
  }
})

test('all that wait for a lease that fails are answered when it does, as onError says', async () => {
  const proxy = await startProxy(redis.url)
  try {
    const far = redis.client(connectionOptions(proxy.url))
    await far.ping()
    const onFailure = vi.fn()
    const options = { prefix: redis.prefix, rate: '10/h', burst: 10, sync: { intervalMs: 1000 }, timeoutMs: 200 }
    const throwing = createLimiter(far, { ...options, name: 'throwing' })
    const allowing = createLimiter(far, { ...options, name: 'allowing', onError: 'allow', onFailure })
    proxy.blackhole()
    const running = new RunningTime()
    const [errors, answers] = await Promise.all([
      Promise.allSettled(times(20, () => throwing.take('joe'))),
      Promise.all(times(20, () => allowing.take('joe'))),
    ])
    // One deadline for all of them, and not one after another.
    expect(running.ms).toBeLessThan(20 * 200)
    for (const error of errors) expect(error).toMatchObject({ reason: expect.any(LimiterUnavailableError) })
    expect(answers.filter(({ allowed, undecided }) => allowed && undecided)).toHaveLength(20)
    expect(onFailure).toHaveBeenCalledTimes(20)
  } finally {
    await proxy.stop()
  }
})
