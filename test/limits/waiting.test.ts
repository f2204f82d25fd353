import { expect, test } from 'vitest'
import { LimitExceededError } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { keysWith, times, useLimiters } from './support/limiters.ts'

const redis = useRedis(import.meta.url)
const { client, limiter } = useLimiters(redis)

/** How many hold a turn that has not come yet. */
const countWaiting = (name: string, code = 'g') => client.zcard(`${redis.prefix}:limit:{${name}}:${code}:joe~waiting`)
const untilWaiting = (name: string, count: number, code = 'g') =>
  expect.poll(() => countWaiting(name, code), { interval: 2 }).toBe(count)

const buckets = ['gcra', 'token-bucket', 'leaky-bucket'] as const
const windows = ['fixed-window', 'sliding-window-log', 'sliding-window-counter'] as const

test.each(buckets)('%s: turns come in the order of the waiters, an interval apart', async (algorithm) => {
  const api = limiter({ name: `order-${algorithm}`, algorithm, rate: '20/s' })
  const startMs = performance.now()
  const turns: { place: number; afterMs: number }[] = []
  const waits = times(6, async (place) => {
    const answer = await api.wait('joe')
    turns.push({ place, afterMs: performance.now() - startMs })
    return answer
  })
  const answers = await Promise.all(waits)
  expect(turns.map(({ place }) => place)).toEqual([0, 1, 2, 3, 4, 5])
  for (const { place, afterMs } of turns) expect(afterMs).toBeGreaterThanOrEqual(place * 50 - 1)
  expect(new Set(answers.map(({ allowed, retryAfterMs }) => `${allowed} ${retryAfterMs}`))).toEqual(new Set(['true 0']))
})

test.each(windows)('%s: the turn of whoever waits is in a later window', async (algorithm) => {
  const period = 300
  const api = limiter({ name: `later-${algorithm}`, algorithm, rate: { limit: 2, period } })
  const { resetAt } = await api.take('joe', { cost: 2 })
  const startMs = performance.now()
  const { retryAfterMs } = await api.peek('joe')
  await Promise.all([api.wait('joe'), api.wait('joe')])
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(retryAfterMs - 1)
  expect((await api.peek('joe')).resetAt.getTime()).toBeGreaterThan(resetAt.getTime())
})

test('a cost of several units waits for all of them', async () => {
  const api = limiter({ name: 'cost', rate: '20/s', burst: 5 })
  const startMs = performance.now()
  await api.wait('joe', { cost: 5 })
  await api.wait('joe', { cost: 4 })
  expect(performance.now() - startMs).toBeGreaterThanOrEqual(199)
})

test('a turn that would come too late is refused, and charges nothing', async () => {
  const api = limiter({ name: 'late', rate: '1/min' })
  const { resetAt } = await api.wait('joe', { timeoutMs: 0 })
  const error = await api.wait('joe', { timeoutMs: 20_000 }).catch((reason: unknown) => reason)
  expect(error).toBeInstanceOf(LimitExceededError)
  expect(error).toMatchObject({
    limitName: 'late',
    message: expect.stringMatching(/no turn within 20000 ms; try again in/),
  })
  // With the same patience it would come in time then.
  expect((error as LimitExceededError).retryAfterMs).toBeLessThanOrEqual(40_000)
  expect((error as LimitExceededError).retryAfterMs).toBeGreaterThan(0)
  expect(await api.peek('joe')).toMatchObject({ allowed: false, resetAt })
  expect(await countWaiting('late')).toBe(0)
})

test('who takes meanwhile does not overtake those that wait', async () => {
  const api = limiter({ name: 'overtake', rate: '2/s' })
  await api.wait('joe')
  const waiting = api.wait('joe')
  await untilWaiting('overtake', 1)
  const refused = await api.take('joe')
  // Both the waiter's slot and its own are ahead.
  expect(refused.allowed).toBe(false)
  expect(refused.retryAfterMs).toBeGreaterThan(500)
  expect((await waiting).allowed).toBe(true)
})

test('a signal that was given before stops it before anything is asked', async () => {
  const api = limiter({ name: 'before', rate: '1/h' })
  await expect(api.wait('joe', { signal: AbortSignal.abort(new Error('stopped')) })).rejects.toThrow('stopped')
  expect(await keysWith(client, '{before}:')).toEqual([])
})

test('only so many may wait; one more is refused with the time at which a place is free', async () => {
  const api = limiter({ name: 'places', rate: '1/min' })
  await api.wait('joe')
  const stop = new AbortController()
  const options = { maxWaiting: 2, signal: stop.signal }
  const waits = times(2, () => api.wait('joe', options).catch(() => 'stopped'))
  await untilWaiting('places', 2)
  const error = await api.wait('joe', options).catch((reason: unknown) => reason)
  expect(error).toBeInstanceOf(LimitExceededError)
  expect((error as LimitExceededError).retryAfterMs).toBeLessThanOrEqual(60_000)
  expect((error as LimitExceededError).message).toContain('2 wait already')
  expect((await api.wait('ann', options)).allowed).toBe(true)
  stop.abort()
  expect(await Promise.all(waits)).toEqual(['stopped', 'stopped'])
})

test('with no places to wait, a turn that is not free now is refused', async () => {
  const api = limiter({ name: 'no-places', rate: '1/min' })
  expect((await api.wait('joe', { maxWaiting: 0 })).allowed).toBe(true)
  await expect(api.wait('joe', { maxWaiting: 0 })).rejects.toThrow(LimitExceededError)
})

test('wrong options are refused', async () => {
  const api = limiter({ name: 'options', rate: '1/h' })
  await expect(api.wait('joe', { timeoutMs: -1 })).rejects.toThrow('timeoutMs must be a number of ms >= 0; got -1')
  await expect(api.wait('joe', { maxWaiting: 0.5 })).rejects.toThrow('maxWaiting must be a whole number >= 0; got 0.5')
  await expect(api.wait('joe', { nodelay: -1 })).rejects.toThrow('nodelay must be a whole number >= 0; got -1')
})
