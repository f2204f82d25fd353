import { beforeEach, describe, expect, test } from 'vitest'
import type { AdaptOptions } from '../../src/feedback/options.ts'
import { useRedis } from '../support/redis.ts'
import { HeldLoop, ok, pause } from './support/held-loop.ts'

// The arithmetic of the rate: the scripts are the real ones, only their clock is held.
const redis = useRedis(import.meta.url)
const client = redis.client()
const loop = new HeldLoop(redis, 'loop')

beforeEach(() => loop.queue.reset({ rate: '200/s' }))

/** What of the search is in Redis. */
async function pace(): Promise<Record<string, unknown> | undefined> {
  const text = await client.hget(`${loop.queue.base}meta:shape`, 'feedback')
  return JSON.parse(text ?? '{}').pace
}

/** The other side refuses, soon after the last change. */
async function refused(adapt: boolean | AdaptOptions = true): Promise<void> {
  await loop.pass(10)
  await loop.tell(pause(1), { adapt })
}

/** A tenth of a quiet period, after the pause that came with a refusal. */
const tenth = () => loop.quiet(1010)

/** As many as lead to 96 % of the wall; nothing is waited for there. */
async function backToWall(): Promise<void> {
  for (let i = 0; i < 6; i++) await tenth()
}

/** The rate after each of so many quiet periods, to a hundredth. */
async function periods(count: number): Promise<number[]> {
  const seen = []
  for (let i = 0; i < count; i++) {
    await loop.quiet(10_010)
    seen.push(Math.round((loop.rate as number) * 100) / 100)
  }
  return seen
}

describe('the rate falls', () => {
  test.each([1, 3, 20])('once, however many answers (%i) came to what departed before', async (answers) => {
    const sentUs = loop.nowUs
    await loop.pass(20)
    for (let i = 0; i < answers; i++) {
      await loop.tell(pause(1000), { sentUs })
      await loop.pass(1)
    }
    expect(loop.rate).toBe(140)
  })

  test('again for an answer to what departed after', async () => {
    await loop.tell(pause(1000))
    await loop.pass(1500)
    const { changes } = await loop.tell(pause(1000))
    expect(changes).toMatchObject([{ kind: 'pause' }, { kind: 'slow', from: 140, rate: 98, source: 'status' }])
    expect(loop.rate).toBe(98)
  })

  test('once for what departed after, but had been granted before', async () => {
    await loop.fill(10)
    const slots = await loop.depart(10, 50_000)
    expect(slots.at(-1)).toBe(45_000)
    await loop.pass(20)
    await loop.tell(pause(1), { sentUs: loop.nowUs - 20_000 })
    for (const ahead of [5000, 25_000]) await loop.tell(pause(1), { sentUs: loop.nowUs + ahead })
    expect(loop.rate).toBe(140)
    await loop.tell(pause(1), { sentUs: loop.nowUs + 25_001 })
    expect(loop.rate).toBe(98)
  })

  test.each([
    ['a hundredth of the configured rate', {}, 2],
    ['the floor that is given', { floor: '50/s' }, 50],
    ['by as much as is given', { decrease: 0.99 }, 163.581],
  ])('not below %s', async (_what, adapt, lowest) => {
    for (let i = 0; i < 20; i++) {
      await loop.pass(10)
      await loop.tell(pause(1), { adapt })
    }
    expect(loop.rate).toBeCloseTo(lowest, 2)
  })

  test('only where the worker adapts', async () => {
    await loop.tell(pause(1000), { adapt: false })
    expect(loop.rate).toBe(200)
  })
})

describe('the rate rises', () => {
  test('each tenth of a quiet period by steps of 1 % that double, up to 96 % of what was refused', async () => {
    await loop.tell(pause(1))
    const seen = []
    for (const ms of [999, 3, 1000, 1000, 1000, 1000, 1000]) {
      await loop.quiet(ms)
      seen.push(loop.rate)
    }
    // 2, 4, 8 and 16 % of itself; 32 % would lead past 192.
    expect(seen).toEqual([140, 142.8, 148.512, 160.393, 186.056, 192, 192])
  })

  test('past the wall by 1 % of the configured rate, then by steps that double; the configured rate is the end', async () => {
    for (let i = 0; i < 3; i++) await refused()
    await backToWall()
    // 98/s was refused: 96 % of it, and after two periods there 2/s more, then 4, 8, 16, 32 and 64.
    expect(await periods(8)).toEqual([94.08, 96.08, 100.08, 108.08, 124.08, 156.08, 200, 200])
    expect(await pace()).toBeUndefined()
  })

  test.each([
    ['half of it is used', 700, 1, 142.8],
    ['less is used', 699, 1, 140],
    ['half of it is used, by few jobs that cost much', 140, 5, 142.8],
  ])('where %s', async (_what, oks, cost, rate) => {
    await loop.queue.reset({ rate: '200/s', burst: 5 })
    for (let i = 0; i < 200; i++) await loop.queue.add({ cost })
    await loop.tell(pause(1))
    await loop.pass(1)
    await loop.depart(200, 60_000_000)
    await loop.quiet(10_000, oks)
    expect(loop.rate).toBe(rate)
  })

  test('after a pause the quiet begins with its end', async () => {
    await loop.tell(pause(60_000 - 1))
    await loop.quiet(60_000 - 2, 1e6)
    await loop.quiet(1000, 140)
    expect(loop.rate).toBe(140)
    await loop.quiet(2, 1)
    expect(loop.rate).toBe(142.8)
  })

  test('it climbs no more where the rate is gone', async () => {
    await loop.tell(pause(1))
    await loop.queue.backend.store.override({ rate: null }, 'test', 'test', undefined)
    await loop.quiet(2001, 1000)
    expect(loop.rate).toBeUndefined()
    expect(await pace()).toBeUndefined()
  })

  test('it neither climbs nor is forgotten while a slower rate is configured', async () => {
    await loop.tell(pause(1))
    await loop.queue.backend.store.override({ rate: [100, 1000] }, 'test', 'test', undefined)
    for (let i = 0; i < 5; i++) await loop.quiet(10_001)
    expect(loop.rate).toBe(100)
    await loop.queue.backend.store.override({ rate: { clear: true } }, 'test', 'test', undefined)
    expect(loop.rate).toBe(140)
  })

  test('nothing rises where a floor above the configured rate let nothing fall', async () => {
    const changes = [...(await loop.tell(pause(1), { adapt: { floor: '300/s' } })).changes]
    for (let i = 0; i < 2; i++) {
      await loop.pass(10_010)
      changes.push(...(await loop.tell(ok(), { oks: 2000 })).changes)
    }
    expect(changes.map(({ kind }) => kind)).toEqual(['pause'])
    expect(await pace()).toBeUndefined()
  })
})

