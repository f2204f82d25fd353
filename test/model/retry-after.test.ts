import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { QueueFullError } from '../../src/errors.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue, START_US } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const queue = new HeldQueue(redis, redis.client(), 'retry')
afterAll(() => queue.close())

const HORIZON_US = 50_000

/** Adds a job; when there is no place, answers when to come back. */
async function tryAdd(): Promise<number | undefined> {
  try {
    await queue.add()
    return undefined
  } catch (error) {
    if (error instanceof QueueFullError) return error.retryAfterMs
    throw error
  }
}

test('retryAfterMs is the first millisecond at which a place is free, if jobs depart as granted', async () => {
  const scenario = fc.record({
    limit: fc.integer({ min: 1, max: 900 }),
    burst: fc.integer({ min: 1, max: 4 }),
    capacity: fc.integer({ min: 1, max: 6 }),
    costs: fc.array(fc.constantFrom(1, 1, 2, 3.5), { minLength: 30, maxLength: 30 }),
    pauseMs: fc.constantFrom(0, 0, 700),
    passedUs: fc.integer({ min: 0, max: 100_000 }),
  })
  let refusals = 0
  await fc.assert(
    fc.asyncProperty(scenario, async ({ limit, burst, capacity, costs, pauseMs, passedUs }) => {
      await queue.reset({ rate: `${limit}/s`, burst, capacity })
      const pending = costs.map((cost) => Math.min(cost, burst))
      await departAndFill(pending)
      await queue.advanceTo(queue.nowUs + passedUs)
      if (pauseMs) await queue.backend.store.pause({ kind: 'for', ms: pauseMs, reason: 'test' })
      await departAndFill(pending)

      const refusedAt = queue.nowUs
      const retryAfterMs = await tryAdd()
      if (retryAfterMs === undefined) return
      refusals += 1
      if (retryAfterMs > 1) {
        await queue.advanceTo(refusedAt + (retryAfterMs - 1) * 1000)
        await queue.depart(100, HORIZON_US)
        expect(await tryAdd(), `one ms early: at ${queue.nowUs}, refused at ${refusedAt}`).toBe(1)
      }
      await queue.advanceTo(refusedAt + retryAfterMs * 1000)
      await queue.depart(100, HORIZON_US)
      expect(await tryAdd(), `after ${retryAfterMs} ms`).toBeUndefined()
    }),
    { numRuns: 100 },
  )
  expect(refusals).toBeGreaterThan(50)
})

test('a slot in the middle of a microsecond is waited for to its end', async () => {
  await queue.reset({ rate: '3/s', capacity: 1 })
  for (const us of [0, 300_000, 650_000]) {
    await queue.advanceTo(START_US + us)
    await queue.add()
    await queue.depart(1, HORIZON_US)
  }
  await queue.add()
  // Three intervals, each rounded up to 1/1024 µs, end a little after the second.
  await queue.advanceTo(START_US + 700_000)
  expect(await tryAdd()).toBe(251)
})

/** Takes what may leave now and fills the queue up, until nothing moves: a worker with room, and eager producers. */
async function departAndFill(costs: number[]): Promise<void> {
  for (;;) {
    while (costs.length > 0) {
      try {
        await queue.add({ cost: costs[0] as number })
      } catch {
        break
      }
      costs.shift()
    }
    const { grants } = await queue.depart(100, HORIZON_US)
    if (grants.length === 0) return
  }
}
