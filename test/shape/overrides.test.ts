import { once } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import { many, refusal, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { setShapeFields } from '../support/shape-fields.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const ops = { by: 'ops', reason: 'incident 17' }

/** Ends an override now: its end is moved into the past, by the clock that decides. Nothing is published. */
async function expireOverrides(queue: ShapedQueue): Promise<void> {
  const client = redis.client()
  const key = queue.toKey('meta:shape')
  const past = Date.now() - 1000
  const overrides = JSON.parse((await client.hget(key, 'overrides')) ?? '{}') as Record<string, { until?: number }>
  for (const entry of Object.values(overrides)) if (entry.until) entry.until = past
  await setShapeFields(client, key, { overrides: JSON.stringify(overrides), expires: past })
}

function warnings(): string[] {
  const seen: string[] = []
  const listener = (warning: Error & { code?: string }) => {
    if (warning.code === 'SLUICE_OVERRIDE') seen.push(warning.message)
  }
  process.on('warning', listener)
  onTestFinished(() => void process.off('warning', listener))
  return seen
}

test('a warning of an override says what hides what', async () => {
  const seen = warnings()
  const limits = [{ name: 'day', rate: '1000/day' }] as const
  const queue = shop.queue({ capacity: 5, overflow: 'drop-lowest', limits }, { declarer: 'web-1' })
  await queue.waitUntilReady()
  await queue.setShape({ capacity: null, overflow: 'drop-oldest', limits: [{ name: 'day', rate: '9/day' }] }, ops)
  await told()
  const why = 'until it is cleared by an override of ops (incident 17); web-1 declares'
  expect(seen.toSorted()).toEqual([
    `queue "${queue.name}": capacity is not limited ${why} 5`,
    `queue "${queue.name}": limits is [{"name":"day","rate":"9/day"}] ${why} [{"name":"day","rate":"1000/day"}]`,
    `queue "${queue.name}": overflow is drop-oldest ${why} drop-lowest`,
  ])
})

test('a warning of an override writes nothing to the terminal but text', async () => {
  const seen = warnings()
  const queue = shop.queue({ capacity: 5 }, { declarer: 'web\u009b2J' })
  await queue.waitUntilReady()
  await queue.setShape({ capacity: 1 }, { by: '\u001b[2J', reason: 'a\nb\u202e' })
  await told()
  expect(seen).toHaveLength(1)
  expect(seen[0]).toContain(String.raw`by an override of \u001b[2J (a\nb\u202e); web\u009b2J declares 5`)
  expect(seen[0]).toMatch(/^[\x20-\x7e]+$/)
})

/** Warnings are told in the next turn of the event loop. */
const told = () => new Promise((resolve) => setImmediate(resolve))

test('an override is in force for every producer at once, and tells who, why and when', async () => {
  const queue = shop.queue({ capacity: 5, rate: '50/s' }, { declarer: 'web-1' })
  await queue.waitUntilReady()
  const other = shop.queueNamed(queue.name, { capacity: 5 })
  await other.waitUntilReady()
  const before = Date.now()
  await queue.setShape({ capacity: 1, rate: '20/s' }, ops)
  await other.add('job', {})
  expect(await refusal(other)).toMatchObject({ depth: 1, capacity: 1 })
  const shape = await other.getShape()
  expect(shape).toMatchObject({
    ...{ capacity: 1, rate: '20/s', revision: 2 },
    declared: { capacity: { value: 5, by: 'web-1' }, rate: { value: '50/s', by: 'web-1' } },
    overrides: { capacity: { value: 1, ...ops }, rate: { value: '20/s', ...ops } },
  })
  const { setAt } = shape!.overrides.rate!
  expect(setAt.getTime()).toBeGreaterThanOrEqual(before)
  expect(setAt.getTime()).toBeLessThanOrEqual(Date.now())
  expect(shape!.overrides.rate).not.toHaveProperty('until')
})

test('null takes a limit away, whatever is declared', async () => {
  const queue = shop.queue({ capacity: 1, rate: '1/h' })
  const taker = new Taker(shop, queue)
  await queue.setShape({ capacity: null, rate: null }, ops)
  await queue.addBulk(many(5))
  for (let n = 0; n < 5; n++) await taker.take()
  const shape = await queue.getShape()
  expect(shape).not.toHaveProperty('capacity')
  expect(shape).not.toHaveProperty('rate')
  expect(shape!.overrides).toMatchObject({ capacity: { value: null }, rate: { value: null } })
  expect(await queue.meter()).toMatchObject({ rate: undefined, capacity: undefined, cause: 'override' })
})

test('clearShape lifts one override or all; what was declared holds again', async () => {
  const queue = shop.queue({ capacity: 5, burst: 2 })
  await queue.setShape({ capacity: 1, burst: 9, rate: '1/s' }, ops)
  await queue.clearShape({ fields: ['capacity'] })
  const partly = await queue.getShape()
  expect(partly).toMatchObject({ capacity: 5, burst: 9, rate: '1/s' })
  expect(Object.keys(partly!.overrides).sort()).toEqual(['burst', 'rate'])
  await queue.clearShape()
  const shape = await queue.getShape()
  expect(shape).toMatchObject({ capacity: 5, burst: 2, overrides: {} })
  expect(shape).not.toHaveProperty('rate')
})

test('an override stays when the process that declared starts again', async () => {
  const queue = shop.queue({ capacity: 5 })
  await queue.setShape({ capacity: 1 }, ops)
  await queue.close()
  const again = shop.queueNamed(queue.name, { capacity: 7 })
  expect(await again.getShape()).toMatchObject({ capacity: 1, declared: { capacity: { value: 7 } } })
  await again.clearShape()
  expect(await again.getShape()).toMatchObject({ capacity: 7 })
})

test('a later override of one field leaves the others', async () => {
  const queue = shop.queue({})
  await queue.setShape({ capacity: 1 }, ops)
  await queue.setShape({ rate: '5/s' }, { by: 'me', reason: 'more' })
  expect((await queue.getShape())!.overrides).toMatchObject({ capacity: ops, rate: { by: 'me', reason: 'more' } })
})

test('ttlMs ends an override by itself, without anyone publishing it', async () => {
  const queue = shop.queue({ capacity: 5 })
  const before = Date.now()
  await queue.setShape({ capacity: 1 }, { ...ops, ttlMs: 60_000 })
  const { setAt, until } = (await queue.getShape())!.overrides.capacity!
  expect(until!.getTime() - setAt.getTime()).toBe(60_000)
  expect(setAt.getTime()).toBeGreaterThanOrEqual(before)
  await queue.add('job', {})
  await refusal(queue)
  await expireOverrides(queue)
  await queue.add('job', {})
  expect(await queue.getShape()).toMatchObject({ capacity: 5, overrides: {} })
})

test('one that ends leaves those that go on', async () => {
  const queue = shop.queue({ burst: 3 })
  await queue.setShape({ burst: 9 }, ops)
  await queue.setShape({ capacity: 1 }, { ...ops, ttlMs: 60_000 })
  await expireOverrides(queue)
  const shape = await queue.getShape()
  expect(shape).toMatchObject({ burst: 9 })
  expect(Object.keys(shape!.overrides)).toEqual(['burst'])
})

test('a worker that sleeps behind an override goes on when its time is over', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const worker = shop.worker(queue, async () => {})
  await worker.waitUntilReady()
  await queue.setShape({ rate: '1/h' }, { ...ops, ttlMs: 700 })
  const completed = eventsOf('completed', worker)
  await queue.addBulk(many(3))
  await completed.reach(3)
  expect((await queue.getShape())!.rate).toBe('1000/s')
})

