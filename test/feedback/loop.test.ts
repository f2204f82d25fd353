import { beforeEach, describe, expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { HeldLoop, pause } from './support/held-loop.ts'

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
  test('soon to 95 % of the rate that was refused, then by 1 % of the configured one for each quiet period', async () => {
    await loop.tell(pause(1))
    const seen = []
    for (const ms of [1999, 3, 9999, 2, 10_000, 10_000, 10_000, 10_000, 10_000]) {
      await loop.quiet(ms)
      seen.push(loop.rate)
    }
    expect(seen).toEqual([140, 190, 190, 192, 194, 196, 198, 200, 200])
    expect(await pace()).toBeUndefined()
  })

  test('behind the wall the steps double, and the configured rate is the end', async () => {
    for (let i = 0; i < 3; i++) {
      await loop.pass(10)
      await loop.tell(pause(1))
    }
    const seen = []
    for (let i = 0; i < 13; i++) {
      await loop.quiet(10_001)
      seen.push(Math.round(loop.rate as number))
    }
    // 98/s was refused: 93.1, then the wall, then 2, 2, 4, 8, 16, 32, 64.
    expect(seen).toEqual([93, 95, 97, 99, 101, 105, 113, 129, 161, 200, 200, 200, 200])
  })

  test.each([
    ['half of it is used', 700, 1, 190],
    ['less is used', 699, 1, 140],
    ['half of it is used, by few jobs that cost much', 140, 5, 190],
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
    await loop.quiet(2000, 280)
    expect(loop.rate).toBe(140)
    await loop.quiet(2, 1)
    expect(loop.rate).toBe(190)
  })

  test('it climbs no more where the rate is gone', async () => {
    await loop.tell(pause(1))
    await loop.queue.backend.store.override({ rate: null }, 'test', 'test', undefined)
    await loop.quiet(2001, 1000)
    expect(loop.rate).toBeUndefined()
    expect(await pace()).toBeUndefined()
  })
})

describe('patience', () => {
  async function refusedAgain(): Promise<unknown> {
    await loop.pass(10)
    await loop.tell(pause(1))
    return (await pace())?.patience
  }

  /** Two steps: to 95 % of what was refused, and 1 % of the configured rate more. */
  async function backNear(): Promise<void> {
    await loop.quiet(2010)
    await loop.quiet(10_000)
  }

  test('doubles each time the same wall holds, up to 8', async () => {
    const seen = [await refusedAgain()]
    for (let i = 0; i < 4; i++) {
      await backNear()
      seen.push(await refusedAgain())
    }
    expect(seen).toEqual([1, 2, 4, 8, 8])
  })

  test('starts anew at another wall', async () => {
    await refusedAgain()
    await backNear()
    expect(await refusedAgain()).toBe(2)
    expect(await refusedAgain()).toBe(1)
  })

  test('is how many quiet periods pass before the wall is tried', async () => {
    for (let i = 0; i < 2; i++) {
      await refusedAgain()
      await backNear()
    }
    expect(await refusedAgain()).toBe(4)
    const seen = []
    for (let i = 0; i < 11; i++) {
      await loop.quiet(10_001)
      seen.push(Math.round((loop.rate as number) * 100) / 100)
    }
    // Refused at 200, 192 and 184.4/s; the way back begins at 95 % of the last.
    expect(seen).toEqual([175.18, 177.18, 179.18, 181.18, 183.18, 183.18, 183.18, 183.18, 185.18, 187.18, 191.18])
  })
})

describe('slow start', () => {
  test('after a pause of a minute the rate doubles from an eighth up to 95 % of what was refused', async () => {
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
    expect(seen).toEqual([25, 50, 100, 190, 190, 190])
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
