import { type Job, Queue, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { InvalidInputError, type ShapedQueue } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { ShardedQueue, ShardedWorker } from '../../src/sharding/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Record as Seen, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const WHY = { reason: 'wrong recipients', by: 'ops' }
const NONE = { failed: 0, removed: 0, aborting: 0, stalled: 0 }

function runs(queue: ShapedQueue, concurrency = 10) {
  const begun = new Seen<Job>()
  const worker = shop.worker(
    queue,
    (job, _token, signal) => {
      begun.add(job)
      return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
    },
    { concurrency },
  )
  return { begun, failed: eventsOf<Job>('failed', worker) }
}

test('all that match fail, wherever they wait or run, and all others stay', async () => {
  const queue = shop.queue({ groups: {} })
  const { begun, failed } = runs(queue, 2)
  const group = (id: string) => ({ group: { id } })
  await queue.add('mail', {}, group('a'))
  await queue.add('mail', {}, group('b'))
  await begun.reach(2)
  await queue.addBulk([
    ...['a', 'a', 'b'].map((id) => ({ name: 'mail', data: {}, opts: group(id) })),
    { name: 'mail', data: {}, opts: { ...group('a'), delay: 60_000 } },
    { name: 'report', data: {}, opts: group('a') },
    { name: 'mail', data: {} },
    { name: 'mail', data: {}, opts: { priority: 2 } },
  ])
  expect(await queue.cancelJobs({ group: 'a', name: 'mail' }, WHY)).toEqual({ ...NONE, failed: 3, aborting: 1 })
  await failed.reach(1)
  expect(await queue.getFailedCount()).toBe(4)
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, delayed: 0 })
  expect(await queue.cancelJobs({ group: 'a', name: 'mail' }, WHY)).toEqual(NONE)
  expect(await queue.cancelJobs({}, { ...WHY, remove: true })).toMatchObject({ failed: 0, aborting: 2 })
  await failed.reach(3)
  const left = await queue.getJobCounts('waiting', 'prioritized', 'delayed', 'active')
  expect(left).toEqual({ waiting: 0, prioritized: 0, delayed: 0, active: 0 })
})

test('a long queue is gone over in parts, of which none is skipped, and the history has it once', async () => {
  const queue = shop.queue({})
  const count = 1300
  await queue.addBulk(Array.from({ length: count }, (_, i) => ({ name: i % 3 === 0 ? 'stays' : 'goes', data: {} })))
  const goes = Math.floor((count * 2) / 3)
  expect(await queue.cancelJobs({ name: 'goes' }, WHY)).toEqual({ ...NONE, failed: goes })
  expect(await queue.cancelJobs({ name: 'goes' }, WHY)).toEqual(NONE)
  expect(await queue.getJobCounts('waiting', 'failed')).toEqual({ waiting: count - goes, failed: goes })
  const changes = await shop
    .keep(new Inspector({ connection: redis.client(), prefix: shop.prefix }))
    .history(queue.name)
  expect(changes.filter(({ kind }) => kind === 'job')).toMatchObject([
    { ...WHY, change: { cancelled: goes, name: 'goes' } },
  ])
})

test('of a group, its own line is gone over, and what stock producers have added is found too', async () => {
  const queue = shop.queue({ groups: {} })
  const stock = shop.keep(new Queue(queue.name, { connection: shop.connection, prefix: shop.prefix }))
  const jobs = (count: number, opts: object) => Array.from({ length: count }, () => ({ name: 'mail', data: {}, opts }))
  await queue.addBulk(jobs(1200, { group: { id: 'other' } }))
  await queue.addBulk(jobs(60, { group: { id: 'a' } }))
  for (const opts of [{}, { priority: 3 }, { delay: 60_000 }])
    await stock.addBulk(jobs(2, { group: { id: 'a' }, ...opts }))
  const client = redis.client()
  const calls = async () => (await client.info('commandstats')).match(/cmdstat_hmget:calls=(\d+)/)?.[1]
  const before = Number(await calls())
  expect(await queue.cancelJobs({ group: 'a' }, WHY)).toEqual({ ...NONE, failed: 66 })
  expect(Number(await calls()) - before).toBeLessThan(1000)
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, delayed: 0 })
  expect(await queue.getJobCounts('prioritized', 'waiting', 'delayed')).toEqual({
    prioritized: 1200,
    waiting: 0,
    delayed: 0,
  })
})

