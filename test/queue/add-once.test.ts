import { describe, expect, test } from 'vitest'
import {
  CostTooHighError,
  IdempotencyConflictError,
  IdempotencyInFlightError,
  InvalidDeadlineError,
  QueueFullError,
  type ShapedJobsOptions,
  type ShapedQueue,
} from '../../src/index.ts'
import { sleepUntil } from '../limits/support/limiters.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, ownKeys, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const SHAPE = { rate: '50/s', burst: 5, capacity: 5 }
const DAY_MS = 86_400_000

/** Adds one job for a key. */
const once = (queue: ShapedQueue, key: string, { fingerprint = 'body', ...opts }: OnceTerms = {}) =>
  queue.addOnce([{ name: 'job', data: { key }, opts }], { key, fingerprint })
type OnceTerms = Omit<ShapedJobsOptions, 'jobId'> & { fingerprint?: string }

async function records(queue: ShapedQueue): Promise<string[]> {
  return (await ownKeys(queue)).filter((key) => key.startsWith('meta:once:'))
}

/** The full Redis key of the only record. */
async function recordOf(queue: ShapedQueue): Promise<string> {
  const [record, ...others] = await records(queue)
  expect(others).toEqual([])
  return queue.toKey(record as string)
}

describe('a key that comes again', () => {
  test('gets the ids of the first time, and nothing is added', async () => {
    const queue = shop.queue(SHAPE)
    await queue.add('ahead', {})
    const first = await once(queue, 'k')
    const startsAt = expect.any(Date)
    expect(first).toEqual({
      ids: [expect.stringMatching(/^j_[\w-]{27}$/)],
      replayed: false,
      estimate: { position: 1, startsAt },
    })
    expect(await once(queue, 'k')).toEqual({ ids: first.ids, replayed: true, estimate: { position: 1, startsAt } })
    expect(await queue.count()).toBe(2)
    const [id = ''] = first.ids
    expect(await queue.getJob(id)).toMatchObject({ name: 'job', data: { key: 'k' }, opts: { jobId: id } })
  })

  test('is answered although its parent is gone; another key is refused', async () => {
    const queue = shop.queue(SHAPE)
    const parent = await queue.add('parent', {})
    const jobs = [
      { name: 'child', data: {}, opts: { parent: { id: parent.id as string, queue: queue.qualifiedName } } },
    ]
    const first = await queue.addOnce(jobs, { key: 'k', fingerprint: 'f' })
    await client.del(queue.toKey(parent.id as string))
    expect(await queue.addOnce(jobs, { key: 'k', fingerprint: 'f' })).toMatchObject({ ids: first.ids, replayed: true })
    const error = await rejection(queue.addOnce(jobs, { key: 'other', fingerprint: 'f' }))
    expect(error.message).toMatch('Missing key for parent')
    expect(await queue.count()).toBe(2)
  })

  test('is answered although the queue is full, paused, and has lost its shape', async () => {
    const queue = shop.queue({ rate: '50/s', capacity: 1 })
    const first = await once(queue, 'k')
    const losses: unknown[] = []
    queue.on('stateLoss', (loss) => losses.push(loss))
    await queue.pause()
    await queue.pauseUntil(Date.now() + 60_000, { reason: 'test' })
    expect(await once(queue, 'k')).toMatchObject({ ids: first.ids, replayed: true })
    await client.del(queue.toKey('meta:shape'), queue.toKey('meta:meter'))
    expect(await once(queue, 'k')).toMatchObject({ ids: first.ids, replayed: true })
    expect(losses).toEqual([])
    // The next that wants a place notices what was lost.
    expect(await rejection(once(queue, 'other'))).toBeInstanceOf(QueueFullError)
    expect(losses).toHaveLength(1)
    expect(await queue.count()).toBe(1)
  })

  test('is answered although its job has ended and is gone', async () => {
    const queue = shop.queue(SHAPE)
    const taker = new Taker(shop, queue)
    const first = await once(queue, 'k', { removeOnComplete: true })
    await taker.complete(await taker.take())
    expect(await queue.getJob(first.ids[0] as string)).toBeUndefined()
    const nowhere = { position: undefined, startsAt: undefined }
    const again = await once(queue, 'k', { removeOnComplete: true })
    expect(again).toEqual({ ids: first.ids, replayed: true, estimate: nowhere })
    expect(await queue.count()).toBe(0)
  })

  test('is answered although the deadline of its job is over by now', async () => {
    const queue = shop.queue(SHAPE)
    await queue.waitUntilReady()
    const deadline = { mustStartBefore: Date.now() + 4000 }
    const first = await once(queue, 'k', deadline)
    await sleepUntil(client, deadline.mustStartBefore)
    expect(await once(queue, 'k', deadline)).toMatchObject({ ids: first.ids, replayed: true })
    const other = rejection(once(queue, 'k', { ...deadline, fingerprint: 'other' }))
    expect(await other).toBeInstanceOf(IdempotencyConflictError)
    expect(await rejection(once(queue, 'new', deadline))).toBeInstanceOf(InvalidDeadlineError)
    expect(await records(queue)).toHaveLength(1)
    expect(await queue.count()).toBe(1)
  })

  test('is answered although its job costs too much by now', async () => {
    const limit = (perDay: number) => [{ name: 'day', algorithm: 'fixed-window', rate: `${perDay}/day` }] as const
    const queue = shop.queue({ capacity: 5, limits: limit(9) })
    const first = await once(queue, 'k', { cost: 5 } as OnceTerms)
    await queue.setShape({ limits: limit(4) }, { by: 'test', reason: 'test' })
    expect(await once(queue, 'k', { cost: 5 } as OnceTerms)).toMatchObject({ ids: first.ids, replayed: true })
    expect(await rejection(once(queue, 'new', { cost: 5 } as OnceTerms))).toBeInstanceOf(CostTooHighError)
    expect(await queue.count()).toBe(1)
  })

  test('is answered where no shape is stored', async () => {
    const queue = shop.queue()
    const first = await once(queue, 'k')
    expect(first).toMatchObject({ replayed: false, estimate: { position: 0 } })
    expect(await once(queue, 'k')).toMatchObject({ ids: first.ids, replayed: true })
    expect(await queue.count()).toBe(1)
  })
})

