import { Queue } from 'bullmq'
import { describe, expect, test } from 'vitest'
import {
  createShapedBackend,
  type DeadLetter,
  QueueFullError,
  ShapedFlowProducer,
  type ShapedQueue,
  TooLargeError,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'
import { many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const OLDEST = 'dropped: queue full (overflow drop-oldest)'
const LOWEST = 'dropped: queue full (overflow drop-lowest)'

const names = (jobs: readonly { name: string }[]) => jobs.map(({ name }) => name)
const named = (...all: string[]) => all.map((name) => ({ name, data: {} }))
const waiting = async (queue: ShapedQueue) => names(await queue.getWaiting())
const prioritized = async (queue: ShapedQueue) => names(await queue.getPrioritized())
const failed = async (queue: ShapedQueue) => names(await queue.getFailed())

test.each([
  ['drop-oldest', {}],
  ['drop-lowest', { priority: 2 }],
  ['drop-oldest', { group: { id: 'a' } }],
] as const)('%s does not keep a queue above its capacity that a retry %j came back to', async (overflow, opts) => {
  const queue = shop.queue({ capacity: 2, overflow, groups: { capacity: 9 } })
  const more = 'priority' in opts ? { priority: 1 } : opts
  await queue.addBulk([1, 2].map(() => ({ name: 'old', data: {}, opts: { ...opts, attempts: 2 } })))
  const worker = shop.worker(queue, null, { autorun: false })
  const job = (await worker.getNextJob('t', { block: false }))!
  await queue.add('new', {}, opts)
  await job.moveToFailed(new Error('once'), 't', false)
  expect(await queue.count()).toBe(3)
  for (const _ of [1, 2]) {
    expect(await rejection(queue.add('new', {}, more))).toMatchObject({ name: 'QueueFullError', depth: 3, capacity: 2 })
    expect(await rejection(queue.addBulk([{ name: 'new', data: {}, opts: more }]))).toBeInstanceOf(QueueFullError)
  }
  expect(await failed(queue)).toEqual([])
  await worker.getNextJob('u', { block: false })
  await queue.add('new', {}, more)
  expect([await queue.count(), (await failed(queue)).length]).toEqual([2, 1])
})

describe('drop-oldest', () => {
  test('a full queue takes a new job, and the oldest one fails', async () => {
    const queue = shop.queue({ rate: '1/h', capacity: 3, overflow: 'drop-oldest' })
    await queue.addBulk(named('a', 'b', 'c'))
    await queue.add('d', {})
    expect(await waiting(queue)).toEqual(['b', 'c', 'd'])
    const [a] = await queue.getFailed()
    expect(a).toMatchObject({ name: 'a', failedReason: OLDEST, attemptsMade: 0, attemptsStarted: 0 })
    expect(a!.finishedOn).toBeGreaterThanOrEqual(a!.timestamp)
    expect((await queue.meter()).droppedTotal).toBe(1)
    expect(await queue.getJobCounts('active', 'failed', 'waiting')).toEqual({ active: 0, failed: 1, waiting: 3 })
  })

  test('what was dropped can be retried by hand, and runs', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest' })
    await queue.add('a', {}, { attempts: 1 })
    await queue.add('b', {})
    const [a] = await queue.getFailed()
    await a!.retry()
    const worker = shop.worker(queue, async () => 'done')
    const completed = eventsOf<{ name: string }>('completed', worker)
    expect(names(await completed.reach(2)).sort()).toEqual(['a', 'b'])
  })

  test('a job whose options nobody can read stays, and the next one goes', async () => {
    const queue = shop.queue({ rate: '1/h', capacity: 3, overflow: 'drop-oldest' })
    const [a] = await queue.addBulk(named('a', 'b', 'c'))
    await redis.client().hset(queue.toKey(a!.id as string), 'opts', '{"attempts":')
    await queue.add('d', {})
    expect(await queue.getWaitingCount()).toBe(3)
    expect(await failed(queue)).toEqual(['b'])
  })

  test('a lifo job is the head of the queue, and does not drop itself', async () => {
    const queue = shop.queue({ capacity: 2, overflow: 'drop-oldest' })
    await queue.addBulk(named('a', 'b'))
    await queue.add('first', {}, { lifo: true })
    expect(await waiting(queue)).toEqual(['first', 'b'])
  })

  test('a bulk drops as many as it needs, and one that can never fit none', async () => {
    const queue = shop.queue({ capacity: 4, overflow: 'drop-oldest' })
    await queue.addBulk(named('a', 'b', 'c'))
    await queue.addBulk(named('d', 'e', 'f'))
    expect(await waiting(queue)).toEqual(['c', 'd', 'e', 'f'])
    expect(await rejection(queue.addBulk(many(5)))).toBeInstanceOf(TooLargeError)
    expect(await failed(queue)).toHaveLength(2)
  })

  test('jobs that are added beside each other drop each for itself', async () => {
    const queue = shop.queue({ capacity: 5, overflow: 'drop-oldest' })
    await queue.addBulk(many(5))
    const ids = await Promise.all(Array.from({ length: 40 }, async (_, n) => (await queue.add('new', { n })).id))
    expect(new Set(ids).size).toBe(40)
    expect(await queue.getJobCounts('waiting', 'failed', 'active')).toEqual({ waiting: 5, failed: 40, active: 0 })
  })

  test('one of a capacity that was lowered drops none, and refuses until it is at the capacity', async () => {
    const queue = shop.queue({ capacity: 5, overflow: 'drop-oldest' })
    const [a] = await queue.addBulk(named('a', 'b', 'c'))
    await queue.setShape({ capacity: 2 }, { by: 'test', reason: 'smaller' })
    expect(await rejection(queue.add('d', {}))).toMatchObject({ depth: 3, capacity: 2 })
    expect(await waiting(queue)).toEqual(['a', 'b', 'c'])
    await a!.remove()
    await queue.add('d', {})
    expect(await waiting(queue)).toEqual(['c', 'd'])
  })

  test('delayed and active jobs, those of flows and iterations of schedulers are never dropped', async () => {
    const queue = shop.queue({ capacity: 6, overflow: 'drop-oldest' })
    const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
    const taker = new Taker(shop, queue)
    await queue.add('active', {})
    await taker.take()
    await queue.add('delayed', {}, { delay: 60_000 })
    await flows.add({ name: 'parent', queueName: queue.name, children: [{ name: 'child', queueName: queue.name }] })
    const iteration = await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'iteration' })
    await iteration.promote().catch(() => {})
    expect(await waiting(queue)).toEqual(['child', 'iteration'])
    await queue.addBulk(named('a', 'b'))
    await queue.addBulk(named('c', 'd'))
    expect(await waiting(queue)).toEqual(['child', 'iteration', 'c', 'd'])
    expect(await failed(queue)).toEqual(expect.arrayContaining(['a', 'b']))
    expect(await rejection(queue.addBulk(named('e', 'f', 'g')))).toBeInstanceOf(QueueFullError)
    expect(await waiting(queue)).toEqual(['child', 'iteration', 'c', 'd'])
  })

  test('a parent whose children are done is not dropped', async () => {
    const queue = shop.queue({ capacity: 2, overflow: 'drop-oldest' })
    const other = shop.queue()
    const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
    await flows.add({ name: 'parent', queueName: queue.name, children: [{ name: 'child', queueName: other.name }] })
    const taker = new Taker(shop, other)
    await other.setShape({ rate: '1000/s' }, { by: 'test', reason: 'it is to leave' })
    await taker.complete(await taker.take())
    await queue.add('a', {})
    expect(await waiting(queue)).toEqual(['parent', 'a'])
    await queue.add('b', {})
    expect(await waiting(queue)).toEqual(['parent', 'b'])
  })

  test('jobs that cannot be dropped are passed by only so far', async () => {
    const queue = shop.queue({ capacity: 111, overflow: 'drop-oldest' })
    const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
    const other = shop.queue()
    const child = { name: 'child', queueName: queue.name }
    const children = (count: number) => Array.from({ length: count }, () => child)
    await flows.add({ name: 'parent', queueName: other.name, children: children(100) })
    await queue.addBulk(named('a', ...Array.from({ length: 10 }, () => 'b')))
    await queue.add('taken', {})
    expect(await failed(queue)).toEqual(['a'])
    const full = shop.queue({ capacity: 111, overflow: 'drop-oldest' })
    await flows.add({
      name: 'parent',
      queueName: other.name,
      children: children(101).map((one) => ({ ...one, queueName: full.name })),
    })
    await full.addBulk(many(10))
    expect(await refusal(full)).toMatchObject({ depth: 111, capacity: 111 })
  })

  test('where nothing can be dropped the job is refused, and so are flows and bulks in parts', async () => {
    const queue = shop.queue({ rate: '1/h', capacity: 300, overflow: 'drop-oldest' })
    const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
    await queue.addBulk(many(299))
    expect(await rejection(queue.addBulk(many(201)))).toBeInstanceOf(QueueFullError)
    const tree = { name: 'parent', queueName: queue.name, children: [{ name: 'child', queueName: queue.name }] }
    expect(await rejection(flows.add(tree))).toBeInstanceOf(QueueFullError)
    expect((await queue.meter()).droppedTotal).toBe(0)
    const delayed = shop.queue({ capacity: 2, overflow: 'drop-oldest' })
    await delayed.addBulk(many(2, { delay: 60_000 }))
    await refusal(delayed)
  })

  test('a duplicate drops nothing', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest' })
    await queue.add('a', {}, { jobId: 'a' })
    await queue.add('a', {}, { jobId: 'a' })
    await queue.addBulk([{ name: 'a', data: {}, opts: { jobId: 'a' } }])
    expect(await waiting(queue)).toEqual(['a'])
    await queue.add('b', {}, { deduplication: { id: 'x' } })
    await queue.add('c', {}, { deduplication: { id: 'x' } })
    expect(await waiting(queue)).toEqual(['b'])
    await queue.add('d', {})
    // What was dropped stands for its deduplication id no more.
    await queue.add('e', {}, { deduplication: { id: 'x' } })
    expect(await waiting(queue)).toEqual(['e'])
  })

  test('in shadow mode nothing is dropped, and it is counted; when off nothing at all happens', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest', mode: 'shadow' })
    await queue.addBulk(named('a', 'b'))
    expect(await queue.meter()).toMatchObject({ shadowRefusedTotal: 2, droppedTotal: 0, depth: 2 })
    await queue.setShape({ mode: 'off' }, { by: 'test', reason: 'off' })
    await queue.add('c', {})
    expect(await queue.meter()).toMatchObject({ shadowRefusedTotal: 2, droppedTotal: 0, depth: 3 })
  })
})

