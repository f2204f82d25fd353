import { expect, test } from 'vitest'
import { QueueFullError, type Refusal } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'
import { many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('a queue takes as many jobs as its capacity and refuses the next with the numbers that say why', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 3 })
  for (let n = 0; n < 3; n++) await queue.add('job', { n })
  const error = await refusal(queue)
  expect(error).toBeInstanceOf(QueueFullError)
  expect(error).toMatchObject({ name: 'QueueFullError', queueName: queue.name, depth: 3, capacity: 3, paused: false })
  expect(Number.isSafeInteger(error.retryAfterMs) && error.retryAfterMs >= 1).toBe(true)
  expect(await queue.getJobCountByTypes('waiting')).toBe(3)
})

test('a refusal reads as a sentence', () => {
  const error = new QueueFullError('emails', { retryAfterMs: 240, depth: 10_000, capacity: 10_000, paused: false })
  expect(error.message).toBe('queue "emails" is full (10000 of 10000): try again in 240 ms')
})

test('racing producers get exactly the places there are', async () => {
  const shape = { rate: '50/s', capacity: 25 } as const
  const first = shop.queue(shape)
  const queues = [first, ...[1, 2, 3].map(() => shop.queueNamed(first.name, shape))]
  const tries = Array.from({ length: 100 }, (_, n) => queues[n % 4]!.offer('job', { n }))
  const offers = await Promise.all(tries)
  expect(offers.filter(({ accepted }) => accepted).length).toBe(25)
  expect(await first.getJobCountByTypes('waiting')).toBe(25)
})

test('a place is free again as soon as a job has left', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  await queue.add('job', {})
  await refusal(queue)
  await taker.take()
  await queue.add('job', {})
  await refusal(queue)
})

test('prioritized, delayed and waiting-children jobs hold places; running and finished ones do not', async () => {
  const queue = shop.queue({ capacity: 4 })
  const taker = new Taker(shop, queue)
  await queue.add('runs', {})
  await taker.take()
  await queue.add('ends', {})
  await taker.complete(await taker.take())
  await queue.add('parent', {}, {})
  const parent = await taker.take()
  await queue.add('child', {}, { delay: 60_000, parent: { id: parent.id!, queue: queue.qualifiedName } })
  expect(await parent.moveToWaitingChildren(parent.token!)).toBe(true)
  await queue.add('prioritized', {}, { priority: 5 })
  await queue.add('waits', {})
  expect(await queue.getJobCounts()).toMatchObject({
    ...{ active: 1, completed: 1, delayed: 1, prioritized: 1, waiting: 1, 'waiting-children': 1 },
  })
  expect(await refusal(queue)).toMatchObject({ depth: 4, capacity: 4 })
})

test('a queue without a capacity refuses nothing', async () => {
  const queue = shop.queue({ rate: '1/min' })
  await queue.addBulk(many(50))
  expect((await queue.offer('job', {})).accepted).toBe(true)
})

test('with capacityHorizonMs only delayed jobs that fall due within it hold places', async () => {
  const queue = shop.queue({ capacity: 2, capacityHorizonMs: 30_000 })
  for (let n = 0; n < 5; n++) await queue.add('far', {}, { delay: 60_000 })
  await queue.add('near', {}, { delay: 10_000 })
  await queue.add('now', {})
  expect(await refusal(queue)).toMatchObject({ depth: 2, capacity: 2 })
  await queue.setShape({ capacityHorizonMs: 120_000 }, { by: 'test', reason: 'all of them count' })
  expect(await refusal(queue)).toMatchObject({ depth: 7, capacity: 2 })
})

test('jobs that were accepted are never refused when they come back: retries, retryJobs, promote, stalled', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  const fill = () => queue.add('filler', {})

  await queue.add('retried', {}, { attempts: 3 })
  const retried = await taker.take()
  await fill()
  await retried.moveToFailed(new Error('again'), retried.token!, false)
  expect(await retried.getState()).toBe('waiting')

  const failed = await taker.take()
  await taker.take()
  await fill()
  failed.opts.attempts = 1
  await failed.moveToFailed(new Error('for good'), failed.token!, false)
  expect(await failed.getState()).toBe('failed')
  await queue.retryJobs()
  expect(await failed.getState()).toBe('waiting')

  expect(await queue.getJobCountByTypes('waiting')).toBe(2)
  await queue.drain()
  const delayed = await queue.add('delayed', {}, { delay: 60_000 })
  await queue.setShape({ capacityHorizonMs: 1000 }, { by: 'test', reason: 'the delayed job gives its place away' })
  await fill()
  await refusal(queue)
  await delayed.promote()
  expect(await queue.getJobCountByTypes('waiting')).toBe(2)
})

