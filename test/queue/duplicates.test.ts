import { expect, test } from 'vitest'
import { QueueFullError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test('a job id that exists passes a full queue and adds nothing', async () => {
  const queue = shop.queue({ capacity: 1 })
  await queue.add('job', { n: 1 }, { jobId: 'same' })
  const again = await queue.add('job', { n: 2 }, { jobId: 'same' })
  expect(again.id).toBe('same')
  expect((await queue.getJob('same'))?.data).toEqual({ n: 1 })
  expect(await queue.getJobCountByTypes('waiting')).toBe(1)
  expect(await rejection(queue.add('job', {}, { jobId: 'other' }))).toBeInstanceOf(QueueFullError)
})

test('also when the job with that id has finished and is kept', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  await queue.add('job', {}, { jobId: 'done' })
  await taker.complete(await taker.take())
  await queue.add('filler', {})
  expect((await queue.add('job', {}, { jobId: 'done' })).id).toBe('done')
  await refusal(queue)
})

test('duplicates in a bulk count once, those that exist count not at all', async () => {
  const queue = shop.queue({ capacity: 3 })
  const job = (jobId: string) => ({ name: 'job', data: {}, opts: { jobId } })
  await queue.add('job', {}, { jobId: 'a' })
  const added = await queue.addBulk(['a', 'b', 'b', 'c', 'a'].map(job))
  expect(added.map(({ id }) => id)).toEqual(['a', 'b', 'b', 'c', 'a'])
  expect(await queue.getJobCountByTypes('waiting')).toBe(3)
  await queue.addBulk(['a', 'b'].map(job))
  expect(await rejection(queue.addBulk(['a', 'd'].map(job)))).toMatchObject({ name: 'QueueFullError', depth: 3 })
})

test('a live deduplication id passes a full queue', async () => {
  const queue = shop.queue({ capacity: 1 })
  const first = await queue.add('job', {}, { deduplication: { id: 'd' } })
  const again = await queue.add('job', {}, { deduplication: { id: 'd' } })
  expect(again.id).toBe(first.id)
  expect(await rejection(queue.add('job', {}, { deduplication: { id: 'e' } }))).toBeInstanceOf(QueueFullError)
})

test('a deduplication id in a bulk counts once', async () => {
  const queue = shop.queue({ capacity: 1 })
  await queue.addBulk(many(3, { deduplication: { id: 'd' } }))
  expect(await queue.getJobCountByTypes('waiting')).toBe(1)
})

test('a deduplication id whose time is not over is live although its job is gone', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  const opts = { deduplication: { id: 'd', ttl: 60_000 }, removeOnComplete: true }
  const first = await queue.add('job', {}, opts)
  await taker.complete(await taker.take())
  expect(await queue.getJob(first.id!)).toBeUndefined()
  await queue.add('filler', {})
  expect((await queue.add('job', {}, opts)).id).toBe(first.id)
  expect(await queue.getJobCountByTypes('waiting')).toBe(1)
})

test('a deduplication id without an end whose job is gone is not live: BullMQ would add the job', async () => {
  const queue = shop.queue({ capacity: 1 })
  const client = redis.client()
  await queue.add('filler', {})
  await client.set(queue.toKey('de:d'), 'gone')
  expect(await rejection(queue.add('job', {}, { deduplication: { id: 'd' } }))).toBeInstanceOf(QueueFullError)
})

test('replace takes the place of the delayed job in a full queue', async () => {
  const queue = shop.queue({ capacity: 1 })
  const opts = { delay: 60_000, deduplication: { id: 'd', ttl: 60_000, replace: true, extend: true } }
  const first = await queue.add('job', { n: 1 }, opts)
  const second = await queue.add('job', { n: 2 }, opts)
  expect(second.id).not.toBe(first.id)
  expect((await queue.getDelayed()).map(({ data }) => data)).toEqual([{ n: 2 }])
  await refusal(queue)
})

test('keepLastIfActive is kept and comes in when the active job ends, into a full queue', async () => {
  const queue = shop.queue({ capacity: 1 })
  const taker = new Taker(shop, queue)
  const opts = { deduplication: { id: 'd', keepLastIfActive: true } }
  await queue.add('job', { n: 1 }, opts)
  const active = await taker.take()
  await queue.add('filler', {})
  await queue.add('job', { n: 2 }, opts)
  await queue.add('job', { n: 3 }, opts)
  expect(await queue.getJobCountByTypes('waiting')).toBe(1)
  await taker.complete(active)
  expect((await queue.getWaiting()).map(({ name, data }) => [name, data])).toEqual([
    ['filler', {}],
    ['job', { n: 3 }],
  ])
  await refusal(queue)
})

test('offer answers for a duplicate as for any accepted job', async () => {
  const queue = shop.queue({ rate: '1/min', capacity: 2 })
  await queue.add('first', {})
  await queue.add('job', {}, { jobId: 'same' })
  expect(await queue.offer('job', {}, { jobId: 'same' })).toMatchObject({ accepted: true, position: 1 })
})