test('an override of a declared value is told in a warning that names both', async () => {
  const seen = warnings()
  const queue = shop.queue({ capacity: 5 }, { declarer: 'web-1' })
  await queue.waitUntilReady()
  const other = shop.queueNamed(queue.name, { capacity: 5 })
  await other.waitUntilReady()
  await queue.setShape({ capacity: 1, rate: '5/s' }, ops)
  await told()
  expect(seen.length).toBe(1)
  for (const word of [queue.name, 'capacity', 'ops', 'incident 17', 'web-1', '5', '1']) expect(seen[0]).toContain(word)
  await queue.add('job', {})
  await told()
  expect(seen.length).toBe(1)
  // Once for a process, however many of its objects come to know.
  await other.getShape()
  await told()
  expect(seen.length).toBe(1)
})

test('mode can be switched at run time: shadow counts and refuses nothing, off does not even count', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 2 })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(2))
  await refusal(queue)
  await queue.setShape({ mode: 'shadow' }, ops)
  await queue.addBulk(many(3))
  for (let n = 0; n < 3; n++) await taker.take()
  expect(await queue.meter()).toMatchObject({ cause: 'shadow', rate: undefined, shadowDelayedTotal: 2 })
  await queue.setShape({ mode: 'off' }, ops)
  await queue.addBulk(many(3))
  await taker.take()
  expect(await queue.meter()).toMatchObject({ cause: 'off', rate: undefined, shadowDelayedTotal: 2 })
  await queue.setShape({ mode: 'enforce' }, ops)
  await refusal(queue)
  expect(await taker.tryTake()).toBeUndefined()
  expect(await queue.meter()).toMatchObject({ cause: 'declared', rate: '1/h' })
})

test('in shadow what would have been refused is counted', async () => {
  const queue = shop.queue({ capacity: 2, mode: 'shadow' })
  await queue.addBulk(many(2))
  await queue.add('job', {})
  await queue.addBulk(many(2))
  expect(await queue.count()).toBe(5)
  expect(await queue.meter()).toMatchObject({ shadowRefusedTotal: 3, refusedTotal: 0 })
})

test('a change is published', async () => {
  const queue = shop.queue({ rate: '1/s' })
  await queue.waitUntilReady()
  const listener = redis.client()
  await listener.subscribe(queue.toKey('meta:wake'))
  const message = once(listener, 'message')
  await queue.setShape({ rate: '2/s' }, ops)
  expect(await message).toEqual([queue.toKey('meta:wake'), '2'])
})
