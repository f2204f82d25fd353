import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { type QueueLimit, ShapedFlowProducer } from '../../src/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// A limit bounds how many of its keys are in use: a job of one more is refused when it is added, and never later.
const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())
const shop = new Workshop(redis)

const SECOND_US = 1_000_000
const rpm = (maxKeys: number, more: Partial<QueueLimit> = {}): QueueLimit => ({
  ...{ name: 'rpm', by: 'model', rate: '1/10s', maxKeys },
  ...more,
})
const model = (name: string, more: ShapedJobsOptions = {}): ShapedJobsOptions => ({ keys: { model: name }, ...more })
const tooMany = (name: string, maxKeys: number) => ({
  ...{ name: 'TooManyKeysError', limitName: 'rpm', keys: { model: name }, maxKeys },
})

/** The keys of Redis that say which values are in use. */
const left = () => client.keys(`${held.base}meta:limits:*`)

test('one key more than a limit may have is refused until another has no job and no state', async () => {
  await held.reset({ limits: [rpm(2)] })
  await held.add(model('a'))
  await held.add(model('b', { delay: 60_000 }))
  await expect(held.add(model('c'))).rejects.toMatchObject(tooMany('c', 2))
  await held.add(model('a'))
  await held.add({})
  expect(await held.queue.getJobCountByTypes('prioritized', 'delayed')).toBe(4)
  // Of 'a', one leaves: the other waits.
  await held.depart(3)
  await expect(held.add(model('c'))).rejects.toMatchObject(tooMany('c', 2))
  await held.advanceTo(START_US + 61 * SECOND_US)
  await held.depart(3)
  await held.depart(3)
  const running = await held.queue.getJobs(['active'])
  for (const job of running) await client.hset(`${held.base}${job.id}`, 'finishedOn', 1)
  // Their state outlives them: as long as it does, the key is in use.
  await expect(held.add(model('c'))).rejects.toMatchObject(tooMany('c', 2))
  await client.unlink(...(await client.keys(`${held.base}meta:group:limit:rpm:*`)))
  await held.add(model('c'))
  await held.add(model('d'))
  await expect(held.add(model('a'))).rejects.toMatchObject(tooMany('a', 2))
})

test('a bulk, a flow and adds at once are refused as one, and a queue of ended jobs takes new keys', async () => {
  const queue = shop.queue({ limits: [rpm(3, { rate: '1000/s' })] })
  const bulk = (names: readonly string[]) => names.map((name) => ({ name: 'job', data: {}, opts: model(name) }))
  await expect(queue.addBulk(bulk(['a', 'b', 'a', 'c', 'd']))).rejects.toMatchObject(tooMany('d', 3))
  const many = Array.from({ length: 400 }, (_, i) => (i === 399 ? 'd' : 'abc'[i % 3]) as string)
  await expect(queue.addBulk(bulk(many))).rejects.toMatchObject(tooMany('d', 3))
  expect(await queue.count()).toBe(0)
  const ends = await Promise.allSettled(['a', 'b', 'c', 'd', 'e', 'a'].map((name) => queue.add('job', {}, model(name))))
  expect(ends.map(({ status }) => status[0])).toEqual(['f', 'f', 'f', 'r', 'r', 'f'])
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const child = { name: 'child', queueName: queue.name, opts: model('d') }
  const flow = { name: 'parent', queueName: queue.name, opts: model('a'), children: [child] } as never
  await expect(flows.add(flow)).rejects.toMatchObject(tooMany('d', 3))
  const worker = shop.worker(queue, async () => {})
  const done = eventsOf('completed', worker)
  await done.reach(4)
  await worker.close()
  await expect.poll(() => flows.add(flow).then(() => 'added', String)).toBe('added')
})

test('ended jobs do not pile up, and without maxKeys nothing is left', async () => {
  await held.reset({ limits: [rpm(2, { rate: '1000/s' })] })
  for (let i = 0; i < 60; i++) {
    const job = await held.add(model('a'))
    await held.queue.remove(job.id as string)
  }
  expect(await client.zcard(`${held.base}meta:limits:jobs:rpm`)).toBeLessThan(10)
  await held.backend.store.override(
    { limits: encodeQueueLimits([rpm(2, { maxKeys: undefined } as never)]) },
    'test',
    '',
    undefined,
  )
  expect(await left()).toEqual([])
})

test('in shadow mode a key more passes, and counts', async () => {
  await held.reset({ mode: 'shadow', limits: [rpm(1)] })
  for (const name of ['a', 'b']) await held.add(model(name))
  expect(await client.hget(`${held.base}meta:meter`, 'shadowRefused')).toBe('1')
})

test.each([
  [{ by: undefined }, 'set by'],
  [{ shared: true }, 'leave maxKeys out'],
  [{ maxKeys: 0 }, 'maxKeys must be a whole number >= 1; got 0'],
])('maxKeys with %j is refused', (more, text) => {
  expect(() => encodeQueueLimits([rpm(2, more as never)])).toThrow(text)
})
