import { Queue } from 'bullmq'
import { describe, expect, test } from 'vitest'
import {
  createShapedBackend,
  InvalidShapeError,
  QueueFullError,
  ShapedFlowProducer,
  type ShapedQueue,
  TooLargeError,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const [by, reason] = ['test', 'for the test']

/** Fills a queue with jobs of a priority until it refuses them. @returns how many it took */
async function fill(queue: ShapedQueue, priority: number): Promise<number> {
  for (let taken = 0; ; taken++) {
    const { accepted } = await queue.offer('job', {}, priority ? { priority } : {})
    if (!accepted) return taken
  }
}

describe('the last places are kept', () => {
  test.each([
    [
      'for priority 1',
      { 1: 3 },
      [
        [0, 7],
        [2, 0],
        [1, 3],
      ],
    ],
    [
      'whatever comes first',
      { 1: 3 },
      [
        [1, 10],
        [0, 0],
        [9, 0],
      ],
    ],
    [
      'for each class and those above it',
      { 1: 2, 5: 3 },
      [
        [9, 5],
        [0, 0],
        [5, 3],
        [2, 0],
        [1, 2],
      ],
    ],
    [
      'for jobs without a priority, if it is said',
      { 0: 2, 5: 3 },
      [
        [9, 5],
        [5, 3],
        [1, 0],
        [0, 2],
      ],
    ],
  ] as const)('%s', async (_what, reservedPlaces, steps) => {
    const queue = shop.queue({ capacity: 10, reservedPlaces })
    for (const [priority, taken] of steps) expect([priority, await fill(queue, priority)]).toEqual([priority, taken])
  })
})

test('a refusal names the places of its class, and when one of them is free', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 5, reservedPlaces: { 1: 2 } })
  const taker = new Taker(shop, queue)
  await queue.add('gone', {})
  await taker.take()
  await queue.addBulk(many(3))
  const error = await refusal(queue)
  expect(error).toMatchObject({ depth: 3, capacity: 3 })
  expect(error.message).toContain('is full (3 of 3)')
  await queue.addBulk(many(2, { priority: 1 }))
  const over = await refusal(queue)
  expect(over).toMatchObject({ depth: 5, capacity: 3 })
  // Three have to leave before one of its class fits.
  expect(Math.abs(over.retryAfterMs - error.retryAfterMs - 2 * 3_600_000)).toBeLessThan(10_000)
})

test('a bulk of mixed priorities comes in whole or not at all, in whatever order', async () => {
  const queue = shop.queue({ capacity: 10, reservedPlaces: { 1: 4 } })
  await queue.addBulk(many(5))
  const important = many(4, { priority: 1 })
  expect(await rejection(queue.addBulk([...important, ...many(2)]))).toMatchObject({ depth: 5, capacity: 6 })
  expect(await rejection(queue.addBulk([...many(5, { priority: 1 }), ...many(1)]))).toBeInstanceOf(QueueFullError)
  expect(await queue.count()).toBe(5)
  await queue.addBulk([...important, ...many(1)])
  expect(await queue.getJobCounts('waiting', 'prioritized')).toEqual({ waiting: 6, prioritized: 4 })
})

test.each([20, 300])('a bulk of %i that its class can never hold is too large', async (size) => {
  const queue = shop.queue({ capacity: size + 10, reservedPlaces: { 1: 20 } })
  expect(await rejection(queue.addBulk(many(size)))).toMatchObject({ jobs: size, capacity: size - 10 })
  expect(await rejection(queue.addBulk(many(size)))).toBeInstanceOf(TooLargeError)
  await queue.addBulk(many(size, { priority: 1 }))
})

test('flows, schedulers, redrives and jobs that are added together keep to it', async () => {
  const queue = shop.queue({ capacity: 6, reservedPlaces: { 1: 3 }, overflow: 'reject' })
  const settled = await Promise.allSettled(Array.from({ length: 9 }, () => queue.add('job', {})))
  expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const flow = (opts: object) => ({
    ...{ name: 'parent', queueName: queue.name, opts },
    children: [{ name: 'child', queueName: queue.name, opts }],
  })
  expect(await rejection(flows.add(flow({})))).toBeInstanceOf(QueueFullError)
  await flows.add(flow({ priority: 1 }))
  const every = { every: 3_600_000 }
  expect(await rejection(queue.upsertJobScheduler('hourly', every))).toBeInstanceOf(QueueFullError)
  await queue.upsertJobScheduler('hourly', every, { opts: { priority: 1 } })
  expect(await fill(queue, 1)).toBe(0)
  const stock = shop.keep(new Queue(queue.name, redis, createShapedBackend as never))
  await expect(stock.add('job', {}, { priority: 1 })).rejects.toThrow('is full (6 of 6)')
})

