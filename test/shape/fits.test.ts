import { expect, test } from 'vitest'
import type { ShapedJobsOptions, ShapedQueue } from '../../src/index.ts'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const WHO = { by: 'ops', reason: 'test' }

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

test('each revision decides by itself: overrides, pauses and their ends', async () => {
  const queue = shop.queue({ capacity: 7, rate: '10/s' })
  const calls = () => checked(queue, () => queue.add('job', {}))
  await queue.setShape({ capacity: 4 }, WHO)
  expect(await calls()).toBe(0)
  await queue.pauseUntil(Date.now() + 60_000, WHO)
  expect(await calls()).toBe(0)
  await queue.setShape({ capacity: 5 }, { ...WHO, ttlMs: 60_000 })
  expect(await calls()).toBe(1)
  await queue.clearShape()
  expect(await calls()).toBe(0)
  await queue.setShape({ capacity: 4 }, WHO)
  await expect(queue.add('job', {})).rejects.toThrow('full')
})

/** Changes the shape, and puts another change in its place that has the same id and revision: that of another master. */
async function diverged(queue: ShapedQueue, change: object, other: object): Promise<void> {
  const [client, key] = [redis.client(), queue.toKey('meta:shape')]
  const store = async (copy: Buffer | null) => await client.restore(key, 0, copy as Buffer, 'REPLACE')
  const before = await client.dumpBuffer(key)
  await shop.queueNamed(queue.name).setShape(other, WHO)
  const after = await client.dumpBuffer(key)
  const identity = await client.hmget(key, 'born', 'rev')
  await store(before)
  await queue.setShape(change, WHO)
  expect(await client.hmget(key, 'born', 'rev')).toEqual(identity)
  // Scripts know this one now.
  await queue.add('job', {})
  await store(after)
}

test('a capacity applies that another master has stored as the same revision', async () => {
  const queue = shop.queue({ capacity: 7 })
  await queue.waitUntilReady()
  await diverged(queue, { capacity: 7 }, { capacity: 2 })
  await queue.add('job', {})
  await expect(queue.add('job', {})).rejects.toThrow('full')
})

/** Reads so many shapes, the first of them a second time at the end; returns whether the last and the first are kept. */
const READ_MANY = new LuaComposer(readLuaFile).text(`
local parsed = use 'shape/parsed'
local function read(i)
  local key = KEYS[1] .. ':' .. i
  redis.call('HSET', key, 'born', 1, 'rev', 1)
  return parsed.of(key, parsed.digest(key))
end
local first = read(1)
for i = 2, tonumber(ARGV[1]) do read(i) end
local last = tonumber(ARGV[1])
return { read(last) == read(last) and 1 or 0, read(1) == first and 1 or 0 }`)

test.each([
  [1000, [1, 1]],
  [1001, [1, 0]],
])('of %i shapes in one Redis the last is kept, and the first while they are few', async (shapes, expected) => {
  expect(await redis.client().eval(READ_MANY, 1, `${redis.prefix}:many`, shapes)).toEqual(expected)
})