describe('drop-lowest', () => {
  const shape = { capacity: 3, overflow: 'drop-lowest' } as const
  const of = (priority: number, name = `p${priority}`) => ({ name, data: {}, opts: { priority } })

  test('the last in line of the prioritized jobs fails for a more important one', async () => {
    const queue = shop.queue(shape)
    await queue.addBulk([of(5, 'old'), of(5, 'new'), of(2)])
    await queue.add('p1', {}, { priority: 1 })
    expect(await prioritized(queue)).toEqual(['p1', 'p2', 'old'])
    expect(await queue.getFailed()).toMatchObject([{ name: 'new', failedReason: LOWEST }])
    await queue.add('plain', {})
    expect(await prioritized(queue)).toEqual(['p1', 'p2'])
    expect(await waiting(queue)).toEqual(['plain'])
  })

  test.each([5, 6])('a job of priority %i that would be the last itself is refused', async (priority) => {
    const queue = shop.queue(shape)
    await queue.addBulk([of(5), of(1), of(2)])
    expect(await refusal(queue, { priority })).toMatchObject({ depth: 3, capacity: 3 })
    expect(await prioritized(queue)).toEqual(['p1', 'p2', 'p5'])
  })

  test('jobs without a priority are served first, and never dropped', async () => {
    const queue = shop.queue(shape)
    await queue.addBulk(many(3))
    await refusal(queue, { priority: 1 })
    await refusal(queue)
  })

  test('a bulk takes the places only of what is less important than all of it', async () => {
    const queue = shop.queue(shape)
    await queue.addBulk([of(5, 'a'), of(6, 'b'), of(7, 'c')])
    expect(await rejection(queue.addBulk([of(1), of(6)]))).toBeInstanceOf(QueueFullError)
    await queue.addBulk([of(1), of(5)])
    expect(await prioritized(queue)).toEqual(['p1', 'a', 'p5'])
  })
})