describe('what held', () => {
  /** 192/s held for a quiet period, until it was refused: the rate is 134.4/s. */
  async function refusedAfterItHeld(): Promise<void> {
    await refused()
    await backToWall()
    await loop.quiet(10_001)
    await refused()
  }

  test('is returned to in one step, 96 % of it; no more once that was refused before it held', async () => {
    await refusedAfterItHeld()
    await tenth()
    expect(loop.rate).toBe(184.32)
    await refused()
    await tenth()
    expect(loop.rate).toBeCloseTo(184.32 * 0.7 * 1.02, 2)
  })

  test('is what was returned to, once that held', async () => {
    await refusedAfterItHeld()
    await tenth()
    await loop.quiet(10_001)
    await refused()
    await tenth()
    expect(loop.rate).toBeCloseTo(184.32 * 0.96, 2)
  })

  test.each([
    ['refused once, below it', 114.08, 0.1, 1],
    ['refused on the way down, still above it', 194.08, 0.5, 3],
  ])('is returned to from far above it: %s', async (_what, passed, increase, refusals) => {
    for (let i = 0; i < 3; i++) await refused({ increase })
    await backToWall()
    expect(await periods(2)).toEqual([94.08, passed])
    for (let i = 0; i < refusals; i++) await refused({ increase })
    await tenth()
    expect(loop.rate).toBeCloseTo(94.08 * 0.96, 2)
  })

  test('is known through a slow start that ends well', async () => {
    await refusedAfterItHeld()
    await loop.tell(pause(60_000))
    await loop.pass(60_000)
    await backToWall()
    const [held] = await periods(1)
    await refused()
    await tenth()
    expect(loop.rate).toBeCloseTo((held as number) * 0.96, 2)
  })

  test('is not, once a slow start was refused', async () => {
    await refusedAfterItHeld()
    await loop.tell(pause(60_000))
    await loop.pass(60_000)
    await tenth()
    const doubled = loop.rate as number
    await refused()
    await tenth()
    expect(loop.rate).toBeCloseTo(doubled * 0.7 * 1.02, 2)
  })
})

describe('patience', () => {
  const patience = async () => (await pace())?.patience

  test('doubles each time the same wall holds, up to 8', async () => {
    await refused()
    const seen = [await patience()]
    for (let i = 0; i < 4; i++) {
      await backToWall()
      await refused()
      seen.push(await patience())
    }
    expect(seen).toEqual([2, 4, 8, 8, 8])
  })

  test('doubles also where a step led far past the wall', async () => {
    const adapt = { increase: 0.1 }
    for (let i = 0; i < 3; i++) await refused(adapt)
    expect(await patience()).toBe(2)
    await backToWall()
    await periods(2)
    await refused(adapt)
    expect(await patience()).toBe(4)
  })

  test('starts anew at another wall', async () => {
    await refused()
    await backToWall()
    await refused()
    expect(await patience()).toBe(4)
    await refused()
    expect(await patience()).toBe(2)
  })

  test('is how many quiet periods pass before the wall is tried', async () => {
    await refused()
    await backToWall()
    await refused()
    await backToWall()
    // Refused at 200 and at 192/s: 96 % of that for four periods.
    expect(await periods(6)).toEqual([184.32, 184.32, 184.32, 186.32, 190.32, 198.32])
  })
})

describe('slow start', () => {
  test('after a pause of a minute the rate doubles from an eighth up to 96 % of what was refused', async () => {
    const { changes } = await loop.tell(pause(60_000))
    expect(changes.map(({ kind, rate }) => [kind, rate])).toEqual([
      ['pause', undefined],
      ['slow', 140],
      ['slow', 25],
    ])
    const seen = [loop.rate]
    await loop.pass(60_000)
    for (let i = 0; i < 5; i++) {
      await loop.quiet(2001)
      seen.push(loop.rate)
    }
    expect(seen).toEqual([25, 50, 100, 192, 192, 192])
  })

  test('it is one, however often the pause is prolonged', async () => {
    const sentUs = loop.nowUs
    for (let i = 0; i < 3; i++) {
      await loop.tell(pause(60_000), { sentUs })
      await loop.pass(1)
    }
    expect(loop.rate).toBe(25)
  })

  test('none after a shorter pause', async () => {
    await loop.tell(pause(59_999))
    expect(loop.rate).toBe(140)
  })
})
