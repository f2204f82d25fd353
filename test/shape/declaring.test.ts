import { expect, test } from 'vitest'
import type { Shape, ShapeConflict, ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Another program that declares a shape for a queue; resolves once that is stored. */
async function declares(name: string, declarer: string, shape: Shape): Promise<ShapedQueue> {
  const queue = shop.queueNamed(name, shape, { declarer })
  await queue.waitUntilReady()
  return queue
}

let names = 0
function newName(): string {
  names += 1
  return `declared-${names}`
}

test('what code declares is stored before anything is admitted, with who declared it', async () => {
  const queue = await declares(newName(), 'web-1', { rate: '50/s', burst: 3, capacity: 9, maxLatenessMs: 250 })
  expect(await queue.getShape()).toEqual({
    ...{ rate: '50/s', burst: 3, capacity: 9, maxLatenessMs: 250, mode: 'enforce', onStateLoss: 'hold', revision: 1 },
    declared: {
      rate: { value: '50/s', by: 'web-1' },
      burst: { value: 3, by: 'web-1' },
      capacity: { value: 9, by: 'web-1' },
      maxLatenessMs: { value: 250, by: 'web-1' },
    },
    overrides: {},
  })
})

test('a worker declares too', async () => {
  const name = newName()
  const worker = shop.worker({ name }, null, { autorun: false, shape: { rate: '7/min' }, declarer: 'worker-1' })
  await worker.waitUntilReady()
  const queue = shop.queueNamed(name)
  expect(await queue.getShape()).toMatchObject({ rate: '7/min', declared: { rate: { by: 'worker-1' } } })
})

test('a queue without a declaration obeys what is stored, and knows nothing where nothing is', async () => {
  const name = newName()
  expect(await shop.queueNamed(name).getShape()).toBeUndefined()
  await declares(name, 'web-1', { capacity: 1 })
  const other = shop.queueNamed(name)
  await other.add('job', {})
  expect(await other.offer('job', {})).toMatchObject({ accepted: false, capacity: 1 })
})

test('declaring what is declared already changes nothing and wakes nobody', async () => {
  const name = newName()
  const first = await declares(name, 'web-1', { rate: '60/min', capacity: 9 })
  const listener = redis.client()
  await listener.subscribe(first.toKey('meta:wake'))
  const messages: string[] = []
  listener.on('message', (_channel, message) => messages.push(message))
  const second = await declares(name, 'web-2', { rate: { limit: 60, period: 60_000 }, capacity: 9 })
  expect(await second.getShape()).toMatchObject({ revision: 1, declared: { rate: { by: 'web-1' } } })
  const third = await declares(name, 'web-3', { capacity: 10 })
  expect(await third.getShape()).toMatchObject({
    ...{ revision: 2, rate: '60/min', capacity: 10 },
    declared: { rate: { by: 'web-1' }, capacity: { by: 'web-3' } },
  })
  await listener.ping()
  expect(messages).toEqual(['2'])
})

test('fields that another program declares stay', async () => {
  const name = newName()
  await declares(name, 'web', { capacity: 9 })
  const queue = await declares(name, 'worker', { rate: '50/s' })
  expect(await queue.getShape()).toMatchObject({ rate: '50/s', capacity: 9 })
})

test('a version never goes back, field by field, and a declaration without one never overwrites one with', async () => {
  const name = newName()
  const rate = async () => (await shop.queueNamed(name).getShape())?.rate
  await declares(name, 'v2', { rate: '20/s', version: 2 })
  await declares(name, 'v1', { rate: '10/s', version: 1, capacity: 5 })
  expect(await rate()).toBe('20/s')
  await declares(name, 'none', { rate: '5/s' })
  expect(await rate()).toBe('20/s')
  await declares(name, 'v3', { rate: '30/s', version: 3 })
  expect(await rate()).toBe('30/s')
  await declares(name, 'v3 elsewhere', { rate: '35/s', version: 3 })
  expect(await rate()).toBe('35/s')
  // Capacity was declared by version 1 only: its version is its own.
  expect(await (await declares(name, 'v2 again', { capacity: 6, version: 2 })).getShape()).toMatchObject({
    ...{ capacity: 6, rate: '35/s' },
    declared: { capacity: { version: 2 }, rate: { version: 3, by: 'v3 elsewhere' } },
  })
})

test('a rolling deploy does not flap: restarts of the old version change nothing', async () => {
  const name = newName()
  await declares(name, 'old-1', { rate: '10/s', version: 1 })
  const latest = await declares(name, 'new-1', { rate: '20/s', version: 2 })
  for (const declarer of ['old-2', 'old-3']) await declares(name, declarer, { rate: '10/s', version: 1 })
  expect(await latest.getShape()).toMatchObject({ rate: '20/s', revision: 2 })
})

test('two live programs that declare different values raise a conflict that names both', async () => {
  const name = newName()
  const one = await declares(name, 'web-1', { rate: '50/s', capacity: 9 })
  const twin = await declares(name, 'web-2', { rate: '50/s', capacity: 9 })
  const [seen, seenByTwin] = [eventsOf<ShapeConflict>('shapeConflict', one), eventsOf('shapeConflict', twin)]
  const other = await declares(name, 'batch', { rate: '20/s', capacity: 9 })
  const seenByOther = eventsOf('shapeConflict', other)
  const conflict = { field: 'rate', declared: '50/s', otherDeclared: '20/s', otherDeclarer: 'batch' }
  await one.add('job', {})
  expect(seen.all).toEqual([{ ...conflict, declarer: 'web-1' }])
  await one.add('job', {})
  await other.add('job', {})
  expect([seen.all.length, seenByOther.all.length]).toEqual([1, 0])
  // The twin's value was stored under the name of the first: it is one of the two that differ all the same.
  await twin.add('job', {})
  expect(seenByTwin.all).toEqual([{ ...conflict, declarer: 'web-2' }])
})

test('an override is no conflict', async () => {
  const queue = await declares(newName(), 'web-1', { rate: '50/s' })
  const seen = eventsOf('shapeConflict', queue)
  await queue.setShape({ rate: '20/s' }, { by: 'ops', reason: 'incident' })
  await queue.add('job', {})
  expect(seen.all).toEqual([])
})

test('a change of the shape is an event, with what it was before', async () => {
  const name = newName()
  const queue = await declares(name, 'web-1', { capacity: 9 })
  const changes: unknown[] = []
  queue.on('shape', (now, before) => changes.push([before?.capacity, now.capacity]))
  await declares(name, 'web-1', { capacity: 5 })
  await queue.add('job', {})
  await queue.add('job', {})
  await queue.getShape()
  expect(changes).toEqual([[9, 5]])
})

test('a queue is found by its name again after Redis lost everything', async () => {
  const queue = await declares(newName(), 'web-1', { rate: '50/s' })
  const client = redis.client()
  const names = () => client.smembers(`${redis.prefix}:shaped-queues`)
  await expect.poll(names).toContain(queue.name)
  await client.del(`${redis.prefix}:shaped-queues`, queue.toKey('meta:shape'))
  await queue.add('job', {})
  await expect.poll(names).toContain(queue.name)
})