describe('what was dropped is told', () => {
  test('QueueEvents tells of it as failed and as dropped', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest' })
    const events = shop.queueEvents(queue)
    const dropped = eventsOf<{ jobId: string; overflow: string }>('dropped', events)
    const fails = eventsOf<{ jobId: string; failedReason: string }>('failed', events)
    await events.waitUntilReady()
    const job = await queue.add('a', {})
    const waits = rejection(job.waitUntilFinished(events))
    await queue.add('b', {})
    expect(await dropped.reach(1)).toMatchObject([{ jobId: job.id, overflow: 'drop-oldest' }])
    expect(await fails.reach(1)).toMatchObject([{ jobId: job.id, failedReason: OLDEST }])
    expect((await waits).message).toBe(OLDEST)
  })

  test('a dead letter holds the job as it was, and a redrive puts it back', async () => {
    const shape = { capacity: 1, overflow: 'drop-oldest', overflowTo: 'dead-overflow' } as const
    const queue = shop.queue(shape)
    const letters = shop.keep(new Queue<DeadLetter>('dead-overflow', redis))
    const data = { list: [], none: null, text: 'é "q"', nested: { empty: {} }, number: 1e21 }
    const opts = { attempts: 3, deduplication: { id: 'x' }, removeOnFail: true, jobId: 'mine' }
    const job = await queue.add('a "name"', data, opts)
    const other = await queue.add('b', {})
    expect(await queue.getJob('mine')).toBeUndefined()
    const [letter] = await letters.getWaiting()
    const { prefix } = redis
    expect(letter!.data).toMatchObject({
      ...{ prefix, queueName: queue.name, id: 'mine', name: 'a "name"', data, failedReason: OLDEST, stacktrace: [] },
      ...{ opts: { attempts: 3, deduplication: { id: 'x' }, removeOnFail: true }, timestamp: job.timestamp },
      ...{ attemptsMade: 0, attemptsStarted: 0, stalledCounter: 0, throttled: 0, redriven: 0 },
    })
    expect(letter!.data.opts).not.toHaveProperty('de')
    await other.remove()
    expect(await queue.redrive({ from: 'dead-overflow' })).toMatchObject({ redriven: 1 })
    const [back] = await queue.getWaiting()
    expect(back).toMatchObject({ id: 'mine', data, timestamp: job.timestamp, opts: { attempts: 3, redriven: 1 } })
    // Dropped again, it leaves another letter, of an id of its own.
    await queue.add('c', {})
    expect((await letters.getWaiting()).map((one) => [one.data.id, one.data.redriven])).toEqual([['mine', 1]])
  })

  test('the dead letter of a job that came back to wait tells of its attempts', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest', overflowTo: 'dead-attempts' })
    const letters = shop.keep(new Queue<DeadLetter>('dead-attempts', redis))
    const job = await queue.add('a', {}, { attempts: 9 })
    const tried = { atm: 2, ats: 4, stc: 1, throttled: 3, stacktrace: '["Error: no"]', processedOn: 1234567890123 }
    await redis.client().hset(queue.toKey(job.id!), { ...tried, progress: '{"done":7}' })
    await queue.add('b', {})
    expect((await letters.getWaiting())[0]?.data).toMatchObject({
      ...{ attemptsMade: 2, attemptsStarted: 4, stalledCounter: 1, throttled: 3, stacktrace: ['Error: no'] },
      ...{ processedOn: 1234567890123, progress: { done: 7 } },
    })
  })

  test('a redrive waits for a place and drops nothing', async () => {
    const queue = shop.queue({ rate: '1/h', capacity: 1, overflow: 'drop-oldest', overflowTo: 'dead-waits' })
    await queue.addBulk(named('a'))
    await queue.addBulk(named('b'))
    const stop = new AbortController()
    const redriven = rejection(queue.redrive({ from: 'dead-waits', signal: stop.signal }))
    const refused = eventsOf('refused', queue as never)
    await refused.reach(1)
    stop.abort(new Error('enough'))
    expect((await redriven).message).toBe('enough')
    expect(await waiting(queue)).toEqual(['b'])
  })

  test('a job whose letter cannot be written is kept, also with removeOnFail', async () => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest', overflowTo: 'dead-broken' })
    const client = redis.client()
    const letters = queue.toKey('').replace(queue.name, 'dead-broken')
    await client.set(`${letters}wait`, 'no list')
    await queue.add('a', {}, { removeOnFail: true })
    await queue.add('b', {})
    expect(await failed(queue)).toEqual(['a'])
    expect(await waiting(queue)).toEqual(['b'])
    // A partial letter would look complete.
    expect(await client.keys(`${letters}${'?'.repeat(40)}`)).toEqual([])
  })

  test.each([
    [true, 0],
    [0, 0],
    [2, 2],
    [{ count: 1 }, 1],
    [false, 4],
    [undefined, 4],
  ])('removeOnFail: %j keeps %i of four', async (removeOnFail, kept) => {
    const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest' })
    const opts = removeOnFail === undefined ? {} : { removeOnFail }
    for (let n = 0; n < 5; n++) await queue.add('job', { n }, opts)
    expect(await queue.getJobCounts('failed', 'waiting')).toEqual({ failed: kept, waiting: 1 })
  })
})