test('a delayed job that falls due is promoted into a full queue', async () => {
  const queue = shop.queue({ capacity: 1, capacityHorizonMs: 0, rate: '1/day' })
  const taker = new Taker(shop, queue)
  await queue.add('uses the bucket up', {})
  await taker.take()
  const delayed = await queue.add('delayed', {}, { delay: 3_600_000 })
  await queue.add('filler', {})
  const client = redis.client()
  await client.zadd(queue.toKey('delayed'), Date.now() * 4096, delayed.id!)
  expect(await taker.tryTake()).toBeUndefined()
  expect(await queue.getJobCounts('waiting', 'delayed')).toEqual({ waiting: 2, delayed: 0 })
})

test('a stalled job goes back into a full queue', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  const client = redis.client()
  await queue.add('stalls', {})
  const job = await taker.take()
  await queue.add('filler', {})
  await client.del(`${queue.toKey(job.id!)}:lock`)
  const other = shop.worker(queue, null, { autorun: false, stalledInterval: 50 })
  const stalled = eventsOf<string>('stalled', other)
  await other.startStalledCheckTimer()
  await stalled.reach(1)
  expect(await queue.getJobCountByTypes('waiting')).toBe(2)
})

test('iterations of an accepted scheduler are never refused, a new scheduler is', async () => {
  const queue = shop.queue({ capacity: 2 })
  const [by, reason] = ['test', 'full']
  const first = await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'tick' })
  expect(first.id).toMatch(/^repeat:hourly:/)
  await first.promote().catch(() => {})
  await queue.add('filler', {})
  await queue.setShape({ capacity: 1 }, { by, reason })
  const worker = shop.worker(queue, async () => {}, { autorun: false, allowUnshaped: true })
  const completed = eventsOf('completed', worker)
  void worker.run()
  await completed.until((all) => all.some(({ name }) => name === 'tick'))
  await worker.close()
  expect((await queue.getDelayed()).map(({ name }) => name)).toEqual(['tick'])
  await queue.upsertJobScheduler('hourly', { every: 1_800_000 }, { name: 'tick' })
  const error = await rejection(queue.upsertJobScheduler('new', { every: 1_800_000 }, { name: 'tock' }))
  expect(error).toBeInstanceOf(QueueFullError)
  expect(await queue.getJobSchedulersCount()).toBe(1)
})

test('a refusal is an event of the queue that was refused', async () => {
  const queue = shop.queue({ capacity: 1 })
  const refused: Refusal[] = []
  queue.on('refused', (refusal) => refused.push(refusal))
  await queue.add('job', {})
  const offer = await queue.offer('job', {})
  const error = await refusal(queue)
  expect(refused.map(({ depth, capacity, paused }) => ({ depth, capacity, paused }))).toEqual([
    { depth: 1, capacity: 1, paused: false },
    { depth: 1, capacity: 1, paused: false },
  ])
  expect(offer).toMatchObject({ accepted: false, retryAfterMs: refused[0]!.retryAfterMs, depth: 1, capacity: 1 })
  expect(refused[1]).toBe(error)
})

test('QueueEvents tells of all refusals of a second at once', async () => {
  const queue = shop.queue({ capacity: 1 })
  const events = shop.queueEvents(queue)
  const told = eventsOf<{ count: string; depth: string; capacity: string }>('refused', events)
  await events.waitUntilReady()
  await queue.add('job', {})
  const startedMs = performance.now()
  await refusal(queue)
  await Promise.all(Array.from({ length: 9 }, () => queue.offer('job', {})))
  await told.reach(1)
  // The second is over on Redis's clock once this stamp is one second old.
  const client = redis.client()
  const since = Number(await client.hget(queue.toKey('meta:meter'), 'refusedAt'))
  await client.hset(queue.toKey('meta:meter'), 'refusedAt', since - 1_000_000)
  await refusal(queue)
  const counts = () => told.all.map(({ count }) => Number(count))
  await told.until(() => counts().reduce((sum, count) => sum + count, 0) === 11)
  expect(counts()[0]).toBe(1)
  // Two, and one more for each second that a busy machine may have taken.
  expect(told.all.length).toBeLessThanOrEqual(2 + Math.floor((performance.now() - startedMs) / 1000))
  expect(told.all.at(-1)).toMatchObject({ depth: '1', capacity: '1' })
  expect((await queue.meter()).refusedTotal).toBe(11)
})

test('the last refusals are told too, when the queue is touched again', async () => {
  const queue = shop.queue({ capacity: 1 })
  const events = shop.queueEvents(queue)
  const told = eventsOf<{ count: string }>('refused', events)
  await events.waitUntilReady()
  await queue.add('job', {})
  await Promise.all(Array.from({ length: 5 }, () => queue.offer('job', {})))
  await told.reach(1)
  const client = redis.client()
  const since = Number(await client.hget(queue.toKey('meta:meter'), 'refusedAt'))
  await client.hset(queue.toKey('meta:meter'), 'refusedAt', since - 1_000_000)
  await new Taker(shop, queue).take()
  const counts = () => told.all.map(({ count }) => Number(count))
  await told.until(() => counts().reduce((sum, count) => sum + count, 0) === 5)
  expect(counts()[0]).toBe(1)
})
