import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import type { QueueFullError, ShapedQueue } from '../../src/index.ts'
import { ShapedFlowProducer } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, gate, Workshop } from '../worker/support.ts'
import { expectUntil, many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

/** A full queue whose last slot is granted: the next one is a whole interval away, whatever the clock does meanwhile. */
async function fullQueue(shape: { rate: string; burst?: number; capacity: number }): Promise<[ShapedQueue, Taker]> {
  const queue = shop.queue(shape)
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(shape.burst ?? 1))
  for (let n = 0; n < (shape.burst ?? 1); n++) await taker.take()
  await queue.addBulk(many(shape.capacity))
  return [queue, taker]
}

/** What a producer is told, and the two reads of Redis's clock that it was told between. */
async function told(queue: ShapedQueue, attempt: () => Promise<unknown>) {
  const before = await queue.meter()
  const { retryAfterMs } = await rejection<{ retryAfterMs: number } & Error>(attempt())
  const after = await queue.meter()
  expect(Number.isSafeInteger(retryAfterMs) && retryAfterMs >= 1).toBe(true)
  return { ms: retryAfterMs, head: before.nextDepartureAt as Date, before: before.at, after: after.at }
}

/** Nobody takes jobs, for a moment only. */
function expectPatient({ paused, retryAfterMs }: QueueFullError): void {
  expect(paused).toBe(false)
  expect(retryAfterMs).toBeGreaterThanOrEqual(100)
  expect(retryAfterMs).toBeLessThanOrEqual(1000)
}

const later = (date: Date, ms: number) => new Date(date.getTime() + ms)

test('one place is free when the head of the queue leaves', async () => {
  const [queue] = await fullQueue({ rate: '1/h', capacity: 3 })
  const { ms, head, before, after } = await told(queue, () => queue.add('job', {}))
  expect(head.getTime() - after.getTime()).toBeGreaterThan(HOUR_MS - 10_000)
  expectUntil(ms, head, before, after)
})

test('a worker that sleeps on past the head, for what is not known yet, does not count', async () => {
  const [queue] = await fullQueue({ rate: '1/h', capacity: 3 })
  const nextUs = ((await queue.meter()).nextDepartureAt as Date).getTime() * 1000
  await redis.client().zadd(queue.toKey('meta:sleepers'), nextUs + 60_000_000, 'a worker')
  const { ms, head, before, after } = await told(queue, () => queue.add('job', {}))
  expectUntil(ms, head, before, after)
})

test('the n places of a bulk are free when the n-th job leaves', async () => {
  const [queue] = await fullQueue({ rate: '1/h', capacity: 5 })
  const { ms, head, before, after } = await told(queue, () => queue.addBulk(many(4)))
  expectUntil(ms, later(head, 3 * HOUR_MS), before, after)
})

test('where one job runs at a time, many places take as many runs', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.addBulk(many(100))
  const run = gate()
  const worker = shop.worker(queue, async ({ id, data }) => {
    // The first one has run for a second.
    if (data.n === 0) await redis.client().hincrby(queue.toKey(id as string), 'processedOn', -1000)
    else await run.opened
  })
  shop.keep({ close: async () => run.open() })
  await departuresOf(worker).reach(2)
  await queue.addBulk(many(2))
  const some = await told(queue, () => queue.addBulk(many(64)))
  const all = await told(queue, () => queue.addBulk(many(100)))
  expect(Math.abs(all.ms / some.ms - 100 / 64)).toBeLessThan(0.1)
})

test('places that are free already are not waited for', async () => {
  const [queue, taker] = await fullQueue({ rate: '1/h', burst: 2, capacity: 5 })
  await queue.setShape({ capacity: 6 }, { by: 'test', reason: 'one place is free' })
  const { ms, head, before, after } = await told(queue, () => queue.addBulk(many(4)))
  expectUntil(ms, later(head, 2 * HOUR_MS), before, after)
  expect(await taker.tryTake()).toBeUndefined()
})

test('a queue over its capacity tells when it is below again', async () => {
  const [queue] = await fullQueue({ rate: '1/h', capacity: 5 })
  await queue.setShape({ capacity: 3 }, { by: 'test', reason: 'smaller' })
  const { ms, head, before, after } = await told(queue, () => queue.add('job', {}))
  expectUntil(ms, later(head, 2 * HOUR_MS), before, after)
})

test('the head counts with its own cost', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3, capacity: 2 })
  const taker = new Taker(shop, queue)
  await queue.setShape({ capacity: 10 }, { by: 'test', reason: 'room' })
  await queue.addBulk(many(3))
  for (let n = 0; n < 3; n++) await taker.take()
  await queue.addBulk([...many(1, { cost: 3 }), ...many(1)])
  await queue.setShape({ capacity: 2 }, { by: 'test', reason: 'full' })
  const { ms, head, before, after } = await told(queue, () => queue.add('job', {}))
  expect(head.getTime() - after.getTime()).toBeGreaterThan(3 * HOUR_MS - 10_000)
  expectUntil(ms, head, before, after)
})