test('stock queues, schedulers and addOnce drop as well', async () => {
  const queue = shop.queue({ capacity: 1, overflow: 'drop-oldest' })
  await queue.addBulk(named('a'))
  const stock = shop.keep(new Queue(queue.name, redis, createShapedBackend as never))
  await stock.add('b', {})
  expect(await waiting(queue)).toEqual(['b'])
  await queue.addOnce([{ name: 'c', data: {} }], { key: 'k', fingerprint: 'f' })
  expect(await waiting(queue)).toEqual(['c'])
  await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'tick' })
  expect(await waiting(queue)).not.toContain('c')
  expect(await queue.getJobSchedulersCount()).toBe(1)
})

test('racing producers never make the queue longer than its capacity, and every job is somewhere', async () => {
  // Jobs that are late for their slots would go back, past the capacity.
  const maxLatenessMs = 60_000
  const shape = { rate: '500/s', burst: 10, capacity: 20, overflow: 'drop-oldest', maxLatenessMs } as const
  const queues = [shop.queue(shape)]
  for (let n = 0; n < 3; n++) queues.push(shop.queueNamed(queues[0]!.name, shape))
  const queue = queues[0] as ShapedQueue
  let deepest = 0
  const ran = new Set<string>()
  const worker = shop.worker(queue, async (job) => void ran.add(job.id as string), { concurrency: 10 })
  const ids: string[] = []
  const produce = async (from: ShapedQueue) => {
    for (let n = 0; n < 50; n++) {
      const added = await Promise.all([1, 2, 3, 4].map(() => from.add('job', {})))
      ids.push(...added.map(({ id }) => id as string))
      deepest = Math.max(deepest, (await from.meter()).depth)
    }
  }
  await Promise.all(queues.map(produce))
  while ((await queue.getJobCountByTypes('waiting', 'active')) > 0) await new Promise(setImmediate)
  await worker.close()
  const dropped = (await queue.getFailed(0, -1)).map(({ id }) => id as string)
  expect(deepest).toBeLessThanOrEqual(20)
  expect(dropped.length).toBeGreaterThan(0)
  expect([...ran, ...dropped].toSorted()).toEqual(ids.toSorted())
  expect((await queue.meter()).droppedTotal).toBe(dropped.length)
})