describe('a key that comes with another request is a conflict, and nothing is stored:', () => {
  test.each([
    ['another fingerprint', many(1), 'other'],
    ['another number of jobs', many(2), 'body'],
  ])('%s', async (_what, jobs, fingerprint) => {
    const queue = shop.queue(SHAPE)
    const first = await once(queue, 'k')
    const error = await rejection(queue.addOnce(jobs, { key: 'k', fingerprint }))
    expect(error).toBeInstanceOf(IdempotencyConflictError)
    expect(error).toMatchObject({ name: 'IdempotencyConflictError', queueName: queue.name })
    expect(await queue.count()).toBe(1)
    expect(await once(queue, 'k')).toMatchObject({ ids: first.ids, replayed: true })
  })

  test('also when the first job is gone, and the queue full', async () => {
    const queue = shop.queue({ capacity: 1 })
    const taker = new Taker(shop, queue)
    await once(queue, 'k', { removeOnComplete: true })
    await taker.complete(await taker.take())
    await queue.add('filler', {})
    const error = await rejection(once(queue, 'k', { fingerprint: 'other' }))
    expect(error).toBeInstanceOf(IdempotencyConflictError)
  })
})

test('while a call waits for its answer, another with its key is told to come back', async () => {
  const queue = shop.queue(SHAPE)
  const first = once(queue, 'k')
  const [second, other, elsewhere] = await Promise.all([
    rejection(once(queue, 'k')),
    rejection(once(queue, 'k', { fingerprint: 'other' })),
    once(queue, 'another key'),
  ])
  for (const error of [second, other]) {
    expect(error).toBeInstanceOf(IdempotencyInFlightError)
    expect(error).toMatchObject({ queueName: queue.name, retryAfterMs: 100 })
  }
  expect(elsewhere.replayed).toBe(false)
  const { ids } = await first
  expect(await once(queue, 'k')).toMatchObject({ ids, replayed: true })
})

test('a refusal keeps no key: the next call is decided anew', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 1 })
  const refusals: unknown[] = []
  queue.on('refused', (refusal) => refusals.push(refusal))
  const taker = new Taker(shop, queue)
  await queue.add('filler', {})
  const error = await rejection(once(queue, 'k'))
  expect(error).toBeInstanceOf(QueueFullError)
  expect(error).toMatchObject({ depth: 1, capacity: 1 })
  expect(refusals).toHaveLength(1)
  expect(await records(queue)).toEqual([])
  await taker.take()
  expect(await once(queue, 'k', { fingerprint: 'other' })).toMatchObject({ replayed: false })
  expect(await records(queue)).toHaveLength(1)
})