test('the places of a flow are free when as many jobs have left as it has in that queue', async () => {
  const [queue] = await fullQueue({ rate: '1/h', capacity: 5 })
  const { connection, prefix } = redis
  const producer = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const child = { name: 'child', queueName: queue.name }
  const { ms, head, before, after } = await told(queue, () =>
    producer.add({ name: 'parent', queueName: queue.name, children: [child, child] }),
  )
  expectUntil(ms, later(head, 2 * HOUR_MS), before, after)
})

test("the meter's pause is waited for", async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 2 })
  await queue.addBulk(many(2))
  const until = new Date(Math.floor(Date.now()) + HOUR_MS)
  await queue.pauseUntil(until, { reason: 'maintenance' })
  const first = await told(queue, () => queue.add('job', {}))
  expectUntil(first.ms, until, first.before, first.after)
  expect(await refusal(queue)).toMatchObject({ paused: true })
  const second = await told(queue, () => queue.addBulk(many(2)))
  expectUntil(second.ms, later(until, 20), second.before, second.after)
  await queue.clearPause()
  expectPatient(await refusal(queue))
})

test('in a pause without an end: a minute', async () => {
  const [queue] = await fullQueue({ rate: '50/s', capacity: 2 })
  await queue.pause()
  expect(await refusal(queue)).toMatchObject({ retryAfterMs: 60_000, paused: true, depth: 2 })
  await queue.resume()
  expectPatient(await refusal(queue))
})

test('where nobody takes jobs: as long again as it has been so, 100 ms to a second', async () => {
  for (const shape of [{}, { rate: '50/s' }]) {
    const queue = shop.queue({ ...shape, capacity: 2 })
    await queue.addBulk(many(2))
    expect((await refusal(queue)).retryAfterMs).toBeGreaterThanOrEqual(100)
    expectPatient(await refusal(queue))
    const old = shop.queue({ ...shape, capacity: 2 })
    await old.addBulk(many(2, { timestamp: Date.now() - HOUR_MS }))
    expect(await refusal(old)).toMatchObject({ retryAfterMs: 1000 })
  }
})

test('a bulk and a flow are told how many places they need', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 5 })
  await queue.addBulk(many(4))
  const bulk = await rejection<QueueFullError>(queue.addBulk(many(3)))
  expect(bulk).toMatchObject({ depth: 4, capacity: 5, needed: 3 })
  expect(bulk.message).toContain(' is full (4 of 5, 3 needed): try again in ')
  const { connection, prefix } = redis
  const producer = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const child = { name: 'child', queueName: queue.name }
  const flow = producer.add({ name: 'parent', queueName: queue.name, children: [child, child, child] })
  expect(await rejection(flow)).toMatchObject({ depth: 4, capacity: 5, needed: 4 })
  await queue.add('job', {})
  expect(await refusal(queue)).toMatchObject({ depth: 5, capacity: 5, needed: 1 })
})

/** When a delayed job is due, on Redis's clock. */
async function dueAt(queue: ShapedQueue, job: Job | undefined): Promise<Date> {
  const client = (await queue.getBackend().client) as unknown as { zscore(key: string, id: string): Promise<string> }
  return new Date(Math.floor(Number(await client.zscore(queue.toKey('delayed'), job?.id as string)) / 4096))
}

test('where delayed jobs hold the places, not before the first of them is due', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 2 })
  const [near, far] = await queue.addBulk([
    { name: 'near', data: {}, opts: { delay: HOUR_MS } },
    { name: 'far', data: {}, opts: { delay: 2 * HOUR_MS } },
  ])
  const one = await told(queue, () => queue.add('job', {}))
  expectUntil(one.ms, await dueAt(queue, near), one.before, one.after)
  const two = await told(queue, () => queue.addBulk(many(2)))
  expectUntil(two.ms, await dueAt(queue, far), two.before, two.after)
})

test('where parents that wait for their children hold the places: a second', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 1 })
  const other = shop.queue()
  const { connection, prefix } = redis
  const producer = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  await producer.add({ name: 'p', queueName: queue.name, children: [{ name: 'c', queueName: other.name }] })
  expect(await refusal(queue)).toMatchObject({ retryAfterMs: 1000, depth: 1 })
})

test.each([
  { rate: '1000000/s', capacity: 1 },
  { rate: '1/365day', capacity: 1 },
  { rate: '1/1e200ms', capacity: 1 },
  { rate: '1e200/ms', capacity: 1 },
])('it is always a finite positive integer: $rate', async (shape) => {
  const [queue] = await fullQueue(shape)
  const { retryAfterMs } = await refusal(queue)
  expect(Number.isSafeInteger(retryAfterMs) && retryAfterMs >= 1).toBe(true)
})
