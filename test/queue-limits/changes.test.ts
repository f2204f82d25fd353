import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, jobs, settled, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const WHY = { by: 'test', reason: 'incident' }
/** One job, and the next tomorrow. */
const SHUT: QueueLimit = { name: 'shut', algorithm: 'token-bucket', rate: '1/day' }
const WIDE: QueueLimit = { name: 'wide', rate: '1000/s', burst: 10 }

/** Two workers that sleep because of a limit, with jobs waiting. */
async function sleeping(limits: QueueLimit[], count: number) {
  const queue = shop.queue({ maxLatenessMs: 60_000, limits })
  await queue.addBulk(jobs(count))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 5, autorun: false }))
  const calls = workers.map(callsOf)
  const departed = departuresOf(...workers)
  for (const worker of workers) void worker.run()
  await departed.reach(1)
  await asleep(queue, client, 2)
  // They hear what is published.
  await settled(queue, client, ...calls)
  return { queue, departed }
}

test('wider limits are felt by workers that sleep', async () => {
  const { queue, departed } = await sleeping([SHUT], 12)
  expect(departed.all).toHaveLength(1)
  await queue.setShape({ limits: [WIDE] }, WHY)
  await departed.reach(12)
  expect(await queue.getShape()).toMatchObject({
    limits: [WIDE],
    declared: { limits: { value: [SHUT] } },
    overrides: { limits: { ...WHY, value: [WIDE] } },
  })
})

test('limits: null lifts all of them for workers that sleep, and the declared ones come back', async () => {
  const { queue, departed } = await sleeping([SHUT], 8)
  await queue.setShape({ limits: null }, WHY)
  await departed.reach(8)
  expect((await queue.getShape())?.limits).toBeUndefined()
  await queue.clearShape({ fields: ['limits'] })
  expect((await queue.getShape())?.limits).toEqual([SHUT])
  // What it was charged before is remembered: its only unit is gone.
  await queue.addBulk(jobs(2))
  await asleep(queue, client)
  expect(departed.all).toHaveLength(8)
})

test('what is owed to a limit is kept for as long as it takes to pay it at a lower rate', async () => {
  const limit = { name: 'lowered', algorithm: 'token-bucket', rate: '10/min', burst: 50, prefix: redis.prefix } as const
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [{ ...limit, shared: true, version: 1 }] })
  await queue.waitUntilReady()
  const limiter = createLimiter(client, { ...limit, version: 1, timeoutMs: 10_000 })
  expect(await limiter.take(undefined, { cost: 50 })).toMatchObject({ allowed: true })
  await queue.setShape({ limits: [{ ...limit, rate: '1/day', shared: true, version: 2 }] }, WHY)
  const [state = ''] = await client.keys(`${redis.prefix}:limit:*lowered*:t:*`)
  expect(await client.pttl(state)).toBeGreaterThan(3_600_000)
})

test('limits that come at run time hold a queue that had none', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {}, { concurrency: 10 })
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(20))
  await departed.reach(20)
  const shaped = eventsOf('shape', worker)
  await queue.setShape({ limits: [{ name: 'three', algorithm: 'sliding-window-log', rate: '3/h' }] }, WHY)
  await shaped.reach(1)
  await queue.addBulk(jobs(20))
  await departed.reach(23)
  await asleep(queue, client)
  expect(departed.all).toHaveLength(23)
})

test.each([
  ['beside a rate', { rate: '1000/s' as const, burst: 100 }],
  ['without a rate', {}],
])('in shadow, limits hold nothing and count what they would have held: %s', async (_name, paced) => {
  const log: QueueLimit = { name: 'log', algorithm: 'sliding-window-log', rate: '3/h' }
  const queue = shop.queue({ ...paced, mode: 'shadow', limits: [log] })
  await queue.addBulk(jobs(9))
  await departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 })).reach(9)
  expect((await queue.meter()).shadowDelayedTotal).toBe(6)
})

test('a limit in shadow holds nothing beside one that is enforced', async () => {
  const queue = shop.queue({
    limits: [
      { ...SHUT, mode: 'shadow' },
      { name: 'five', algorithm: 'fixed-window', rate: '5/day' },
    ],
  })
  await queue.addBulk(jobs(9))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 }))
  await departed.reach(5)
  await asleep(queue, client)
  expect(departed.all).toHaveLength(5)
})