describe('several jobs', () => {
  const jobs = [
    { name: 'a', data: { n: 1 } },
    { name: 'b', data: { n: 2 }, opts: { priority: 3 } },
    { name: 'c', data: { n: 3 }, opts: { delay: 60_000 } },
  ]

  test('have one key, and ids that follow from it', async () => {
    const queue = shop.queue(SHAPE)
    const first = await queue.addOnce(jobs, { key: 'k', fingerprint: 'f' })
    const [id] = first.ids
    expect(first).toMatchObject({ ids: [id, `${id}-1`, `${id}-2`], replayed: false, estimate: { position: 0 } })
    expect(await queue.addOnce(jobs, { key: 'k', fingerprint: 'f' })).toMatchObject({ ids: first.ids, replayed: true })
    const states = await Promise.all(first.ids.map((one) => queue.getJobState(one)))
    expect(states).toEqual(['waiting', 'prioritized', 'delayed'])
    expect(await Promise.all(first.ids.map(async (one) => (await queue.getJob(one))?.data.n))).toEqual([1, 2, 3])
  })

  test('come in all or none', async () => {
    const queue = shop.queue({ capacity: 3 })
    await queue.add('filler', {})
    expect(await rejection(queue.addOnce(jobs, { key: 'k', fingerprint: 'f' }))).toBeInstanceOf(QueueFullError)
    expect(await queue.getJobCountByTypes('waiting', 'prioritized', 'delayed')).toBe(1)
    expect(await records(queue)).toEqual([])
  })

  test('the estimate is that of the first of them', async () => {
    const queue = shop.queue({ ...SHAPE, capacity: 300 })
    await queue.addBulk(many(2))
    const { ids, estimate } = await queue.addOnce(many(200), { key: 'k', fingerprint: 'f' })
    expect(estimate.position).toBe(2)
    expect(new Set(ids).size).toBe(200)
  })

  test('a job that another one stands for by its deduplication id is answered with its id, also later', async () => {
    const queue = shop.queue(SHAPE)
    const deduplication = { id: 'd', ttl: 60_000 }
    const owner = await queue.add('job', {}, { deduplication })
    const added = [{ name: 'job', data: {}, opts: { deduplication } }, ...many(1)]
    const first = await queue.addOnce(added, { key: 'k', fingerprint: 'f' })
    expect(first.ids[0]).toBe(owner.id)
    await owner.remove()
    const again = await queue.addOnce(added, { key: 'k', fingerprint: 'f' })
    expect(again).toMatchObject({ ids: first.ids, replayed: true })
    expect(await queue.count()).toBe(1)
  })
})

describe('a key is kept', () => {
  test.each([
    ['a day', undefined, DAY_MS],
    ['as long as it is said', 5_000_000, 5_000_000],
  ])('%s, from the first time on', async (_what, ttlMs, keptMs) => {
    const queue = shop.queue(SHAPE)
    const add = () => queue.addOnce(many(1), { key: 'k', fingerprint: 'f', ...(ttlMs ? { ttlMs } : {}) })
    await add()
    const record = await recordOf(queue)
    const leftMs = await client.pttl(record)
    expect(leftMs).toBeLessThanOrEqual(keptMs)
    expect(leftMs).toBeGreaterThan(keptMs - 60_000)
    await client.pexpire(record, 1_000_000)
    expect(await add()).toMatchObject({ replayed: true })
    expect(await client.pttl(record)).toBeLessThanOrEqual(1_000_000)
  })

  test('and afterwards the job that is still there stands for its request, and for no other', async () => {
    const queue = shop.queue(SHAPE)
    const first = await once(queue, 'k')
    await client.del(await recordOf(queue))
    expect(await once(queue, 'k')).toMatchObject({ ids: first.ids, replayed: true })
    expect(await queue.count()).toBe(1)
    const other = await once(queue, 'k', { fingerprint: 'other' })
    expect(other.replayed).toBe(false)
    expect(other.ids).not.toEqual(first.ids)
    expect(await queue.count()).toBe(2)
  })

  test('in one queue only', async () => {
    const queues = [shop.queue(SHAPE), shop.queue(SHAPE)]
    const [a, b] = await Promise.all(queues.map((queue) => once(queue, 'k')))
    expect(a?.ids).not.toEqual(b?.ids)
    expect([a?.replayed, b?.replayed]).toEqual([false, false])
  })

  test('until the queue is obliterated', async () => {
    const queue = shop.queue(SHAPE)
    await once(queue, 'k')
    await queue.obliterate()
    expect(await ownKeys(queue)).toEqual([])
    expect(await once(queue, 'k')).toMatchObject({ replayed: false })
    expect(await queue.count()).toBe(1)
  })

  test('through the clean-up of orphaned jobs', async () => {
    const queue = shop.queue(SHAPE)
    const { ids } = await once(queue, 'k')
    await queue.removeOrphanedJobs()
    await queue.remove(ids[0] as string)
    expect(await once(queue, 'k')).toMatchObject({ ids, replayed: true })
  })
})

test('of jobs that BullMQ took in part, nothing is told as if all had been added', async () => {
  const queue = shop.queue(SHAPE)
  const parent = { id: 'nobody', queue: `${redis.prefix}:parents` }
  const jobs = [
    { name: 'first', data: 1 },
    { name: 'second', data: 2, opts: { parent } },
  ]
  const adding = () => queue.addOnce(jobs, { key: 'k', fingerprint: 'body' })
  await expect(adding()).rejects.toThrow('Missing key for parent job')
  await expect(adding()).rejects.toThrow('Missing key for parent job')
  await client.hset(`${parent.queue}:${parent.id}`, 'name', 'parent')
  const { ids, replayed } = await adding()
  expect(replayed).toBe(false)
  expect(await Promise.all(ids.map(async (id) => (await queue.getJob(id))?.name))).toEqual(['first', 'second'])
})
