import { expect, test } from 'vitest'
import { CostTooHighError, QueueFullError, type ShapedQueue, WaitTimeoutError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** How often jobs of a queue were refused here, when they were told to come back, and a wait for the next time. */
function refusalsOf(queue: ShapedQueue): { count: number; told: number[]; next(): Promise<void> } {
  const refusals = {
    count: 0,
    told: [] as number[],
    next: () => new Promise<void>((resolve) => queue.once('refused', () => resolve())),
  }
  queue.on('refused', ({ retryAfterMs }) => {
    refusals.count += 1
    refusals.told.push(retryAfterMs)
  })
  return refusals
}

test('adds at once where there is a place', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 1 })
  const job = await queue.addWhenFree('job', { n: 1 }, { attempts: 4 })
  expect(await queue.getJob(job.id!)).toMatchObject({ name: 'job', data: { n: 1 }, opts: { attempts: 4 } })
  expect(job.opts).not.toHaveProperty('timeoutMs')
})

test('waits for its place, and comes back when it was told to, not before', async () => {
  const queue = shop.queue({ rate: '5/s', capacity: 1 })
  const worker = shop.worker(queue, async () => {})
  await worker.waitUntilReady()
  await queue.addWhenFree('first', {})
  const refusals = refusalsOf(queue)
  for (const name of ['second', 'third', 'fourth']) {
    const startedMs = performance.now()
    await queue.addWhenFree(name, {})
    const waitedMs = performance.now() - startedMs
    const told = refusals.told.splice(0).reduce((sum, ms) => sum + ms, 0)
    // Timers count whole ms of their own clock.
    expect(waitedMs).toBeGreaterThanOrEqual(told - 2)
  }
  expect(refusals.count).toBeGreaterThanOrEqual(1)
})

test('where nobody takes what is due, a waiter does not hammer at the queue', async () => {
  const queue = shop.queue({ rate: '1000/s', capacity: 1 })
  await queue.add('filler', {})
  const refusals = refusalsOf(queue)
  await rejection(queue.addWhenFree('job', {}, { timeoutMs: 4000 }))
  expect(Math.min(...refusals.told)).toBeGreaterThanOrEqual(100)
  expect(refusals.count).toBeGreaterThanOrEqual(2)
  expect(refusals.count).toBeLessThanOrEqual(41)
})

test('callers of one process are served in their order', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 2 })
  const order: number[] = []
  const worker = shop.worker(queue, async ({ data }) => void order.push(data.n))
  await worker.waitUntilReady()
  await Promise.all(many(8).map(({ name, data }) => queue.addWhenFree(name, data)))
  await new Promise<void>((resolve) => {
    if (order.length === 8) resolve()
    worker.on('completed', () => order.length === 8 && resolve())
  })
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
})

test('gives up after timeoutMs, and leaves the line to the next', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 1 })
  await queue.add('filler', {})
  await new Taker(shop, queue).take()
  await queue.add('filler', {})
  const error = await rejection<WaitTimeoutError>(queue.addWhenFree('job', {}, { timeoutMs: 60 }))
  expect(error).toBeInstanceOf(WaitTimeoutError)
  expect(error).toMatchObject({ name: 'WaitTimeoutError', queueName: queue.name, timeoutMs: 60 })
  expect(error.message).toBe(`queue "${queue.name}" had no place within 60 ms`)
  expect(error.cause).toBeInstanceOf(QueueFullError)
  await queue.drain()
  await queue.addWhenFree('job', {})
  expect(await queue.count()).toBe(1)
})

test("stops with the signal's reason, before and while it waits", async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 1 })
  await queue.addBulk(many(1))
  await new Taker(shop, queue).take()
  await queue.add('filler', {})
  const reason = new Error('shutting down')
  expect(await rejection(queue.addWhenFree('job', {}, { signal: AbortSignal.abort(reason) }))).toBe(reason)
  const controller = new AbortController()
  const refused = refusalsOf(queue).next()
  const waits = [1, 2].map(() =>
    rejection(queue.addWhenFree('job', {}, { signal: controller.signal, timeoutMs: 60_000 })),
  )
  await refused
  controller.abort(reason)
  expect(await Promise.all(waits)).toEqual([reason, reason])
  expect(await queue.count()).toBe(1)
})

test('what is not about room is thrown at once', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 1 })
  expect(await rejection(queue.addWhenFree('job', {}, { cost: 2 }))).toBeInstanceOf(CostTooHighError)
  await queue.add('filler', {})
  expect(await rejection(queue.add('job', {}))).toBeInstanceOf(QueueFullError)
})
