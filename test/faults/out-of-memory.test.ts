import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { vi } from 'vitest'
import { PauseQueueError, QueueUnavailableError, type Shape, type ShapedQueue } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { ShardedQueue, ShardedWorker } from '../../src/sharding/index.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { worstExcess } from './support/bound.ts'
import { dumpQueue } from './support/dump.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

useConcurrentTests()

/** It is renewed after half of that: a busy machine may be late. */
const LOCK_MS = 6000

/** Leaves the server without memory for anything new. */
async function fillUp(admin: Redis): Promise<void> {
  await admin.config('SET', 'maxmemory', '1')
}

async function giveMemory(admin: Redis): Promise<void> {
  await admin.config('SET', 'maxmemory', '0')
}

async function start(shape: Shape = { rate: '200/s', burst: 5, capacity: 1000 }) {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape })
  await queue.waitUntilReady()
  return { admin: adminOf(service.url), connection, fleet, queue }
}

// Fault table, row 19.
test('Redis out of memory: admissions are refused as unavailable and nothing is half written', async () => {
  const { admin, queue } = await start()
  await queue.add('job', {})
  const before = await dumpQueue(admin, 'bull:mail:')
  await fillUp(admin)
  const attempts = [
    () => queue.add('job', {}),
    () => queue.add('job', {}, { jobId: 'given', priority: 2 }),
    () => queue.add('job', {}, { delay: 1000 }),
    () => queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'job', data: {} }))),
    () => queue.addBulk(Array.from({ length: 250 }, () => ({ name: 'job', data: {} }))),
    () => queue.offer('job', {}),
  ]
  for (const attempt of attempts) {
    const error = await attempt().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect((error as QueueUnavailableError).mayBeStored).toBe(false)
  }
  expect(await dumpQueue(admin, 'bull:mail:')).toEqual(before)
  await giveMemory(admin)
  await queue.add('job', {})
})

test('Redis out of memory in the middle of a bulk: the error says which of its jobs are in', async () => {
  const { admin, queue } = await start({ capacity: 10_000 })
  const usedBytes = Number(/^used_memory:(\d+)/m.exec(await admin.info('memory'))?.[1])
  await admin.config('SET', 'maxmemory', String(usedBytes + 3_000_000))
  const jobs = Array.from({ length: 1500 }, (_, n) => ({ name: 'job', data: { n, filling: 'x'.repeat(4000) } }))
  const error = (await queue.addBulk(jobs).catch((reason: unknown) => reason)) as QueueUnavailableError
  await giveMemory(admin)
  expect(error).toBeInstanceOf(QueueUnavailableError)
  expect(error.mayBeStored).toBe(true)
  expect(error.message).toMatch(/OOM .*; the job may have been stored$/)
  const present = await queue.getWaiting()
  expect(present.length).toBeGreaterThan(0)
  const { addedIds = [] } = error
  expect(addedIds).toHaveLength(jobs.length)
  expect(addedIds).not.toContain(null)
  expect(addedIds.filter(Boolean)).toEqual(present.map(({ id }) => id))
  expect(addedIds.map((id, n) => id && n).filter(Boolean)).toEqual(present.map(({ data }) => data.n).filter(Boolean))
})

/** Adds whatever Redis takes, until the test ends, as a fleet of producers does. */
function keepAdding(queue: ShapedQueue): { refused: QueueUnavailableError[] } {
  const refused: QueueUnavailableError[] = []
  let over = false
  const add = async () => {
    while (!over) await queue.add('more', { filling: 'x'.repeat(500) }).catch((error) => refused.push(error))
  }
  const adding = [add(), add()]
  onTestFinished(async () => {
    over = true
    await Promise.all(adding)
  })
  return { refused }
}

test.each([
  ['a rate', { rate: '200/s', burst: 5 }],
  ['no rate', { capacity: 1000 }],
])('Redis out of memory: the queue drains while producers go on, with %s', async (_name, shape) => {
  const { admin, connection, fleet, queue } = await start(shape)
  const ids = idsOf(await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {} }))))
  await fillUp(admin)
  const { refused } = keepAdding(queue)
  fleet.worker('mail', { connection, concurrency: 10, lockDuration: LOCK_MS, removeOnComplete: { count: 0 } }, () =>
    // Longer than the lock lasts, if it is not renewed.
    sleep(fleet.departures.length <= 10 ? 1.1 * LOCK_MS : 1),
  )
  await fleet.until(() => fleet.completed.length === ids.length)
  expect(fleet.failed).toEqual([])
  expect(new Set(fleet.departures.map(({ jobId }) => jobId)).size).toBe(fleet.departures.length)
  expect(fleet.errors.filter(({ error }) => !error.message.startsWith('OOM'))).toEqual([])
  expect(new Set(fleet.completed)).toEqual(new Set(ids))
  if ('rate' in shape) expect(worstExcess(fleet.slotsUs, { intervalUs: 5000, burst: 5 })).toBeLessThanOrEqual(0)
  expect(refused.length).toBeGreaterThan(0)
  for (const error of refused) expect(error).toMatchObject({ mayBeStored: false, message: /OOM/ })
  await giveMemory(admin)
  await queue.add('job', {})
})

