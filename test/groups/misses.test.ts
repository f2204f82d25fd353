import { setTimeout as delay } from 'node:timers/promises'
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Shape, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { connectionOptions } from '../support/redis.ts'

// Alarms of caches look at the share of reads that miss a key. A Redis of its own counts those of nothing else.
let service: RedisService
let admin: Redis

beforeAll(async () => {
  service = await startRedis({ ignoreGiven: true })
  admin = new Redis(service.url)
})

afterAll(async () => {
  admin?.disconnect()
  await service?.stop()
})

const JOBS = 100

async function reads(): Promise<{ hits: number; misses: number }> {
  const stats = await admin.info('stats')
  const count = (name: string) => Number(new RegExp(`keyspace_${name}:(\\d+)`).exec(stats)?.[1])
  return { hits: count('hits'), misses: count('misses') }
}

/** Misses per read while a worker drains a queue. @param shape undefined for BullMQ's own queue and worker */
async function shareOfMisses(concurrency: number, shape: Shape | undefined): Promise<number> {
  await admin.flushall()
  const connection = { ...connectionOptions(service.url), maxRetriesPerRequest: null }
  const queue = shape ? new ShapedQueue('q', { connection, shape }) : new Queue('q', { connection })
  const jobs = Array.from({ length: JOBS }, (_, i) => {
    return { name: 'job', data: {}, opts: shape ? { group: { id: `g${i % 5}` } } : {} }
  })
  await queue.addBulk(jobs)
  const before = await reads()
  let completed = 0
  await new Promise<void>((resolve) => {
    const process = async () => {}
    const options = { connection, concurrency, autorun: false }
    const worker = (
      shape ? new ShapedWorker('q', process, { ...options, report: false }) : new Worker('q', process, options)
    ) as Worker
    worker.on('completed', () => {
      completed += 1
      if (completed === JOBS) worker.close().then(() => resolve())
    })
    void worker.run()
  })
  const after = await reads()
  await queue.close()
  const [hits, misses] = [after.hits - before.hits, after.misses - before.misses]
  return misses / (hits + misses)
}

test.each([1, 10])(
  'a drain of groups misses no larger share of its reads than BullMQ does, %i at once',
  async (concurrency) => {
    const stock = await shareOfMisses(concurrency, undefined)
    expect(stock).toBeGreaterThan(0)
    const limit = { name: 'day', by: 'group', algorithm: 'fixed-window', align: 'day', rate: '1000/day' } as const
    const shapes: Shape[] = [
      { groups: {} },
      { groups: { rate: '10000/s', concurrency: 3 } },
      { groups: {}, limits: [limit] },
    ]
    for (const shape of shapes) {
      expect(await shareOfMisses(concurrency, shape), JSON.stringify(shape)).toBeLessThanOrEqual(stock)
    }
  },
)

const POLLS = 40

/** Misses per poll of an idle worker that has run a job. @param shape undefined for BullMQ's own queue and worker */
async function missesPerPoll(shape: Shape | undefined): Promise<number> {
  await admin.flushall()
  const connection = { ...connectionOptions(service.url), maxRetriesPerRequest: null }
  const queue = shape ? new ShapedQueue('q', { connection, shape }) : new Queue('q', { connection })
  const process = async () => {}
  const options = { connection, autorun: false, drainDelay: 0.01 }
  const worker = (
    shape ? new ShapedWorker('q', process, { ...options, report: false }) : new Worker('q', process, options)
  ) as Worker
  const completed = new Promise((resolve) => worker.once('completed', resolve))
  void worker.run()
  await queue.add('job', {}, shape?.groups ? { group: { id: 'g' } } : {})
  await completed
  const first = await polls(1)
  const last = await polls(first.polls + POLLS)
  await worker.close()
  await queue.close()
  // A poll may be under way at either end.
  return Math.round((last.misses - first.misses) / (last.polls - first.polls))
}

/** Once a worker has waited for a job at least so often: how often it has, and the misses until then. */
async function polls(least: number): Promise<{ polls: number; misses: number }> {
  for (;;) {
    const all = await admin.info('all')
    const polls = Number(/cmdstat_bzpopmin:calls=(\d+)/.exec(all)?.[1] ?? 0)
    if (polls >= least) return { polls, misses: Number(/keyspace_misses:(\d+)/.exec(all)?.[1]) }
    await delay(10)
  }
}

test('an idle worker misses no more keys than BullMQ’s, under a rate as with groups', async () => {
  await admin.config('RESETSTAT')
  const stock = await missesPerPoll(undefined)
  expect(stock).toBe(2)
  const groups = { rate: '10000/s', concurrency: 3 } as const
  for (const shape of [{ rate: '10000/s' }, { groups: {} }, { rate: '10000/s', capacity: 1000, groups }] as Shape[]) {
    await admin.config('RESETSTAT')
    expect(await missesPerPoll(shape), JSON.stringify(shape)).toBeLessThanOrEqual(stock)
  }
})

test('a bulk of jobs in groups looks nothing up for each of them but whether its id is new', async () => {
  await admin.flushall()
  const connection = { ...connectionOptions(service.url), maxRetriesPerRequest: null }
  const queue = new ShapedQueue('q', { connection, shape: { groups: {}, capacity: 1000 } })
  await queue.add('job', {}, { group: { id: 'first' } })
  const before = await reads()
  await queue.addBulk(
    Array.from({ length: JOBS }, (_, i) => ({ name: 'job', data: {}, opts: { group: { id: `g${i}` } } })),
  )
  const after = await reads()
  // Some keys are looked up once for the whole bulk.
  expect(after.misses - before.misses).toBeLessThan(1.5 * JOBS)
  await queue.close()
})

test('a report looks up once what all samples of a queue show', async () => {
  await admin.flushall()
  await admin.config('SET', 'notify-keyspace-events', 'Em')
  const subscriber = admin.duplicate()
  const missed: string[] = []
  subscriber.on('message', (_channel, key: string) => missed.push(key))
  await subscriber.subscribe('__keyevent@0__:keymiss')
  const connection = { ...connectionOptions(service.url), maxRetriesPerRequest: null }
  const queue = new ShapedQueue('q', { connection, shape: { rate: '10000/s' } })
  const worker = new ShapedWorker('q', async () => {}, { connection, skipStalledCheck: true })
  while ((await admin.exists('bull:q:meta:series:120')) === 0) await delay(10)
  // All messages so far have arrived before the reply.
  await subscriber.ping()
  // The report makes three samples. What a worker asks when it starts may look that up once, too.
  expect(missed.filter((key) => key === 'bull:q:active').length).toBeLessThan(3)
  await worker.close()
  await queue.close()
  subscriber.disconnect()
  await admin.config('SET', 'notify-keyspace-events', '')
})
