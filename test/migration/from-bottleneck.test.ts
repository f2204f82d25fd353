import { expect, test } from 'vitest'
import { CostTooHighError, QueueFullError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, jobs, rounding, Workshop } from '../worker/support.ts'

// Each row of the table in docs/migrate.md: what Bottleneck's option asks for is what the shape does.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('minTime: no start sooner than so many ms after the last', async () => {
  const minTime = 30
  const queue = shop.queue({ rate: { limit: 1, period: minTime } })
  await queue.addBulk(jobs(6))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 6 }))
  const slots = (await departed.reach(6)).map(({ departureTimeUs }) => departureTimeUs)
  for (let i = 1; i < 6; i++) expect(slots[i]! - slots[i - 1]!).toBeGreaterThanOrEqual(minTime * 1000 - 1)
})

test('maxConcurrent: so many at once, over all processes', async () => {
  const queue = shop.queue({ concurrency: 2 })
  await queue.waitUntilReady()
  let running = 0
  let most = 0
  const work = async () => {
    running += 1
    most = Math.max(most, running)
    await new Promise((resolve) => setTimeout(resolve, 10))
    running -= 1
  }
  const workers = [1, 2].map(() => shop.worker(queue, work, { concurrency: 5 }))
  const completed = eventsOf('completed', ...workers)
  await queue.addBulk(jobs(12))
  await completed.reach(12)
  expect(most).toBe(2)
})

test('reservoir with a refresh: a burst, then a rate instead of a refill all at once', async () => {
  const reservoir = { amount: 4, interval: 200 }
  const shape = { rate: { limit: reservoir.amount, period: reservoir.interval }, burst: reservoir.amount }
  // A job that a busy machine starts late leaves with its slot, not with a later one.
  const queue = shop.queue({ ...shape, maxLatenessMs: 10_000 })
  await queue.addBulk(jobs(10))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 }))
  const slots = (await departed.reach(10)).map(({ departureTimeUs }) => departureTimeUs)
  expect(slots[3]! - slots[0]!).toBeLessThan(50_000)
  expect(excess(slots, 50_000, 4)).toBeLessThanOrEqual(rounding(50_000))
})

test('highWater with the strategy OVERFLOW: what does not fit is refused, with the time to come back', async () => {
  const queue = shop.queue({ rate: '10/s', capacity: 3 })
  await queue.addBulk(jobs(3))
  const refused = await queue.add('one more', {}).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(QueueFullError)
  expect((refused as QueueFullError).retryAfterMs).toBeGreaterThan(0)
})

test('weight: a cost, which must fit into the burst', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 2 })
  await queue.add('heavy', {}, { cost: 2 })
  await queue.add('light', {})
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 2 }))
  const slots = (await departed.reach(2)).map(({ departureTimeUs }) => departureTimeUs)
  expect(slots[1]! - slots[0]!).toBeGreaterThanOrEqual(9999)
  await expect(queue.add('too heavy', {}, { cost: 3 })).rejects.toThrow(CostTooHighError)
})

test('priority: the lower number goes first, but jobs without one before all', async () => {
  const queue = shop.queue({ rate: '100/s' })
  for (const priority of [9, 1, 5]) await queue.add(`p${priority}`, {}, { priority })
  await queue.add('none', {})
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect((await departed.reach(4)).map(({ name }) => name)).toEqual(['none', 'p1', 'p5', 'p9'])
})

test('updateSettings, for all at once: setShape', async () => {
  const queue = shop.queue({ rate: '1/h' })
  await queue.addBulk(jobs(3))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  await queue.setShape({ rate: '100/s' }, { by: 'ops', reason: 'the limit was raised' })
  await departed.reach(3)
})
