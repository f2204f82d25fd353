import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { CostTooHighError, createLimiter, InvalidLimitError, type LimiterOptions } from '../../src/limits/index.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { connectionOptions, useRedis } from '../support/redis.ts'
import { PATIENT, stopClock, times } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
let proxy: RedisProxy
let asked: string[][] = []
let limiter: (options: LimiterOptions) => ReturnType<typeof createLimiter>

beforeAll(async () => {
  proxy = await startProxy(redis.url)
  // It sees every command and drops the reply of none.
  void proxy.dropReplyOf((command) => {
    asked.push(command)
    return false
  })
  const client = redis.client(connectionOptions(proxy.url))
  await client.ping()
  limiter = (options) => createLimiter(client, { prefix: redis.prefix, ...PATIENT, ...options })
})

afterAll(() => proxy.stop())

afterEach(() => vi.useRealTimers())

beforeEach(() => {
  asked = []
})

const tick = (ms: number) => vi.advanceTimersByTime(ms)

test('row 22: mitigation cache, a key that is over is refused without asking Redis', async () => {
  stopClock()
  const api = limiter({ name: 'over', rate: '3/min', burst: 3, mitigation: true })
  const plain = limiter({ name: 'over-plain', rate: '3/min', burst: 3 })
  for (const { allowed } of await Promise.all(times(3, () => api.take('joe')))) expect(allowed).toBe(true)
  const first = await api.take('joe')
  expect(first.allowed).toBe(false)
  asked = []
  const refused = await Promise.all(times(1000, () => api.take('joe')))
  expect(refused.filter(({ allowed }) => allowed)).toEqual([])
  expect(asked).toEqual([])
  expect(refused[0]).toEqual(first)

  tick(5000)
  expect(await api.take('joe')).toEqual({ ...first, retryAfterMs: first.retryAfterMs - 5000 })
  tick(first.retryAfterMs - 5001)
  expect(await api.take('joe')).toEqual({ ...first, retryAfterMs: 1 })
  expect(asked).toEqual([])
  // Not for longer than Redis said: then it asks again.
  tick(1)
  await api.take('joe')
  expect(asked).toHaveLength(1)

  asked = []
  await plain.take('joe', { cost: 3 })
  for (const _ of times(10, () => 0)) await plain.take('joe')
  expect(asked.length, 'without it, each asks').toBeGreaterThan(10)
})

test('another key and a smaller cost are asked, a higher one is not', async () => {
  stopClock()
  const api = limiter({ name: 'costs', rate: '10/h', burst: 10, mitigation: true })
  await api.take('joe', { cost: 8 })
  expect((await api.take('joe', { cost: 4 })).allowed).toBe(false)
  asked = []
  expect((await api.take('joe', { cost: 5 })).allowed).toBe(false)
  expect((await api.take(['joe'], { cost: 4 })).allowed).toBe(false)
  expect(asked).toEqual([])
  expect((await api.take('joe', { cost: 1 })).allowed).toBe(true)
  expect((await api.take('ann', { cost: 4 })).allowed).toBe(true)
  expect(asked).toHaveLength(2)
  await expect(api.take('joe', { cost: 11 })).rejects.toThrow(CostTooHighError)
  await expect(api.take('joe', { cost: 0 })).rejects.toThrow('cost must be a positive number')
})

test('a reward, a reset, a lifted block and another mode end it at once', async () => {
  stopClock()
  const api = limiter({ name: 'ends', rate: '1/h', mitigation: true })
  const takes = async (key: string) => (await api.take(key)).allowed
  for (const [key, end] of [
    ['rewarded', () => api.reward('rewarded')],
    ['reset', () => api.reset('reset')],
  ] as const) {
    expect([await takes(key), await takes(key)]).toEqual([true, false])
    await end()
    expect([key, await takes(key)]).toEqual([key, true])
  }
  await api.block('blocked', 60_000)
  expect(await takes('blocked')).toBe(false)
  await api.block('blocked', 0)
  expect(await takes('blocked')).toBe(true)
  expect(await takes('blocked')).toBe(false)
  await api.setMode('shadow')
  const { allowed, wouldRefuse } = await api.take('blocked')
  expect([allowed, wouldRefuse]).toEqual([true, true])
  asked = []
  await api.take('blocked')
  expect(asked, 'in shadow nothing is remembered').toHaveLength(1)
})

test('it remembers so many keys, and forgets the oldest', async () => {
  stopClock()
  const api = limiter({ name: 'many', rate: '1/h', mitigation: { maxKeys: 2 } })
  for (const key of ['a', 'b', 'c', 'a', 'b', 'c']) await api.take(key)
  asked = []
  for (const key of ['b', 'c']) await api.take(key)
  expect(asked).toEqual([])
  await api.take('a')
  expect(asked).toHaveLength(1)
})

test('an answer of onError is not remembered', async () => {
  const onFailure = vi.fn()
  const api = limiter({ name: 'away', rate: '1/h', mitigation: true, onError: 'deny', timeoutMs: 100, onFailure })
  proxy.blackhole()
  onTestFinished(() => proxy.restore())
  for (const failures of [1, 2]) {
    expect(await api.take('joe')).toMatchObject({ allowed: false, undecided: true })
    expect(onFailure).toHaveBeenCalledTimes(failures)
  }
})

test('it is not for places that are given back elsewhere', () => {
  const create = () => limiter({ name: 'places', algorithm: 'concurrency', concurrency: 2, mitigation: true })
  expect(create).toThrow(InvalidLimitError)
  expect(create).toThrow(/mitigation decides in memory/)
  expect(() => limiter({ name: 'none', rate: '1/s', mitigation: { maxKeys: 0 } })).toThrow(
    /mitigation.maxKeys must be a whole number >= 1; got 0/,
  )
})
