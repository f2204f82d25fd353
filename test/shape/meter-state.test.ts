import { expect, test } from 'vitest'
import { concurrencyText } from '../../src/queue/meter-state.ts'
import { many, rejection, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000
const ops = { by: 'ops', reason: 'test' }

test('a queue without a shape has a meter that is open', async () => {
  const queue = shop.queue()
  await queue.add('job', {})
  expect(await queue.meter()).toEqual({
    ...{ at: expect.any(Date), shape: undefined, depth: 1, capacity: undefined },
    ...{
      waiting: 1,
      delayed: 0,
      waitingChildren: 0,
      active: 0,
      headAgeMs: expect.any(Number),
      meanCost: 1,
      paused: false,
    },
    ...{ pausedUntil: undefined, pauseReason: undefined, level: 0, nextDepartureAt: undefined },
    ...{
      rate: undefined,
      cause: 'unpaced',
      refusedTotal: 0,
      shadowRefusedTotal: 0,
      shadowDelayedTotal: 0,
      droppedTotal: 0,
      unconfirmedTotal: 0,
    },
  })
})

test('level, depth and the next departure follow what leaves', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3, capacity: 10 })
  const taker = new Taker(shop, queue)
  await queue.addBulk([...many(4), ...many(1, { delay: HOUR_MS }), ...many(2, { priority: 1 })])
  const before = await queue.meter()
  expect(before).toMatchObject({ level: 0, depth: 7, waiting: 6, delayed: 1, active: 0, capacity: 10, rate: '1/h' })
  expect(before.nextDepartureAt).toEqual(before.at)
  for (let n = 0; n < 3; n++) await taker.take()
  const after = await queue.meter()
  expect(after).toMatchObject({ depth: 4, waiting: 3, active: 3 })
  expect(after.level).toBeGreaterThan(2.99)
  expect(after.level).toBeLessThanOrEqual(3)
  const client = redis.client()
  const slots = (await queue.getActive()).map(({ id }) => client.hget(queue.toKey(id!), 'departure'))
  const first = Math.min(...(await Promise.all(slots)).map(Number))
  expect(Math.abs(after.nextDepartureAt!.getTime() - first / 1000 - HOUR_MS)).toBeLessThanOrEqual(1)
})

test('the time is that of Redis', async () => {
  const queue = shop.queue({})
  const client = redis.client()
  const timeOf = async () => Number((await client.time())[0]) * 1000
  const [before, { at }, after] = [await timeOf(), await queue.meter(), await timeOf()]
  expect(at.getTime()).toBeGreaterThanOrEqual(before)
  expect(at.getTime()).toBeLessThan(after + 1000)
})

test('reading writes nothing', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 1 })
  await queue.waitUntilReady()
  const client = redis.client()
  const dump = async () => {
    const keys = (await client.keys(`${queue.toKey('')}*`)).sort()
    return Promise.all(
      keys.map(async (key) => [key, await client.type(key), (await client.dumpBuffer(key))?.toString('hex')]),
    )
  }
  const before = await dump()
  await queue.meter()
  await queue.getShape()
  expect(await dump()).toEqual(before)
})

test('the cause says why the queue leaves at its rate', async () => {
  const queue = shop.queue({ rate: '50/s' })
  const state = async () => {
    const { rate, cause } = await queue.meter()
    return [rate, cause]
  }
  expect(await state()).toEqual(['50/s', 'declared'])
  await queue.setShape({ rate: '20/s' }, ops)
  expect(await state()).toEqual(['20/s', 'override'])
  await queue.setShape({ rate: null }, ops)
  expect(await state()).toEqual([undefined, 'override'])
  await queue.clearShape()
  await queue.pauseUntil(Date.now() + HOUR_MS, { reason: 'maintenance' })
  expect(await state()).toEqual(['50/s', 'meter paused'])
  await queue.pause()
  expect(await state()).toEqual(['50/s', 'paused'])
  await queue.resume()
  await queue.clearPause()
  await queue.setShape({ mode: 'shadow' }, ops)
  expect(await state()).toEqual([undefined, 'shadow'])
  await queue.setShape({ mode: 'off' }, ops)
  expect(await state()).toEqual([undefined, 'off'])
  const unpaced = shop.queue({ capacity: 5 })
  expect(await unpaced.meter()).toMatchObject({ rate: undefined, cause: 'unpaced' })
})

test('refusals are counted by jobs', async () => {
  const queue = shop.queue({ capacity: 2 })
  await queue.addBulk(many(2))
  await rejection(queue.add('job', {}))
  await rejection(queue.addBulk(many(2)))
  expect((await queue.meter()).refusedTotal).toBe(3)
})

test('the age of the head is that of the job that leaves next, from when it was ready', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const age = async () => (await queue.meter()).headAgeMs
  const timestamp = Date.now() - HOUR_MS
  expect(await age()).toBeUndefined()
  await queue.add('delayed', {}, { delay: HOUR_MS })
  expect(await age()).toBeUndefined()
  await queue.add('prioritized', {}, { priority: 1, timestamp: timestamp - HOUR_MS })
  expect(await age()).toBeGreaterThanOrEqual(2 * HOUR_MS)
  await queue.add('first', {}, { timestamp })
  await queue.add('second', {})
  const first = (await age()) as number
  expect(first).toBeGreaterThanOrEqual(HOUR_MS)
  expect(first).toBeLessThan(1.5 * HOUR_MS)
  const taker = new Taker(shop, queue)
  await taker.take()
  expect(await age()).toBeLessThan(HOUR_MS / 2)
})

test('a delay that is over, and a try before, do not count as age', async () => {
  const queue = shop.queue({})
  const timestamp = Date.now() - 2 * HOUR_MS
  const job = await queue.add('delayed', {}, { timestamp, delay: HOUR_MS, attempts: 2 })
  await job.promote()
  const age = async () => (await queue.meter()).headAgeMs as number
  expect(await age()).toBeGreaterThanOrEqual(HOUR_MS)
  expect(await age()).toBeLessThan(1.5 * HOUR_MS)
  const worker = shop.worker(queue, null)
  const taken = await worker.getNextJob('token')
  await taken!.moveToFailed(new Error('again'), 'token', false)
  expect((await queue.meter()).waiting).toBe(1)
  expect(await age()).toBeLessThan(HOUR_MS / 2)
})

test('the concurrency in force is told with its cause and its end, and what was declared if that differs', () => {
  const state = { set: 10, inForce: 10, cause: 'declared', until: undefined } as const
  const until = new Date('2026-11-22T21:05:00Z')
  expect(concurrencyText(state)).toBe('10 (declared)')
  expect(concurrencyText({ ...state, cause: 'override', until })).toBe('10 (override, until 2026-11-22T21:05:00.000Z)')
  expect(concurrencyText({ ...state, inForce: 1, cause: 'feedback' })).toBe('10 declared, 1 effective (feedback)')
  expect(concurrencyText({ ...state, set: undefined, inForce: 1, cause: 'feedback' })).toBe(
    'none declared, 1 effective (feedback)',
  )
})
