import { beforeEach, describe, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { HeldLoop, ok, slow } from './support/held-loop.ts'

// Rates that the other side's words stand for: the scripts are the real ones, only their clock is held.
const redis = useRedis(import.meta.url)
const loop = new HeldLoop(redis, 'told')

beforeEach(() => loop.queue.reset({ rate: '200/s' }))

describe('a quota', () => {
  test('is spread over the time until its reset, less what is under way, and ends then', async () => {
    await loop.fill(3)
    await loop.depart(3, 50_000)
    // One of the three is the one that was answered.
    const { changes } = await loop.tell(ok({ remaining: 100, resetMs: 10_000 }))
    expect(loop.rate).toBe(9.8)
    expect(changes).toMatchObject([{ kind: 'quota', rate: 9.8 }])
    await loop.pass(9999)
    expect(loop.rate).toBe(9.8)
    await loop.pass(1)
    expect(loop.rate).toBe(200)
  })

  test('that lasts at the configured rate changes nothing, and ends one that did not', async () => {
    await loop.tell(ok({ remaining: 2000, resetMs: 10_000 }))
    expect(loop.rate).toBe(200)
    await loop.tell(ok({ remaining: 1000, resetMs: 10_000 }))
    expect(loop.rate).toBe(100)
    await loop.tell(ok({ remaining: 2000, resetMs: 10_000 }))
    expect(loop.rate).toBe(200)
  })

  test.each([true, false])('that is used up is a pause until its reset (adapt: %s)', async (adapt) => {
    for (const resetMs of [0, 1, 10_000]) {
      await loop.tell(ok({ remaining: 0, resetMs }), { adapt })
      expect(loop.pausedMs).toBe(resetMs)
    }
    expect(loop.rate).toBe(200)
  })

  test('of a limit that is used up holds that limit until its reset, and takes nothing of it then', async () => {
    await loop.queue.reset({ limits: [{ name: 'all', algorithm: 'token-bucket', rate: '1/h', burst: 2 }] })
    await loop.fill(2)
    await loop.tell({ ...ok({ remaining: 0, resetMs: 1000 }), scope: { limit: 'all' } })
    expect(await loop.depart(2)).toEqual([])
    await loop.pass(1000)
    expect(await loop.depart(2)).toEqual([0, 0])
  })

  test('slows nothing without adapt', async () => {
    await loop.tell(ok({ remaining: 10, resetMs: 10_000 }), { adapt: false })
    expect([loop.rate, loop.pausedMs]).toEqual([200, 0])
  })
})

describe('a rate that somebody sets', () => {
  const rate = (limit: number, ttlMs: number) => slow({ rate: { limit, period: 1000 }, ttlMs })

  test('ends by itself at its time', async () => {
    await loop.tell(rate(50, 5000), { adapt: false })
    expect(loop.rate).toBe(50)
    await loop.pass(4999)
    expect(loop.rate).toBe(50)
    await loop.pass(1)
    expect(loop.rate).toBe(200)
  })

  test('is never above the configured one, and the slowest of several holds longest', async () => {
    await loop.tell(rate(1000, 5000))
    expect(loop.rate).toBe(200)
    await loop.tell(rate(50, 2000))
    await loop.tell(rate(80, 9000))
    expect(loop.rate).toBe(50)
    await loop.pass(8999)
    expect(loop.rate).toBe(50)
    await loop.pass(1)
    expect(loop.rate).toBe(200)
  })

  test('a factor with a time multiplies the rate in force, once per throttling', async () => {
    const sentUs = loop.nowUs
    for (let i = 0; i < 3; i++) await loop.tell(slow({ factor: 0.5, ttlMs: 5000 }), { adapt: false, sentUs })
    expect(loop.rate).toBe(100)
    await loop.pass(5000)
    expect(loop.rate).toBe(200)
  })
})
