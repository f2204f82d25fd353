import { beforeEach, describe, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { concurrency, HeldLoop, ok, pause, slow } from './support/held-loop.ts'

// Pauses, probes and limits of running jobs: the scripts are the real ones, only their clock is held.
const redis = useRedis(import.meta.url)
const loop = new HeldLoop(redis, 'pauses')
const client = redis.client()

beforeEach(() => loop.queue.reset({ rate: '200/s' }))

describe('a pause', () => {
  test('is never shortened, neither by a shorter one nor by an older answer', async () => {
    await loop.tell(pause(5000))
    await loop.pass(1000)
    const { changes } = await loop.tell(pause(1000))
    expect(changes.filter(({ kind }) => kind === 'pause')).toEqual([])
    await loop.tell(pause(3999), { sentUs: loop.nowUs - 2_000_000 })
    expect(loop.pausedMs).toBe(4000)
    await loop.tell(pause(4001), { sentUs: loop.nowUs - 2_000_000 })
    expect(loop.pausedMs).toBe(4001)
  })

  test('ends when the meter is told to go on', async () => {
    await loop.tell(pause(5000, true))
    await loop.queue.backend.store.pause({ kind: 'clear' })
    await loop.fill(3)
    expect(await loop.depart(3, 50_000)).toHaveLength(3)
  })

  test.each([
    [1000, 0, 1000],
    [1000, 1, 1100],
    [1000, 0.5, 1050],
    [20_000, 1, 22_000],
    [50_000, 1, 55_000],
    [600_000, 1, 605_000],
    [90_000_000, 0, 86_400_000],
  ])('of %i ms with a jitter of %d lasts %i ms', async (forMs, jitter, lasts) => {
    await loop.tell(pause(forMs), { jitter })
    expect(loop.pausedMs).toBe(lasts)
  })

  test.each([0, 0.5])('of %d ms is one without a time', async (forMs) => {
    await loop.tell(pause(forMs))
    expect(loop.pausedMs).toBe(1000)
  })
})

describe('pauses without a time', () => {
  async function next(): Promise<number> {
    await loop.pass(2_000_000)
    await loop.tell(pause(), { adapt: false })
    return loop.pausedMs
  }

  test('double in a row, up to a quarter of an hour', async () => {
    const seen = []
    for (let i = 0; i < 12; i++) seen.push(await next())
    expect(seen).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900].map((s) => s * 1000))
  })

  test('count once for all answers to what departed before', async () => {
    const sentUs = loop.nowUs
    for (let i = 0; i < 5; i++) await loop.tell(pause(), { sentUs, adapt: false })
    expect(loop.pausedMs).toBe(1000)
    expect(await next()).toBe(2000)
  })

  test('begin anew after a call that went well, if it departed after the last one', async () => {
    await next()
    const { changes } = await loop.tell(ok(), { sentUs: loop.nowUs - 1 })
    expect(changes).toEqual([])
    expect(await next()).toBe(2000)
    await loop.pass(2000)
    await loop.tell(ok())
    expect(loop.shape.feedback.pauses).toBeUndefined()
    expect(await next()).toBe(1000)
  })
})

describe('after a hard pause', () => {
  beforeEach(async () => {
    await loop.fill(20)
    await loop.tell(pause(1000, true), { adapt: false, sentUs: loop.nowUs - 1 })
  })

  test('one job goes first, and the others once it went well', async () => {
    expect(await loop.depart(5, 50_000)).toEqual([])
    await loop.pass(1000)
    expect(await loop.depart(5, 50_000)).toEqual([0])
    await loop.pass(500)
    expect(await loop.depart(5, 50_000)).toEqual([])
    // What departed before the pause tells nothing of how it is now.
    await loop.tell(ok(), { sentUs: loop.nowUs - 1_500_001 })
    expect(await loop.depart(5, 50_000)).toEqual([])
    const { changes } = await loop.tell(ok(), { sentUs: loop.nowUs - 500_000 })
    expect(changes).toMatchObject([{ kind: 'resumed' }])
    expect(await loop.depart(5, 50_000)).toEqual([0, 5000, 10_000, 15_000, 20_000])
  })

  test('the others wait for 10 s where the probe says nothing', async () => {
    await loop.pass(1000)
    expect(await loop.depart(5, 50_000)).toEqual([0])
    await loop.pass(9949)
    expect(await loop.depart(5, 50_000)).toEqual([])
    await loop.pass(51)
    expect(await loop.depart(5, 50_000)).toHaveLength(5)
  })

  test('a probe that is refused arms another', async () => {
    await loop.pass(1000)
    await loop.depart(5, 50_000)
    await loop.tell(pause(1000, true), { adapt: false })
    await loop.pass(1000)
    expect(await loop.depart(5, 50_000)).toEqual([0])
    expect(await loop.depart(5, 50_000)).toEqual([])
  })

  test('that is soft all go', async () => {
    await loop.queue.reset({ rate: '200/s' })
    await loop.fill(5)
    await loop.tell(pause(1000), { adapt: false })
    await loop.pass(1000)
    expect(await loop.depart(5, 50_000)).toHaveLength(5)
  })
})

describe('a queue without a rate', () => {
  beforeEach(() => loop.queue.reset({ burst: 1 }))

  test('pauses where it would have to slow down', async () => {
    await loop.tell(slow({ factor: 0.7 }))
    expect([loop.rate, loop.pausedMs]).toEqual([undefined, 1000])
  })

  test('pauses, and keeps going at no rate', async () => {
    await loop.fill(3)
    await loop.tell(pause(1000))
    expect(await loop.depart(3, 50_000)).toEqual([])
    await loop.pass(1000)
    expect(await loop.depart(3, 50_000)).toEqual([0, 0, 0])
    expect(loop.rate).toBeUndefined()
  })

  test('has the rate that somebody sets, until its time', async () => {
    await loop.tell(slow({ rate: { limit: 50, period: 1000 }, ttlMs: 5000 }))
    expect(loop.rate).toBe(50)
    await loop.pass(5000)
    expect(loop.rate).toBeUndefined()
  })
})

describe('a limit of running jobs', () => {
  const bullmq = () => client.hget(`${loop.queue.base}meta`, 'concurrency')

  test.each([
    [undefined, 3, '3', null],
    [10, 3, '3', '10'],
    [2, 3, '2', '2'],
  ])('beside %s of the shape, %i makes %s; after its time it is %s', async (configured, limit, during, after) => {
    await loop.queue.reset({ rate: '200/s', ...(configured && { concurrency: configured }) })
    await loop.tell(concurrency(limit, 5000), { adapt: false })
    expect([await bullmq(), loop.shape.number('concurrency')]).toEqual([during, Number(during)])
    await loop.pass(4999)
    expect(await bullmq()).toBe(during)
    await loop.pass(1)
    expect(await bullmq()).toBe(after)
  })

  test('holds for jobs', async () => {
    await loop.fill(5)
    await loop.tell(concurrency(2, 5000), { adapt: false })
    expect(await loop.depart(5, 50_000)).toHaveLength(2)
  })
})
