import type { Job } from 'bullmq'
import type { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { InvalidDeadlineError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { SkewedDate } from '../support/skewed-date.ts'
import { departuresOf, Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)

const HOUR_MS = 3_600_000
const SKEWS = [
  ['2 h ahead', 2 * HOUR_MS],
  ['2 h behind', -2 * HOUR_MS],
] as const
/** One without a rate, whose jobs no gate holds, and one with. */
const SHAPES = [
  ['without a rate', { capacity: 1000 }],
  ['with a rate', { rate: '1000/s', capacity: 1000 }],
  ['with a limit', { limits: [{ name: 'own', rate: '1000/s', burst: 100 }] }],
] as const

async function redisMs(of: Redis = client): Promise<number> {
  const [seconds, micros] = (await of.time()) as unknown as [string, string]
  return Number(seconds) * 1000 + Number(micros) / 1000
}

/** When a delayed job is due by Redis, ms. */
async function dueMs(queue: ShapedQueue, id: string): Promise<number> {
  return Math.floor(Number(await client.zscore(queue.toKey('delayed'), id)) / 4096)
}

/** Runs what delays a job by so much, and expects it to be due that long after on Redis's clock. */
async function expectDelayed(queue: ShapedQueue, delayMs: number, run: () => Promise<string>): Promise<string> {
  const before = await redisMs()
  const id = await run()
  const due = await dueMs(queue, id)
  expect(due).toBeGreaterThanOrEqual(before + delayMs)
  expect(due).toBeLessThanOrEqual((await redisMs()) + delayMs + 1)
  return id
}

function idOf(job: Job): string {
  return job.id as string
}

// Fault table, row 17.
describe.each(SKEWS)('a process whose clock is %s', (_name, aheadMs) => {
  test.each(SHAPES)('adds delayed jobs to a queue %s: they are due on the clock of Redis', async (_shape, shape) => {
    const queue = shop.queue(shape)
    const clock = new SkewedDate()
    clock.set(aheadMs)
    const delay = HOUR_MS
    const job = await expectDelayed(queue, delay, async () => idOf(await queue.add('job', {}, { delay })))
    await expectDelayed(queue, delay, async () => idOf((await queue.addBulk(many(3, { delay })))[2] as Job))
    await expectDelayed(queue, delay, async () => {
      // Added beside each other: one script takes them.
      const added = await Promise.all(many(20, { delay }).map(({ name, data, opts }) => queue.add(name, data, opts)))
      return idOf(added[19] as Job)
    })
    await expectDelayed(queue, delay, async () => {
      const flows = new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })
      onTestFinished(() => flows.close())
      return idOf((await flows.add({ name: 'alone', queueName: queue.name, data: {}, opts: { delay } })).job)
    })
    await expectDelayed(queue, 2 * delay, async () => {
      await (await queue.getJob(job))?.changeDelay(2 * delay)
      return job
    })
  })

  test.each(SHAPES)('starts no job of a queue %s before its delay is over', async (_shape, shape) => {
    const queue = shop.queue(shape)
    await queue.add('delayed', {}, { delay: HOUR_MS })
    await queue.addBulk(many(10))
    const clock = new SkewedDate()
    clock.set(aheadMs)
    await departuresOf(shop.worker(queue, async () => undefined, { concurrency: 2 })).reach(10)
    expect(await queue.getDelayedCount()).toBe(1)
  })

  test.each(SHAPES)('starts a job of a queue %s when its delay is over', async (_shape, shape) => {
    const queue = shop.queue(shape)
    const clock = new SkewedDate()
    clock.set(aheadMs)
    await queue.waitUntilReady()
    const departures = departuresOf(shop.worker(queue, async () => undefined))
    await queue.add('plain', {})
    await departures.reach(1)
    const before = await redisMs()
    await queue.add('delayed', {}, { delay: 150 })
    const [, last] = await departures.reach(2)
    expect(last?.departedAtUs).toBeGreaterThanOrEqual((before + 150) * 1000)
  })

  test('backs off, and moves to the delayed ones, by the clock of Redis', async () => {
    const queue = shop.queue({ rate: '1000/s' })
    const clock = new SkewedDate()
    clock.set(aheadMs)
    const taker = new Taker(shop, queue)
    await queue.add('fails', {}, { attempts: 2, backoff: HOUR_MS })
    const failing = await taker.take()
    await expectDelayed(queue, HOUR_MS, async () => {
      await failing.moveToFailed(new Error('later'), failing.token as string, false)
      return idOf(failing)
    })
    await queue.add('moves', {})
    const moving = await taker.take()
    await expectDelayed(queue, HOUR_MS, async () => {
      await moving.moveToDelayed(Date.now() + HOUR_MS, moving.token)
      return idOf(moving)
    })
  })

  test('a retry at once leaves the delayed jobs where they are', async () => {
    const queue = shop.queue({ capacity: 10 })
    const taker = new Taker(shop, queue)
    await queue.add('fails', {}, { attempts: 2 })
    const failing = await taker.take()
    await queue.add('delayed', {}, { delay: HOUR_MS })
    const clock = new SkewedDate()
    clock.set(aheadMs)
    await failing.moveToFailed(new Error('again'), failing.token as string, false)
    expect(await queue.getJobCounts('wait', 'delayed')).toEqual({ wait: 1, delayed: 1 })
  })

  test('lets a parent with a delay wait from the end of its last child', async () => {
    const queue = shop.queue({ capacity: 10 })
    const flows = new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })
    onTestFinished(() => flows.close())
    const node = { queueName: queue.name, data: {} }
    const { job } = await flows.add({
      ...node,
      name: 'parent',
      opts: { delay: HOUR_MS },
      children: [{ ...node, name: 'child' }],
    })
    const taker = new Taker(shop, queue)
    const child = await taker.take()
    const clock = new SkewedDate()
    clock.set(aheadMs)
    await expectDelayed(queue, HOUR_MS, async () => {
      await taker.complete(child)
      return idOf(job)
    })
  })

  test.each([
    ['with a shape', { capacity: 1000 }],
    ['without one', undefined],
  ])('holds deadlines against the clock of Redis (%s)', async (_what, shape) => {
    const queue = shop.queue(shape)
    const flows = new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })
    onTestFinished(() => flows.close())
    await queue.waitUntilReady()
    const now = await redisMs()
    const ahead = { mustStartBefore: new Date(now + HOUR_MS) }
    const over = { mustStartBefore: new Date(now - HOUR_MS) }
    const clock = new SkewedDate()
    clock.set(aheadMs)
    const ways = [
      (opts: object) => queue.add('one', {}, opts),
      (opts: object) => queue.addBulk(many(2, opts)),
      (opts: object) => queue.addBulk(many(201, opts)),
      (opts: object) => queue.addOnce(many(1, opts), { key: JSON.stringify(opts), fingerprint: 'f' }),
      (opts: object) => flows.add({ name: 'flow', queueName: queue.name, data: {}, opts }),
      (opts: object) => Promise.all(many(8, opts).map(({ name, data }) => queue.add(name, data, opts))),
    ]
    for (const add of ways) {
      await add(ahead)
      const count = await queue.count()
      const error = await rejection(add(over))
      expect(error).toBeInstanceOf(InvalidDeadlineError)
      expect(error.message).toMatch(/^mustStartBefore must be in the future; got .*Z, which is 36\d{5} ms ago$/)
      const early = { ...ahead, delay: 2 * HOUR_MS }
      expect((await rejection(add(early))).message).toContain('must not lie before the end of the delay')
      expect(await queue.count()).toBe(count)
    }
  })

  test.each([{}, { immediately: true }])(
    'finds the next time of a pattern on the clock of Redis (%j)',
    async (extra) => {
      const queue = shop.queue({ rate: '1000/s' })
      const clock = new SkewedDate()
      clock.set(aheadMs)
      const before = await redisMs()
      await queue.upsertJobScheduler('cron', { pattern: '0 */10 * * * *', ...extra })
      const first = (await queue.getJobScheduler('cron'))?.next as number
      const distanceMs = 'immediately' in extra ? 0 : HOUR_MS / 6
      expect(first).toBeGreaterThanOrEqual(Math.floor(before))
      expect(first).toBeLessThanOrEqual((await redisMs()) + distanceMs + 1)
      if (distanceMs > 0) return expect(first % (HOUR_MS / 6)).toBe(0)
      const departures = departuresOf(shop.worker(queue, async () => undefined))
      await departures.reach(1)
      const next = (await queue.getJobScheduler('cron'))?.next as number
      expect(next % (HOUR_MS / 6)).toBe(0)
      expect(next).toBeGreaterThan(before)
      expect(next).toBeLessThanOrEqual((await redisMs()) + HOUR_MS / 6)
      expect(await queue.getDelayedCount()).toBe(1)
    },
  )

  test('makes the iterations of a scheduler at its distance, and the next worker goes on there', async () => {
    const queue = shop.queue({ rate: '1000/s' })
    const clock = new SkewedDate()
    await queue.upsertJobScheduler('tick', { every: HOUR_MS / 2 })
    clock.set(aheadMs)
    await departuresOf(shop.worker(queue, async () => undefined)).reach(1)
    const [first] = await queue.getJobSchedulers()
    // The first left at once; the second is one distance after it, whoever's clock was looked at.
    const next = first?.next as number
    const now = await redisMs()
    expect(next).toBeGreaterThan(now + HOUR_MS / 2 - 10_000)
    expect(next).toBeLessThanOrEqual(now + HOUR_MS / 2)
    const [id] = await client.zrange(queue.toKey('delayed'), '0', '-1')
    expect(await dueMs(queue, id as string)).toBe(next)
  })
})

test('without a shape delays are those of BullMQ: they count on the clocks of clients', async () => {
  const queue = shop.queue()
  const clock = new SkewedDate()
  clock.set(2 * HOUR_MS)
  const before = await redisMs()
  const job = await queue.add('job', {}, { delay: HOUR_MS })
  expect(await dueMs(queue, idOf(job))).toBeGreaterThanOrEqual(before + 3 * HOUR_MS - 1)
})
