import { Queue, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { parseRate } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, jobs, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

test('the numbers of a limiter are those of a rate', () => {
  const limiter = { max: 100, duration: 900_000 }
  const rate = parseRate({ limit: limiter.max, period: limiter.duration })
  expect(rate).toEqual(parseRate('100/15min'))
})

test('a queue that a worker with a limiter worked on goes on under a shape', async () => {
  const limiter = { max: 5, duration: 400 }
  const stock = shop.keep(new Queue('mails', { connection, prefix }))
  await stock.addBulk(jobs(25))
  const before = shop.keep(new Worker('mails', async () => {}, { connection, prefix, limiter, concurrency: 5 }))
  const done = eventsOf<{ name: string }>('completed', before)
  await done.reach(5)
  await before.close()
  const left = await stock.getWaitingCount()
  expect(left).toBeGreaterThan(0)

  const queue = shop.queueNamed('mails', { rate: { limit: limiter.max, period: limiter.duration } })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {}, { concurrency: 5 })
  const departed = departuresOf(worker)
  await departed.reach(6)
  // Where the limiter let five through at once, they are spaced now.
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, 80_000)).toBeLessThanOrEqual(rounding(80_000))
  expect(departed.all.map(({ name }) => name)).toEqual(
    jobs(25)
      .slice(25 - left, 31 - left)
      .map(({ name }) => name),
  )
})

test('a burst as big as the limiter’s max lets as many through at once as it did', async () => {
  const queue = shop.queue({ rate: { limit: 5, period: 10_000 }, burst: 5, maxLatenessMs: 60_000 })
  await queue.addBulk(jobs(8))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 8 }))
  const all = await departed.reach(5)
  expect(all[4]!.departureTimeUs - all[0]!.departureTimeUs).toBeLessThan(1_000_000)
  expect(await queue.getWaitingCount()).toBe(3)
})

test('a global rate limit that BullMQ stored stays in force until it is removed', async () => {
  const stock = shop.keep(new Queue('global', { connection, prefix }))
  await stock.setGlobalRateLimit(2, 3_600_000)
  await stock.addBulk(jobs(6))
  const queue = shop.queueNamed('global', { rate: '50/s' })
  await queue.waitUntilReady()
  const limited = shop.worker(queue, async () => {}, { concurrency: 1 })
  const first = departuresOf(limited)
  await first.reach(2)
  await limited.close()
  expect(await queue.getWaitingCount()).toBe(4)
  await queue.removeGlobalRateLimit()
  await queue.removeRateLimitKey()
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(4)
})