test('Redis out of memory: what is kept for people goes first, jobs that go back and pauses are stored', async () => {
  const { admin, connection, fleet, queue } = await start({ rate: '5/s', horizonMs: 2000, audit: 100 })
  const [kept, coarse] = [
    ['meta:series:2', 'meta:audit'].map((key) => queue.toKey(key)),
    queue.toKey('meta:series:120'),
  ]
  const inspector = new Inspector({ connection })
  onTestFinished(() => inspector.close())
  const deletedAt = async () => (await inspector.status(['mail']))[0]?.samplesDeletedAt
  await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'job', data: {} })))
  const worker = fleet.worker('mail', { connection, concurrency: 20 })
  await fleet.until(() => fleet.departures.length >= 2)
  await vi.waitFor(async () => expect(await admin.exists(...kept)).toBe(2), 60_000)
  expect(await deletedAt()).toBeUndefined()
  await fillUp(admin)
  await vi.waitFor(async () => expect(await admin.exists(...kept)).toBe(0), 60_000)
  expect(await admin.exists(coarse)).toBe(1)
  expect(Math.abs(Date.now() - ((await deletedAt())?.getTime() ?? 0))).toBeLessThan(60_000)
  await queue.pauseUntil(Date.now() + 60_000, { reason: 'full' })
  await worker.close()
  expect(await queue.getJobCountByTypes('active')).toBe(0)
  expect((await queue.meter()).pausedUntil).toBeDefined()
})

/** How jobs end, and whether they run a second time. */
const ends: Readonly<Record<string, { options: object; first: () => Promise<unknown>; runs: number }>> = {
  'fail, to be tried again at once': {
    options: { attempts: 2 },
    first: () => Promise.reject(new Error('once')),
    runs: 2,
  },
  'fail, to be tried again later': {
    options: { attempts: 2, backoff: 10 },
    first: () => Promise.reject(new Error('once')),
    runs: 2,
  },
  'were throttled': {
    options: {},
    first: () => Promise.reject(new PauseQueueError({ retryAfterMs: 1, reason: '429' })),
    runs: 2,
  },
  'fail for good, and leave a dead letter': {
    options: {},
    first: () => Promise.reject(new Error('for good')),
    runs: 1,
  },
}

test.each(Object.entries(ends))(
  'Redis out of memory: jobs that %s are not held up',
  async (_name, { options, first, runs }) => {
    const { admin, connection, fleet, queue } = await start()
    const all = Array.from({ length: 20 }, () => ({ name: 'job', data: {}, opts: options }))
    const ids = idsOf(await queue.addBulk(all))
    const counts = new Map(ids.map((id) => [id, 0]))
    await fillUp(admin)
    fleet.worker('mail', { connection, concurrency: 10, deadLetter: 'dead' }, async ({ id }) => {
      counts.set(id as string, (counts.get(id as string) ?? 0) + 1)
      if (counts.get(id as string) === 1) await first()
    })
    const ended = () => (runs === 1 ? fleet.failed : fleet.completed)
    await fleet.until(() => ended().length === ids.length)
    expect([...counts.values()]).toEqual(ids.map(() => runs))
    if (runs === 1) expect(await admin.llen('bull:dead:wait')).toBe(ids.length)
  },
)

test('Redis out of memory: schedulers go on', async () => {
  const { admin, connection, fleet, queue } = await start()
  await queue.upsertJobScheduler('tick', { every: 20 }, { name: 'tick' })
  await fillUp(admin)
  fleet.worker('mail', { connection })
  await fleet.until(() => fleet.completed.length >= 5)
  expect(fleet.failed).toEqual([])
})

test('Redis out of memory: workers that start meanwhile, with a shape of their own, drain a sharded queue', async () => {
  const service = await startOwnRedis()
  const [admin, connection] = [adminOf(service.url), quickConnection(service.url)]
  const shared = { connection, shards: 2, shape: { rate: '200/s', burst: 5, capacity: 1000, maxLatenessMs: 60_000 } }
  const queue = new ShardedQueue('mail', shared)
  onTestFinished(() => queue.close())
  const ids = idsOf(await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {} }))))
  await fillUp(admin)
  const done: string[] = []
  const worker = new ShardedWorker('mail', async ({ id }) => done.push(id as string), { ...shared, concurrency: 10 })
  const errors: Error[] = []
  worker.on('error', (error) => errors.push(error))
  onTestFinished(() => worker.close())
  await expect.poll(() => done.length).toBe(ids.length)
  expect(new Set(done)).toEqual(new Set(ids))
  expect(errors).toEqual([])
})
