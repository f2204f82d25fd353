import { afterEach, describe, expect, test } from 'vitest'
import { useRedis } from '../../../../test/support/redis.ts'
import type { Arrival } from '../../src/simulate/arrival.ts'
import { encodeGroupSettings } from '../../src/simulate/group-settings.ts'
import { arrivalsOf } from '../../src/simulate/load.ts'
import { ScratchQueue } from '../../src/simulate/scratch-queue.ts'
import { simulate } from '../../src/simulate/simulation.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const START_US = 1_764_000_000_000_017

async function scratchKeys(): Promise<string[]> {
  return client.keys(`{${redis.prefix}*`)
}

afterEach(async () => expect(await scratchKeys()).toEqual([]))

function arrival(afterUs: number, more: Partial<Arrival> = {}): Arrival {
  return { atUs: START_US + afterUs, cost: 1, priority: 0, delayMs: 0, ...more }
}

describe('the scratch queue', () => {
  const fields = {
    rate: [40, 1000] as const,
    burst: 3,
    capacity: 12,
    limits: JSON.stringify([
      { algorithm: 'sliding-window-log', mode: 'enforce', limit: 9, window: 1e6, name: 'w', state: ':l:*' },
    ]),
  }
  const settings = {
    prefix: redis.prefix,
    fields,
    groups: {},
    places: 4,
    jobUs: 60_000,
    startUs: START_US,
    sliceUs: 100_000,
  }
  const arrivals = Array.from({ length: 60 }, (_, i) =>
    arrival(i * 9000, { cost: 1 + (i % 3), priority: i % 4 === 3 ? 2 : 0, delayMs: i % 7 === 6 ? 40 : 0 }),
  )

  async function all(steps: number, budgetMs?: number): Promise<unknown> {
    const scratch = new ScratchQueue(client, settings)
    const found = {
      departed: [] as number[],
      refused: [] as number[],
      slices: [] as number[],
      longest: 0,
      placeBound: 0,
    }
    try {
      for (let next = 0, done = false; !done; ) {
        const part = arrivals.slice(next, next + steps)
        const reply = await scratch.run({
          first: next,
          arrivals: part,
          isLast: next + part.length === arrivals.length,
          steps,
          ...(budgetMs !== undefined && { budgetMs }),
        })
        found.departed.push(...reply.departed)
        found.refused.push(...reply.refused)
        found.slices.push(...reply.slices)
        Object.assign(found, { longest: reply.longest, placeBound: reply.placeBound })
        next += reply.taken
        done = reply.done
      }
    } finally {
      await scratch.close()
    }
    return found
  }

  test('it does not matter into how many calls it is parted', async () => {
    const whole = await all(10_000)
    expect(await all(1)).toEqual(whole)
    expect(await all(7)).toEqual(whole)
    expect(await all(10_000, 0)).toEqual(whole)
    expect((whole as { refused: number[] }).refused.length).toBeGreaterThan(4)
  })

  test('a call ends once its time is over, and says how far it came', async () => {
    const scratch = new ScratchQueue(client, settings)
    const call = { first: 0, arrivals, isLast: true, steps: 10_000 }
    const cut = await scratch.run({ ...call, budgetMs: 0 })
    expect(cut).toMatchObject({ done: false })
    expect(cut.steps).toBeLessThan(arrivals.length)
    const rest = await scratch.run({ ...call, first: cut.taken, arrivals: arrivals.slice(cut.taken), budgetMs: 60_000 })
    expect(rest).toMatchObject({ done: true, taken: arrivals.length - cut.taken })
    await scratch.close()
  })

  const grouped = { ...fields, groups: '{"rate":[5,1000]}' }
  const setting = encodeGroupSettings({ a: { concurrency: 2, weight: 3, ttlMs: 50 } }, { groups: {} }, START_US)
  test.each([
    ['', settings],
    [' with groups', { ...settings, fields: grouped, groups: setting }],
    [' with groups in mode off', { ...settings, fields: { ...grouped, mode: 'off' as const }, groups: setting }],
  ])('every key%s expires by itself, and closing removes them at once', async (_with, given) => {
    const scratch = new ScratchQueue(client, given)
    const all = arrivals.slice(0, 40).map((one) => (given === settings ? one : { ...one, group: { id: 'a' } }))
    await scratch.run({ first: 0, arrivals: all, isLast: false, steps: 100 })
    const keys = await scratchKeys()
    expect(keys.length).toBeGreaterThan(5)
    expect(keys.every((key) => key.startsWith(scratch.base))).toBe(true)
    for (const key of keys) expect(await client.pttl(key), key).toBeGreaterThan(0)
    await scratch.close()
    expect(await scratchKeys()).toEqual([])
  })

  test('a simulation that is broken off leaves nothing', async () => {
    const controller = new AbortController()
    const load = arrivalsOf({ parts: [{ rate: '5/s', forMs: 600_000 }] })
    const broken = simulate(client, { rate: '4/s' }, load, {
      prefix: redis.prefix,
      signal: controller.signal,
      onProgress: () => controller.abort(),
    })
    await expect(broken).rejects.toThrow('aborted')
  })
})
