import { Queue } from 'bullmq'
import { expect, test } from 'vitest'
import { UnsupportedOptionError } from '../../src/index.ts'
import { many, ownKeys, refusal, rejection, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { setShapeFields } from '../support/shape-fields.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

test('rateLimit pauses the meter; the longest one wins', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(2))
  const before = (await queue.meter()).at.getTime()
  await queue.rateLimit(HOUR_MS)
  const after = (await queue.meter()).at.getTime()
  const first = await queue.meter()
  expect(first).toMatchObject({ cause: 'meter paused', paused: false, pauseReason: 'rateLimit' })
  expect(first.pausedUntil!.getTime()).toBeGreaterThanOrEqual(before + HOUR_MS)
  expect(first.pausedUntil!.getTime()).toBeLessThanOrEqual(after + HOUR_MS + 1)
  expect(await taker.tryTake()).toBeUndefined()
  await queue.rateLimit(1000)
  expect((await queue.meter()).pausedUntil).toEqual(first.pausedUntil)
  await queue.rateLimit(2 * HOUR_MS)
  expect((await queue.meter()).pausedUntil!.getTime()).toBeGreaterThan(before + 2 * HOUR_MS - 1)
  await queue.clearPause()
  await taker.take()
})

test('rateLimit means the same where no shape is stored yet', async () => {
  const queue = shop.queue()
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  await queue.rateLimit(HOUR_MS)
  expect(await taker.tryTake()).toBeUndefined()
  await queue.clearPause()
  await taker.take()
})

test('pauseUntil never shortens a pause, says why, and is lifted by clearPause alone', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  const until = new Date(Date.now() + HOUR_MS)
  await queue.pauseUntil(until, { reason: 'maintenance' })
  await queue.pauseUntil(until.getTime() - 1000, { reason: 'shorter' })
  expect(await queue.meter()).toMatchObject({ pausedUntil: until, pauseReason: 'maintenance', cause: 'meter paused' })
  expect((await queue.meter()).nextDepartureAt).toEqual(until)
  await queue.resume()
  expect(await taker.tryTake()).toBeUndefined()
  await queue.clearPause()
  expect(await queue.meter()).toMatchObject({ pausedUntil: undefined, pauseReason: undefined, cause: 'declared' })
  await taker.take()
  await expect(queue.pauseUntil(new Date('never'), { reason: 'x' })).rejects.toThrow(
    'pauseUntil needs a valid date; got Invalid Date',
  )
})

test("pause and resume stay BullMQ's", async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  await queue.pause()
  expect(await queue.isPaused()).toBe(true)
  expect(await queue.meter()).toMatchObject({ paused: true, cause: 'paused', pausedUntil: undefined })
  expect(await taker.tryTake()).toBeUndefined()
  await queue.clearPause()
  expect(await queue.isPaused()).toBe(true)
  await queue.resume()
  await taker.take()
})

test('a full queue stays full in a pause', async () => {
  const queue = shop.queue({ capacity: 2 })
  await queue.pause()
  await queue.addBulk(many(2))
  expect(await refusal(queue)).toMatchObject({ depth: 2, paused: true })
})

test('setGlobalConcurrency and shape.concurrency are one value', async () => {
  const queue = shop.queue({ concurrency: 2 })
  await queue.waitUntilReady()
  expect(await queue.getGlobalConcurrency()).toBe(2)
  await queue.setGlobalConcurrency(1)
  expect(await queue.getGlobalConcurrency()).toBe(1)
  expect(await queue.getShape()).toMatchObject({ concurrency: 1, overrides: { concurrency: { value: 1 } } })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(3))
  await taker.take()
  expect(await taker.tryTake()).toBeUndefined()
  await queue.setShape({ concurrency: 2 }, { by: 'ops', reason: 'more' })
  expect(await queue.getGlobalConcurrency()).toBe(2)
  await taker.take()
  expect(await taker.tryTake()).toBeUndefined()
  await queue.removeGlobalConcurrency()
  expect(await queue.getGlobalConcurrency()).toBeNull()
  expect(await queue.getShape()).not.toHaveProperty('concurrency')
  await taker.take()
  await queue.clearShape()
  expect(await queue.getGlobalConcurrency()).toBe(2)
})

