import { once } from 'node:events'
import { Queue, QueueEvents, Worker } from 'bullmq'
import { expect, onTestFinished, test, vi } from 'vitest'
import { CostTooHighError, createShapedBackend, QueueFullError, TooLargeError } from '../../src/index.ts'
import { ShapeStore } from '../../src/shape/store.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, excess, rounding, Workshop } from '../worker/support.ts'
import { many, ownKeys, rejection } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const options = () => ({ connection: redis.connection, prefix: redis.prefix })

function stockQueue(name: string): Queue {
  return shop.keep(new Queue(name, options(), createShapedBackend))
}

test('a stock Queue with our backend obeys the stored capacity', async () => {
  const shaped = shop.queue({ rate: '50/s', burst: 2, capacity: 3 })
  await shaped.waitUntilReady()
  const queue = stockQueue(shaped.name)
  await queue.addBulk(many(2))
  const job = await queue.add('job', { n: 2 })
  expect((await queue.getJob(job.id!))?.data).toEqual({ n: 2 })
  const error = await rejection(queue.add('job', {}))
  expect(error).toBeInstanceOf(QueueFullError)
  expect(error).toMatchObject({ queueName: shaped.name, depth: 3, capacity: 3 })
  expect(await rejection(queue.addBulk(many(2)))).toBeInstanceOf(QueueFullError)
  expect(await rejection(queue.addBulk(many(4)))).toBeInstanceOf(TooLargeError)
  expect(await rejection(queue.add('job', {}, { cost: 3 } as object))).toBeInstanceOf(CostTooHighError)
  expect(await rejection(queue.upsertJobScheduler('s', { every: 60_000 }))).toBeInstanceOf(QueueFullError)
  expect(await queue.count()).toBe(3)
})

test('and obeys a capacity that is set after its first job', async () => {
  const shaped = shop.queue()
  const queue = stockQueue(shaped.name)
  await queue.addBulk(many(2))
  await shaped.setShape({ capacity: 3 }, { by: 'test', reason: 'late' })
  await queue.add('job', {})
  expect(await rejection(queue.add('job', {}))).toBeInstanceOf(QueueFullError)
})

test('a stock Worker with our backend obeys the stored rate, and QueueEvents tells of its jobs', async () => {
  const shaped = shop.queue({ rate: '100/s' })
  await shaped.addBulk(many(25))
  const events = shop.keep(new QueueEvents(shaped.name, options(), createShapedBackend))
  const completed = eventsOf<{ jobId: string }>('completed', events)
  await events.waitUntilReady()
  const startsUs: number[] = []
  const worker = new Worker(
    shaped.name,
    async () => void startsUs.push((performance.timeOrigin + performance.now()) * 1000),
    { ...options(), concurrency: 5 },
    createShapedBackend,
  )
  shop.keep(worker)
  await completed.reach(25)
  const slots = await Promise.all(
    completed.all.map(async ({ jobId }) => Number(await redis.client().hget(shaped.toKey(jobId), 'departure'))),
  )
  expect(excess(slots, 10_000)).toBeLessThanOrEqual(rounding(10_000))
  expect(startsUs.length).toBe(25)
  const byTime = [...slots].sort((a, b) => a - b)
  startsUs.sort((a, b) => a - b)
  // Redis reads the same clock: no job starts before its slot.
  byTime.forEach((slot, i) => {
    expect(startsUs[i]!).toBeGreaterThanOrEqual(slot - 1000)
  })
})

test("a stock Worker's rateLimit and RateLimitError are a pause of the meter", async () => {
  const shaped = shop.queue({ rate: '1000/s' })
  await shaped.addBulk(many(2))
  const listener = redis.client()
  await listener.subscribe(shaped.toKey('meta:wake'))
  const published = once(listener, 'message')
  const worker = new Worker(
    shaped.name,
    async () => {
      await worker.rateLimit(3_600_000)
      throw Worker.RateLimitError()
    },
    // BullMQ's own delay can outlast a close that comes just before it.
    { ...options(), concurrency: 1, maximumRateLimitDelay: 200 },
    createShapedBackend,
  )
  shop.keep(worker)
  await published
  const { pausedUntil, pauseReason, at } = await shaped.meter()
  expect(pausedUntil!.getTime() - at.getTime()).toBeGreaterThan(3_590_000)
  expect(pauseReason).toBe('rateLimit')
})

test('without a stored shape stock classes leave no trace of ours', async () => {
  const shaped = shop.queue()
  const queue = stockQueue(shaped.name)
  const worker = new Worker(shaped.name, async () => {}, { ...options(), concurrency: 3 }, createShapedBackend)
  shop.keep(worker)
  const completed = eventsOf('completed', worker)
  await queue.addBulk(many(5))
  await queue.add('job', {})
  await completed.reach(6)
  expect((await queue.getCompleted()).map(({ id }) => Number(id)).sort()).toEqual([1, 2, 3, 4, 5, 6])
  expect(await ownKeys(shaped)).toEqual([])
})

test('QueueEvents are ready as soon as they are connected: what they asked now would wait behind their wait for events', async () => {
  const prepared = vi.spyOn(ShapeStore.prototype, 'prepared')
  onTestFinished(() => prepared.mockRestore())
  const events = shop.keep(new QueueEvents('ready', options(), createShapedBackend))
  await events.waitUntilReady()
  expect(prepared).not.toHaveBeenCalled()
})

test('without a shape a stock Worker that lost the lock of its job is told so, as by BullMQ', async () => {
  const queue = stockQueue('lockless')
  const worker = shop.keep(new Worker(queue.name, null, { ...options(), autorun: false }, createShapedBackend))
  const added = await queue.addBulk(many(2))
  const ended = await worker.getNextJob('token')
  const postponed = await worker.getNextJob('token')
  await redis.client().del(...added.map(({ id }) => `${queue.toKey(id as string)}:lock`))
  await expect(ended!.moveToCompleted('done', 'token', false)).rejects.toThrow(`Missing lock for job ${ended!.id}`)
  await expect(postponed!.moveToDelayed(Date.now() + 1000, 'token')).rejects.toThrow(
    `Missing lock for job ${postponed!.id}`,
  )
})