test('a job that a stock worker has taken from the line of its group is one that runs', async () => {
  const queue = shop.queue({ groups: {} })
  const options = { connection: shop.connection, prefix: shop.prefix }
  await queue.addBulk([1, 2].map(() => ({ name: 'mail', data: {}, opts: { group: { id: 'a' } } })))
  const stock = shop.keep(new Worker(queue.name, null, options))
  const taken = await stock.getNextJob('token')
  expect(await queue.cancelJobs({ group: 'a' }, WHY)).toEqual({ ...NONE, failed: 1, aborting: 1 })
  expect(await queue.getActive()).toMatchObject([{ id: taken?.id }])
})

test('by age, only older jobs are cancelled', async () => {
  const queue = shop.queue({})
  const old = await queue.add('job', {}, { timestamp: Date.now() - 3_600_000 })
  const young = await queue.add('job', {})
  expect(await queue.cancelJobs({ olderThanMs: 1_800_000 }, { ...WHY, remove: true })).toEqual({ ...NONE, removed: 1 })
  expect(await old.getState()).toBe('unknown')
  expect(await young.getState()).toBe('waiting')
})

test('the next iteration of a scheduler stays', async () => {
  const queue = shop.queue({})
  await queue.upsertJobScheduler('hourly', { pattern: '0 0 1 1 *' }, { name: 'job' })
  await queue.add('job', {})
  expect(await queue.cancelJobs({}, WHY)).toEqual({ ...NONE, failed: 1 })
  expect(await queue.getDelayedCount()).toBe(1)
})

test('an aborted signal stops it before the next part', async () => {
  const queue = shop.queue({})
  await queue.add('job', {})
  const signal = AbortSignal.abort(new Error('enough'))
  await expect(queue.cancelJobs({}, { ...WHY, signal })).rejects.toThrow('enough')
  expect(await queue.getWaitingCount()).toBe(1)
})

test.each([
  ['a group that is undefined', { group: undefined }],
  ['an empty name', { name: '' }],
  ['another field', { state: 'waiting' }],
  ['a negative age', { olderThanMs: -1 }],
  ['a list', []],
  ['no filter', undefined],
])('%s is refused', async (_what, filter) => {
  await expect(shop.queue({}).cancelJobs(filter as never, WHY)).rejects.toThrow(InvalidInputError)
})

test('a sharded queue cancels a job in its shard, and those that match in all', async () => {
  const { connection, prefix } = shop
  const options = { connection, prefix, shards: 2, shape: { rate: '1000/s' } }
  const queue = shop.keep(new ShardedQueue('mails', options))
  const jobs = await Promise.all(
    Array.from({ length: 6 }, (_, i) => queue.add(i === 0 ? 'one' : 'job', {}, { delay: 60_000 })),
  )
  expect(await queue.cancelJob(jobs[0]?.id as string, WHY)).toBe('failed')
  expect(await queue.cancelJob('no such job', WHY)).toBe('unknown')
  expect(await queue.cancelJobs({ name: 'job' }, WHY)).toEqual({ ...NONE, failed: 5 })
  expect(await queue.getJobCounts('delayed', 'failed')).toEqual({ delayed: 0, failed: 6 })

  const failed = new Seen<Job>()
  const begun = new Seen<Job>()
  const worker = new ShardedWorker(
    'mails',
    (job, _token, signal) => {
      begun.add(job)
      return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
    },
    { connection, prefix, shards: 2, concurrency: 2 },
  )
  shop.keep(worker)
  worker.on('failed', (job) => failed.add(job as Job))
  const running = await queue.add('job', {})
  await begun.reach(1)
  expect(await queue.cancelJob(running.id as string, WHY)).toBe('aborting')
  expect(await failed.reach(1)).toMatchObject([{ id: running.id }])
})