test('when an override of the concurrency is over, the first script writes the declared one back', async () => {
  const client = redis.client()
  const queue = shop.queue({ concurrency: 4 })
  await queue.setShape({ concurrency: 1 }, { by: 'ops', reason: 'incident', ttlMs: 60_000 })
  expect(await queue.getGlobalConcurrency()).toBe(1)
  const key = queue.toKey('meta:shape')
  const overrides = JSON.parse((await client.hget(key, 'overrides'))!)
  overrides.concurrency.until = Date.now() - 1
  await setShapeFields(client, key, { overrides: JSON.stringify(overrides), expires: Date.now() - 1 })
  await queue.add('job', {})
  expect(await queue.getGlobalConcurrency()).toBe(4)
})

test('setGlobalRateLimit is refused and names what takes its place', async () => {
  const queue = shop.queue({ rate: '50/s' })
  const error = await rejection(queue.setGlobalRateLimit(10, 1000))
  expect(error).toBeInstanceOf(UnsupportedOptionError)
  expect(error.message).toContain('setShape({ rate: { limit: 10, period: 1000 } }, { by, reason })')
  expect(await queue.getGlobalRateLimit()).toBeNull()
})

test('the worker option limiter is refused and names what takes its place', () => {
  const limiter = { limiter: { max: 10, duration: 500 } } as object
  expect(() => shop.worker({ name: 'limited' }, null, limiter)).toThrow(UnsupportedOptionError)
  expect(() => shop.worker({ name: 'limited' }, null, limiter)).toThrow('shape: { rate: { limit: 10, period: 500 } }')
})

test('obliterate leaves no key, and a job that is added later meets the declared bound', async () => {
  const client = redis.client()
  const queue = shop.queue({ rate: '1/h', capacity: 2, concurrency: 9 })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(2))
  await refusal(queue)
  await taker.take()
  expect((await ownKeys(queue)).length).toBeGreaterThan(1)
  await queue.setShape({ burst: 7 }, { by: 'ops', reason: 'incident' })
  const losses = eventsOf('stateLoss', queue)
  await queue.obliterate({ force: true })
  expect(await ownKeys(queue)).toEqual([])
  expect(await client.keys(`${queue.toKey('')}*`)).toEqual([])
  await queue.addBulk(many(2))
  expect(await refusal(queue)).toMatchObject({ depth: 2, capacity: 2 })
  expect(await queue.getShape()).toMatchObject({ rate: '1/h', capacity: 2, concurrency: 9, burst: 1, overrides: {} })
  expect(await queue.getGlobalConcurrency()).toBe(9)
  expect(losses.all).toEqual([])
  // Nothing is owed for what left before, and one an hour may leave, as before.
  const fresh = new Taker(shop, queue)
  await fresh.take()
  expect(await fresh.tryTake()).toBeUndefined()
})

test('obliterate refuses as BullMQ does while jobs run, and takes nothing of ours then', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 2 })
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  await taker.take()
  await rejection(queue.obliterate())
  expect(await queue.getShape()).toMatchObject({ rate: '1/h' })
})

test('drain, clean and removeOrphanedJobs leave the shape alone and free the places', async () => {
  const client = redis.client()
  const queue = shop.queue({ rate: '1/h', capacity: 2 })
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  await taker.take()
  await queue.addBulk(many(2))
  await queue.pauseUntil(Date.now() + HOUR_MS, { reason: 'why not' })
  await client.hset(queue.toKey('orphan'), 'name', 'orphan', 'data', '{}')
  // For an hour a drain is remembered.
  const keys = async () => (await ownKeys(queue)).filter((key) => !key.startsWith('meta:drained:'))
  const before = await keys()
  expect(await queue.removeOrphanedJobs()).toBe(1)
  expect(await keys()).toEqual(before)
  await queue.drain()
  await queue.addBulk(many(2))
  await refusal(queue)
  expect(await keys()).toEqual(before)
  expect((await queue.meter()).pauseReason).toBe('why not')
})

test('a stock queue reads what a shaped one writes: counts, jobs, global concurrency', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 5, concurrency: 3 })
  const { connection, prefix } = redis
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  await queue.addBulk([...many(2), ...many(1, { delay: HOUR_MS }), ...many(1, { priority: 3 })])
  expect(await stock.getJobCounts('waiting', 'delayed', 'prioritized')).toEqual({
    ...{ waiting: 2, delayed: 1, prioritized: 1 },
  })
  expect(await stock.getGlobalConcurrency()).toBe(3)
})
