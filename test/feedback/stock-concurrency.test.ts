import { type Job, Queue } from 'bullmq'
import { expect, test } from 'vitest'
import type { ShapedJob, ShapedQueue, ShapedQueueOptions } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { noteEnds, setShapeFields } from '../support/shape-fields.ts'
import { asksUntil, callsOf, eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { ears, said, Told } from './support/told.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** A queue whose other side has said how many jobs may run at once, for a minute; and BullMQ's own view of it. */
async function limitedTo(limit: number, shape: ShapedQueueOptions['shape'] = { burst: 1 }, before?: number) {
  const queue = shop.queue(shape)
  const stock = shop.keep(new Queue(queue.name, { connection: redis.connection, prefix: redis.prefix }))
  await queue.waitUntilReady()
  if (before !== undefined) await stock.setGlobalConcurrency(before)
  await queue.add('job', {})
  let calls = 0
  const worker = shop.worker(
    queue,
    async () => {
      if (calls++ === 0) throw new Told({ kind: 'concurrency', limit, ttlMs: 60_000, ...said })
    },
    { feedback: ears },
  )
  await eventsOf('completed', worker).reach(1)
  await worker.close()
  return { queue, stock }
}

/** The minute is over: the next script finds it so. */
async function minuteOver(queue: ShapedQueue): Promise<void> {
  const [client, key, past] = [redis.client(), queue.toKey('meta:shape'), Date.now() - 1]
  const feedback = JSON.parse((await client.hget(key, 'feedback')) as string)
  feedback.concurrency.until = past
  await setShapeFields(client, key, { feedback: JSON.stringify(feedback), expires: past })
  await noteEnds(queue.getBackend().store)
}

test.each([
  [2, 10, 2],
  [10, 2, 2],
])('a stock queue has set %i, the other side says %i: %i hold', async (before, limit, least) => {
  const { queue, stock } = await limitedTo(limit, undefined, before)
  expect(await stock.getGlobalConcurrency()).toBe(least)
  await minuteOver(queue)
  expect(await stock.getGlobalConcurrency()).toBe(before)
})

test.each([
  ['lower', 1],
  ['higher', 7],
])('what a stock queue sets meanwhile, %s, comes into force when the limit ends', async (_, set) => {
  const { queue, stock } = await limitedTo(2)
  await stock.setGlobalConcurrency(set)
  await noteEnds(queue.getBackend().store)
  expect(await stock.getGlobalConcurrency()).toBe(Math.min(set, 2))
  await minuteOver(queue)
  expect(await stock.getGlobalConcurrency()).toBe(set)
})

test('also where no script has run in between', async () => {
  const { queue, stock } = await limitedTo(2)
  await stock.setGlobalConcurrency(7)
  await minuteOver(queue)
  expect(await stock.getGlobalConcurrency()).toBe(7)
})

test.each([{ burst: 1 }, { rate: '1000/s' }])(
  'of a queue with %j no more jobs run than the other side says',
  async (shape) => {
    const { queue, stock } = await limitedTo(1, shape as ShapedQueueOptions['shape'])
    await queue.addBulk(jobs(2))
    const { open, opened } = gate()
    const worker = shop.worker(queue, () => opened, { concurrency: 4 })
    const [active, completed, calls] = [eventsOf('active', worker), eventsOf('completed', worker), callsOf(worker)]
    await active.reach(1)
    await asksUntil(calls, 'halted')
    await stock.setGlobalConcurrency(3)
    const asked = calls.all.length
    await stock.add('job', {})
    await calls.reach(asked + 1)
    expect([active.all.length, await queue.getActiveCount()]).toEqual([1, 1])
    open()
    await completed.reach(3)
  },
)

test('nor does a job that ends fetch another, where more run than that', async () => {
  const queue = shop.queue({ burst: 1 })
  const stock = shop.keep(new Queue(queue.name, { connection: redis.connection, prefix: redis.prefix }))
  await queue.addBulk(jobs(3))
  const [fails, ends, told] = [gate(), gate(), gate()]
  const processor = async (job: Job) => {
    if (job.name === 'job0') {
      await fails.opened
      throw new Error('for a reason of its own')
    }
    await (job as ShapedJob).feedback({ kind: 'concurrency', limit: 1, ttlMs: 60_000 })
    told.open()
    await ends.opened
  }
  const worker = shop.worker(queue, processor, { concurrency: 2 })
  const [failed, completed] = [eventsOf('failed', worker), eventsOf('completed', worker)]
  await told.opened
  await stock.setGlobalConcurrency(3)
  fails.open()
  await failed.reach(1)
  expect(await queue.getActiveCount()).toBe(1)
  ends.open()
  await completed.reach(2)
})

test('what a shaped queue is given later is stronger than what a stock queue was given', async () => {
  const { queue, stock } = await limitedTo(2, { concurrency: 9 })
  await stock.setGlobalConcurrency(5)
  await queue.setGlobalConcurrency(7)
  expect(await stock.getGlobalConcurrency()).toBe(2)
  await minuteOver(queue)
  expect(await stock.getGlobalConcurrency()).toBe(7)
})

test('the shape comes back where nobody has set anything', async () => {
  const { queue, stock } = await limitedTo(2, { concurrency: 9 })
  await minuteOver(queue)
  expect([await stock.getGlobalConcurrency(), (await queue.getShape())?.concurrency]).toEqual([9, 9])
  const without = await limitedTo(2)
  await minuteOver(without.queue)
  expect(await without.stock.getGlobalConcurrency()).toBeNull()
})
