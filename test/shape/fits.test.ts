import { expect, test } from 'vitest'
import type { ShapedJobsOptions, ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Record as Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const WHO = { by: 'ops', reason: 'test' }

/** What adds read of the shape, without its identity; undefined if there is nothing for this revision. */
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
])('of %o adds read %o', async (shape, expected) => {
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

/** How many calls of the script were left to all its checks: jobs that certainly fit have a shorter reply. */
async function checked(queue: ShapedQueue, add: () => Promise<unknown>): Promise<number> {
  await queue.waitUntilReady()
  const client = (await queue.getBackend().client) as unknown as { runCommand(name: string, args: unknown[]): unknown }
  const run = client.runCommand.bind(client)
  const replies: unknown[] = []
  client.runCommand = async (name, args) => {
    const reply = await run(name, args)
    if (/:add(-bulk)?$/.test(name)) replies.push(reply)
    return reply
  }
  await add()
  client.runCommand = run
  expect(replies.length).toBeGreaterThan(0)
  return replies.filter((reply) => Array.isArray(reply) && reply.length > 5).length
}

const TIMED = { capacity: 99, rate: '10/s' as const, burst: 2 }

test.each<[shape: object, opts: ShapedJobsOptions, calls: number]>([
  [{ capacity: 99 }, {}, 0],
  [{ capacity: 99 }, { jobId: 'given', deduplication: { id: 'd' } }, 0],
  [TIMED, { priority: 3, cost: 2 }, 0],
  [TIMED, { lifo: true }, 0],
  // It may be due before any sleeper asks.
  [TIMED, { delay: 60_000 }, 1],
  [TIMED, { mustStartBefore: Date.now() + 3_600_000 }, 1],
  [{ capacity: 99, maxWaitMs: 60_000 }, {}, 1],
  [{ capacity: 99, priorityAgeingMs: 60_000 }, {}, 1],
  [{ capacity: 99, mode: 'shadow' }, {}, 1],
  [{ capacity: 99, groups: {} }, {}, 1],
])('with %o an add of %o is checked: %d', async (shape, opts, calls) => {
  const queue = shop.queue(shape)
  expect(await checked(queue, () => queue.add('job', {}, opts))).toBe(calls)
  expect(await checked(queue, () => queue.addBulk([{ name: 'job', data: {}, opts: { ...opts, jobId: 'b' } }]))).toBe(
    calls,
  )
})

test('a job that asks for its start is checked, and one beside a delayed one that may have to wake a worker', async () => {
  const queue = shop.queue(TIMED)
  expect(await checked(queue, () => queue.offer('job', {}))).toBe(1)
  await queue.add('job', {}, { delay: 60_000 })
  expect(await checked(queue, () => queue.add('job', {}))).toBe(1)
})

test.each<[opts: ShapedJobsOptions, calls: number]>([
  [{}, 0],
  [{ group: { id: 'a', priority: 1 } }, 1],
  [{ delay: 60_000 }, 1],
  [{ deduplication: { id: 'd' } }, 1],
])('in a queue with groups a bulk with one of %o is checked: %d', async (opts, calls) => {
  const queue = shop.queue({ capacity: 99, groups: {} })
  const jobs = [{}, opts].map((more) => ({ name: 'job', data: {}, opts: { group: { id: 'a' }, ...more } }))
  expect(await checked(queue, () => queue.addBulk(jobs))).toBe(calls)
})

test('the parts of a large bulk take their claimed places, in their order, and are not checked again', async () => {
  const queue = shop.queue({ capacity: 1000, rate: '10/s' })
  await queue.waitUntilReady()
  const bulk = Array.from({ length: 320 }, (_, i) => ({ name: 'job', data: { i } }))
  expect(await checked(queue, () => queue.addBulk(bulk))).toBe(0)
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
