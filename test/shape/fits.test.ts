import { expect, test, vi } from 'vitest'
import { QueueFullError, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Record as Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const WHO = { by: 'ops', reason: 'test' }

/** What the short scripts read of the shape, without its identity; undefined if there is nothing for this revision. */
async function fits(queue: ShapedQueue): Promise<string | undefined> {
  const stored = await redis.client().hmget(queue.toKey('meta:shape'), 'born', 'rev', 'fits')
  const [born, rev, text] = stored
  return text?.startsWith(`${born}:${rev} `) ? text.slice(`${born}:${rev} `.length) : undefined
}

test.each([
  [{ capacity: 7 }, '7  '],
  [{ capacity: 7, reservedPlaces: { 1: 2 } }, '5  '],
  [{ capacity: 7, rate: '10/s' as const, burst: 3 }, '7 t 3'],
  [{ rate: '10/s' as const }, ' t 1'],
  [{ limits: [{ name: 'day', rate: '1000/day' as const }] }, ' t '],
  [{ concurrency: 3 }, '  '],
  [{ capacity: 7, maxWaitMs: 1000, rate: '10/s' as const }, undefined],
  [{ capacity: 7, groups: {} }, undefined],
  [{ capacity: 7, priorityAgeingMs: 1000 }, undefined],
  [{ capacity: 7, mode: 'shadow' as const }, undefined],
])('of %o the short scripts read %o', async (shape, expected) => {
  const queue = shop.queue(shape)
  await queue.waitUntilReady()
  expect(await fits(queue)).toBe(expected)
})

test('it is of every revision: overrides, pauses and their ends', async () => {
  const queue = shop.queue({ capacity: 7, rate: '10/s' })
  await queue.setShape({ capacity: 4 }, WHO)
  expect(await fits(queue)).toBe('4 t 1')
  await queue.pauseUntil(Date.now() + 60_000, WHO)
  expect(await fits(queue)).toBe('4 t 1')
  await queue.clearPause()
  expect(await fits(queue)).toBe('4 t 1')
  await queue.setShape({ capacity: 5 }, { ...WHO, ttlMs: 60_000 })
  expect(await fits(queue)).toBeUndefined()
  await queue.clearShape()
  expect(await fits(queue)).toBe('7 t 1')
})

test('a bound that an older version lowered, which leaves the field as it was, holds', async () => {
  const queue = shop.queue({ capacity: 7 })
  await queue.add('job', {})
  await redis.client().hset(queue.toKey('meta:shape'), 'capacity', 1)
  await redis.client().hincrby(queue.toKey('meta:shape'), 'rev', 1)
  await expect(queue.add('job', {})).rejects.toThrow(QueueFullError)
  const other = shop.queueNamed(queue.name, { capacity: 7 })
  await expect(other.add('job', {})).rejects.toThrow(QueueFullError)
  expect(await queue.getWaitingCount()).toBe(1)
})

test('the parts of a large bulk are added by the short script, in their order', async () => {
  const queue = shop.queue({ capacity: 1000, rate: '10/s' })
  await queue.waitUntilReady()
  const client = (await queue.getBackend().connection.client) as unknown as Record<string, () => unknown>
  const full = Object.keys(client).find((name) => name.endsWith(':admit-bulk')) as string
  const spy = vi.spyOn(client, full)
  await queue.addBulk(Array.from({ length: 320 }, (_, i) => ({ name: 'job', data: { i } })))
  expect(spy).not.toHaveBeenCalled()
  const jobs = await queue.getWaiting(0, -1)
  expect(jobs.map(({ data }) => data.i)).toEqual(Array.from({ length: 320 }, (_, i) => i))
  const claims = await redis.client().hmget(queue.toKey('meta:shape'), 'claimed')
  expect(claims).toEqual(['0'])
})

/** Whether the shape says that nothing holds the jobs. */
async function isOpen(queue: ShapedQueue): Promise<boolean> {
  const [born, rev, open] = await redis.client().hmget(queue.toKey('meta:shape'), 'born', 'rev', 'open')
  return open === `${born}:${rev}`
}

test.each([
  [{ capacity: 7 }, true],
  [{ capacity: 7, maxWaitMs: 1000, concurrency: 2, audit: 10 }, true],
  [{ rate: '10/s' as const }, false],
  [{ rate: '10/s' as const, mode: 'off' as const }, false],
  [{ limits: [{ name: 'day', rate: '1000/day' as const }] }, false],
  [{ groups: {} }, false],
  [{ priorityAgeingMs: 1000 }, false],
])('of %o ends read that nothing holds the jobs: %s', async (shape, expected) => {
  const queue = shop.queue(shape)
  await queue.waitUntilReady()
  expect(await isOpen(queue)).toBe(expected)
})

test('ends read that nothing holds the jobs of each revision without a pause and an expiry', async () => {
  const queue = shop.queue({ capacity: 7 })
  await queue.pauseUntil(Date.now() + 60_000, WHO)
  expect(await isOpen(queue)).toBe(false)
  await queue.clearPause()
  expect(await isOpen(queue)).toBe(true)
  await queue.setShape({ capacity: 5 }, { ...WHO, ttlMs: 60_000 })
  expect(await isOpen(queue)).toBe(false)
  await queue.clearShape()
  expect(await isOpen(queue)).toBe(true)
})

test('a rate that an older version set, which leaves the field as it was, holds the next jobs', async () => {
  const queue = shop.queue({ capacity: 7 })
  await queue.addBulk(Array.from({ length: 3 }, (_, i) => ({ name: 'job', data: { i } })))
  const key = queue.toKey('meta:shape')
  const ended = new Seen<string>()
  const worker = shop.worker(queue, async () => {
    await redis.client().hset(key, 'rate', '[1,60000]', 'interval', '60000000')
    await redis.client().hincrby(key, 'rev', 1)
  })
  worker.on('completed', ({ id }) => ended.add(id as string))
  // The second takes the burst of the new rate.
  await ended.reach(2)
  expect(await queue.getWaitingCount()).toBe(1)
})