test('places that a large bulk has claimed count, and a racing one does not get what is reserved', async () => {
  const shape = { capacity: 800, reservedPlaces: { 1: 300 } }
  const queue = shop.queue(shape)
  const other = shop.queueNamed(queue.name, shape)
  const bulks = await Promise.allSettled([queue.addBulk(many(400)), other.addBulk(many(400))])
  expect(bulks.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  await queue.addBulk(many(400, { priority: 1 }))
  expect(await queue.count()).toBe(800)
  expect(await fill(queue, 1)).toBe(0)
})

test('overflow drops for a job only what is not more important than it, and one for one', async () => {
  const queue = shop.queue({ capacity: 4, reservedPlaces: { 1: 2 }, overflow: 'drop-oldest' })
  await queue.addBulk(many(2))
  await queue.addBulk(many(2, { priority: 1 }))
  await queue.add('new', {})
  expect(await queue.getJobCounts('waiting', 'prioritized', 'failed')).toEqual({
    waiting: 2,
    prioritized: 2,
    failed: 1,
  })
  await queue.add('urgent', {}, { priority: 1 })
  expect(await queue.getJobCounts('waiting', 'prioritized', 'failed')).toEqual({
    waiting: 1,
    prioritized: 3,
    failed: 2,
  })
  const lowest = shop.queue({ capacity: 4, reservedPlaces: { 1: 2 }, overflow: 'drop-lowest' })
  await lowest.addBulk(many(4, { priority: 1 }))
  // It would be served before them, but the place was kept for their like.
  expect(await refusal(lowest)).toMatchObject({ depth: 4, capacity: 2 })
  expect((await lowest.meter()).droppedTotal).toBe(0)
})

test('racing producers: an important job is never refused while places are kept for it', async () => {
  const shape = { capacity: 60, reservedPlaces: { 1: 50 } }
  const queue = shop.queue(shape)
  const producers = [queue, ...[1, 2, 3].map(() => shop.queueNamed(queue.name, shape))]
  let refused = 0
  const flood = async (from: ShapedQueue) => {
    for (let n = 0; n < 20; n++) {
      const offers = await Promise.all(Array.from({ length: 8 }, () => from.offer('job', {})))
      refused += offers.filter(({ accepted }) => !accepted).length
    }
  }
  const important = async (from: ShapedQueue) => {
    for (let n = 0; n < 12; n++) await from.add('important', {}, { priority: 1 })
  }
  await Promise.all([...producers.map(flood), ...producers.map(important)])
  const { waiting = 0, prioritized } = await queue.getJobCounts('waiting', 'prioritized')
  expect(prioritized).toBe(48)
  expect(waiting).toBeLessThanOrEqual(10)
  expect(refused).toBe(4 * 20 * 8 - waiting)
})

test('it is counted in shadow mode, not when off, shown as it was given, and put back when Redis has lost it', async () => {
  const queue = shop.queue({ capacity: 3, reservedPlaces: { 5: 1, 1: 1 }, mode: 'shadow' })
  await queue.addBulk(many(2))
  expect((await queue.meter()).shadowRefusedTotal).toBe(2)
  await queue.setShape({ mode: 'off' }, { by, reason })
  await queue.add('job', {})
  expect((await queue.meter()).shadowRefusedTotal).toBe(2)
  await queue.clearShape()
  await queue.setShape({ mode: 'enforce' }, { by, reason })
  expect(await refusal(queue)).toMatchObject({ depth: 3, capacity: 1 })
  await redis.client().del(queue.toKey('meta:shape'))
  expect(await refusal(queue)).toMatchObject({ depth: 3, capacity: 1 })
  expect(await queue.getShape()).toMatchObject({ reservedPlaces: { 1: 1, 5: 1 } })
  await queue.setShape({ reservedPlaces: null }, { by, reason })
  expect(await refusal(queue)).toMatchObject({ depth: 3, capacity: 3 })
})

test('some places have to be left; where an override takes them all, the others wait', async () => {
  const both = { capacity: 5, reservedPlaces: { 1: 5 } }
  expect(() => shop.queue(both)).toThrow(InvalidShapeError)
  expect(() => shop.queue(both)).toThrow('shape.reservedPlaces must be fewer than shape.capacity, 5; got 5')
  const queue = shop.queue({ capacity: 9, reservedPlaces: { 1: 5 } })
  await expect(queue.setShape(both, { by, reason })).rejects.toThrow(InvalidShapeError)
  await queue.setShape({ capacity: 4 }, { by, reason })
  expect(await refusal(queue)).toMatchObject({ name: 'QueueFullError', depth: 0, capacity: 0 })
  expect(await fill(queue, 1)).toBe(4)
})
