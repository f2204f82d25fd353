import { Queue } from 'bullmq'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import {
  CannotStartInTimeError,
  createShapedBackend,
  QueueFullError,
  type Refusal,
  type Shape,
  ShapedFlowProducer,
  type ShapedQueue,
} from '../../src/index.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, Workshop } from '../worker/support.ts'
import { expectUntil, many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())
const HOUR_MS = 3_600_000
const LONG = { timeout: 120_000 }

type Granted = { readonly id: string; readonly slotUs: number }

const late = (promise: Promise<unknown>) => rejection<CannotStartInTimeError>(promise)
const inHours = (hours: number) => Date.now() + hours * HOUR_MS

/** A queue of 1/h whose bucket is empty and in which so many wait: the next start is an hour away. */
async function hourly(waiting: number, shape: Partial<Shape> = {}): Promise<ShapedQueue> {
  const queue = shop.queue({ rate: '1/h', ...shape })
  await queue.add('gone', {})
  await new Taker(shop, queue).take()
  if (waiting > 0) await queue.addBulk(many(waiting))
  return queue
}

describe('maxWaitMs', () => {
  test('a job that would wait longer is refused, with its start and the time to come back; no capacity is needed', async () => {
    const queue = await hourly(2, { maxWaitMs: 2.5 * HOUR_MS })
    const before = await queue.meter()
    const error = await late(queue.add('job', {}))
    const after = await queue.meter()
    expect(error).toBeInstanceOf(CannotStartInTimeError)
    expect(error).toMatchObject({ queueName: queue.name, maxWaitMs: 2.5 * HOUR_MS, depth: 2, paused: false })
    expect([error.mustStartBefore, error.capacity]).toEqual([undefined, undefined])
    const start = new Date((before.nextDepartureAt as Date).getTime() + 2 * HOUR_MS)
    expect(Math.abs(error.startsAt.getTime() - start.getTime())).toBeLessThanOrEqual(1)
    expectUntil(error.retryAfterMs, new Date(start.getTime() - 2.5 * HOUR_MS), before.at, after.at)
    expect(error.message).toBe(
      `a job for queue "${queue.name}" would start at ${error.startsAt.toISOString()}, but jobs may wait 9000000 ms`,
    )
    expect(await queue.count()).toBe(2)
    expect((await queue.meter()).refusedTotal).toBe(1)
  })

  test('what goes ahead of what waits is taken', async () => {
    const queue = await hourly(0, { maxWaitMs: 2.5 * HOUR_MS })
    await queue.addBulk([...many(1), ...many(1, { priority: 5 })])
    await late(queue.add('job', {}, { priority: 5 }))
    await late(queue.add('job', {}, { priority: 9 }))
    await queue.add('head', {}, { lifo: true })
    await late(queue.add('job', {}, { priority: 1 }))
    await late(queue.add('job', {}, { priority: 2 }))
    expect(await queue.getJobCounts('waiting', 'prioritized')).toEqual({ waiting: 2, prioritized: 1 })
  })

  test('a delayed job waits from when it is due', async () => {
    const queue = await hourly(3)
    await queue.setShape({ maxWaitMs: 1.5 * HOUR_MS }, { by: 'test', reason: 'fresh jobs alone' })
    await late(queue.add('job', {}))
    const error = await late(queue.add('job', {}, { delay: 2 * HOUR_MS }))
    // Its start is four hours away, and two of them are its own.
    expect(error.retryAfterMs).toBeGreaterThan(0.4 * HOUR_MS)
    expect(error.retryAfterMs).toBeLessThanOrEqual(0.5 * HOUR_MS)
    await queue.add('job', {}, { delay: 3 * HOUR_MS })
    await late(queue.add('behind it', {}, { delay: 3 * HOUR_MS + 1 }))
  })

  test('all of a bulk, or none; also in parts, with and without a capacity', async () => {
    for (const [size, shape] of [
      [3, {}],
      [300, {}],
      [300, { capacity: 1000 }],
    ] as const) {
      const queue = shop.queue({ rate: '1/h', maxWaitMs: (size - 1.5) * HOUR_MS, ...shape })
      expect(await late(queue.addBulk(many(size)))).toBeInstanceOf(CannotStartInTimeError)
      expect(await queue.count()).toBe(0)
      await queue.addBulk(many(size - 1))
      expect(await queue.count()).toBe(size - 1)
    }
  })

  test('flows count what is to run in the queue, and parents that wait for children do not', async () => {
    const queue = await hourly(0, { maxWaitMs: 2.5 * HOUR_MS })
    const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
    const tree = (children: number) => ({
      ...{ name: 'parent', queueName: queue.name },
      children: Array.from({ length: children }, () => ({ name: 'child', queueName: queue.name })),
    })
    expect(await late(flows.add(tree(3)))).toBeInstanceOf(CannotStartInTimeError)
    await flows.add(tree(2))
    expect(await queue.getJobCounts('waiting', 'waiting-children')).toEqual({ waiting: 2, 'waiting-children': 1 })
  })

  test('a duplicate, and an iteration of a scheduler, are not looked at', async () => {
    const queue = await hourly(0, { maxWaitMs: 1.5 * HOUR_MS })
    await queue.add('job', {}, { jobId: 'one' })
    await late(queue.add('job', {}))
    await queue.add('job', {}, { jobId: 'one' })
    await queue.upsertJobScheduler('tick', { every: HOUR_MS }, { name: 'tick' })
    expect(await queue.getJobSchedulersCount()).toBe(1)
  })

  test('the pause of the meter counts, one without an end does not: then nobody knows', async () => {
    const queue = shop.queue({ maxWaitMs: HOUR_MS })
    await queue.pauseUntil(inHours(2), { reason: 'maintenance' })
    expect(await late(queue.add('job', {}))).toMatchObject({ paused: true })
    await queue.pause()
    await queue.add('job', {})
    await queue.resume()
    await queue.clearPause()
    // Without a rate.
    await queue.add('job', {})
  })

  test('0 lets in what can start at once', async () => {
    const queue = shop.queue({ rate: '1/h', burst: 2, maxWaitMs: 0 })
    await queue.addBulk(many(2))
    await late(queue.add('job', {}))
  })

  test('in shadow mode it is counted, once for each job; when off it is not', async () => {
    const queue = await hourly(1, { capacity: 1, maxWaitMs: 0, mode: 'shadow' })
    await queue.addBulk(many(3))
    expect((await queue.meter()).shadowRefusedTotal).toBe(4)
    await queue.setShape({ mode: 'off' }, { by: 'test', reason: 'off' })
    await queue.add('job', {})
    expect((await queue.meter()).shadowRefusedTotal).toBe(4)
  })

  test('it can be set at run time, and is put back when Redis has lost it', async () => {
    const queue = await hourly(1)
    await queue.setShape({ maxWaitMs: HOUR_MS }, { by: 'test', reason: 'fresh jobs alone' })
    await late(queue.add('job', {}))
    const client = redis.client()
    await client.del(queue.toKey('meta:shape'))
    await late(queue.add('job', {}))
    expect(await queue.getShape()).toMatchObject({ maxWaitMs: HOUR_MS })
    await queue.clearShape({ fields: ['maxWaitMs'] })
    await queue.add('job', {})
  })

  test('jobs that are added beside each other are looked at one by one', async () => {
    const queue = await hourly(0, { maxWaitMs: 3.5 * HOUR_MS })
    const settled = await Promise.allSettled(Array.from({ length: 20 }, () => queue.add('job', {})))
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
    expect(await queue.count()).toBe(3)
  })

  test('a stock queue obeys it', async () => {
    const queue = await hourly(1, { maxWaitMs: HOUR_MS })
    const stock = shop.keep(new Queue(queue.name, redis, createShapedBackend as never))
    expect(await late(stock.add('job', {}))).toBeInstanceOf(CannotStartInTimeError)
  })

  test('addWhenFree waits until the job would start in time', async () => {
    const queue = shop.queue({ rate: '50/s', maxWaitMs: 30 })
    const worker = shop.worker(queue, async () => {}, { autorun: false })
    const departures = departuresOf(worker)
    await queue.addBulk(many(2))
    await late(queue.add('job', {}))
    const added = queue.addWhenFree('patient', {})
    void worker.run()
    await added
    expect((await departures.reach(3)).at(-1)?.name).toBe('patient')
  })
})

describe('mustStartBefore', () => {
  test('a deadline that the schedule cannot meet is refused at once', async () => {
    const queue = await hourly(2, { capacity: 9 })
    const mustStartBefore = new Date(inHours(2.5))
    const before = await queue.meter()
    for (const add of [
      () => queue.add('job', {}, { mustStartBefore }),
      () => queue.addBulk([...many(1), { name: 'job', data: {}, opts: { mustStartBefore: inHours(3.5) } }]),
      () => queue.addWhenFree('job', {}, { mustStartBefore }),
      () => queue.addOnce([{ name: 'job', data: {}, opts: { mustStartBefore } }], { key: 'k', fingerprint: 'f' }),
    ]) {
      const error = await late(add())
      expect(error).toBeInstanceOf(CannotStartInTimeError)
      expect(error.maxWaitMs).toBeUndefined()
      expect(error).toMatchObject({ depth: 2, capacity: 9, retryAfterMs: expect.any(Number) })
    }
    const error = await late(queue.add('job', {}, { mustStartBefore }))
    expect(error.mustStartBefore).toEqual(mustStartBefore)
    const start = (before.nextDepartureAt as Date).getTime() + 2 * HOUR_MS
    expect(Math.abs(error.retryAfterMs - (start - mustStartBefore.getTime()))).toBeLessThanOrEqual(2)
    expect(error.message).toContain(`but its deadline is ${mustStartBefore.toISOString()}`)
    expect(await queue.count()).toBe(2)
    await queue.add('job', {}, { mustStartBefore: inHours(3.5) })
    await queue.add('job', {}, { mustStartBefore: inHours(1.5), lifo: true })
  })

  test('jobs that are added beside each other are looked at one by one', async () => {
    const queue = await hourly(0)
    const opts = { mustStartBefore: inHours(3.5) }
    const settled = await Promise.allSettled(Array.from({ length: 20 }, () => queue.add('job', {}, opts)))
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
  })

  test('where no schedule is known it is taken, and fails when it comes to the head too late', async () => {
    const queue = shop.queue({ mode: 'enforce' })
    await queue.add('gone', {})
    await queue.add('job', {}, { mustStartBefore: Date.now() + 60_000 })
    await queue.setShape({ limits: [{ name: 'slow', rate: '1/h', burst: 1 }] }, { by: 'test', reason: 'slower' })
    const worker = shop.worker(queue, async () => {})
    await eventsOf('expired', worker).reach(1)
  })

  test('by the limits too', async () => {
    const queue = shop.queue({ limits: [{ name: 'slow', algorithm: 'fixed-window', rate: '2/h', align: 'first' }] })
    for (let i = 0; i < 2; i++) await queue.add('job', {}, { mustStartBefore: Date.now() + 60_000 })
    const { startsAt } = await rejection<CannotStartInTimeError>(
      queue.add('job', {}, { mustStartBefore: Date.now() + 60_000 }),
    )
    expect(startsAt.getTime()).toBeGreaterThan(Date.now() + HOUR_MS - 10_000)
  })
})

test.each([
  ['jobs without ids', {}],
  ['jobs with ids', (n: number) => ({ jobId: `own-${n}` })],
  ['prioritized jobs', { priority: 3 }],
  ['jobs that go first', { lifo: true }],
] as const)('a large bulk is late if one of its jobs is, by the millisecond: %s', async (_what, opts) => {
  const queue = shop.queue({ rate: '100/s', burst: 1, capacity: 1000, maxWaitMs: 2995 })
  await queue.waitUntilReady()
  const jobs = many(301).map((job, n) => ({ ...job, opts: typeof opts === 'function' ? opts(n) : opts }))
  const error = await late(queue.addBulk(jobs))
  expect(error).toBeInstanceOf(CannotStartInTimeError)
  expect(error.retryAfterMs).toBe(5)
  expect(await queue.addBulk(jobs.slice(1))).toHaveLength(300)
})

test('offer answers with the start, and the queue tells of it as refused', async () => {
  const queue = await hourly(1, { maxWaitMs: HOUR_MS })
  const refused: Refusal[] = []
  queue.on('refused', (refusal) => refused.push(refusal))
  const offer = await queue.offer('job', {})
  expect(offer).toEqual({
    ...{ accepted: false, retryAfterMs: expect.any(Number), depth: 1, capacity: undefined, paused: false },
    startsAt: expect.any(Date),
  })
  expect(refused).toHaveLength(1)
  expect(refused[0]).toBeInstanceOf(CannotStartInTimeError)
})

test('a job that finds neither a place nor a start in time comes back for both', async () => {
  const queue = await hourly(3, { capacity: 3 })
  const full = await rejection<QueueFullError>(queue.add('job', {}))
  expect(full).toBeInstanceOf(QueueFullError)
  await queue.setShape({ maxWaitMs: 10 * HOUR_MS }, { by: 'test', reason: 'long' })
  expect(await rejection(queue.add('job', {}))).toBeInstanceOf(QueueFullError)
  await queue.setShape({ maxWaitMs: 3.5 * HOUR_MS }, { by: 'test', reason: 'short' })
  const both = await late(queue.add('job', {}))
  expect(both).toBeInstanceOf(CannotStartInTimeError)
  expect(Math.abs(both.retryAfterMs - full.retryAfterMs)).toBeLessThan(10_000)
})

/** Moves the clock on, and grants each job as soon as it may be: a worker that is never late. */
async function runUntil(us: number, horizonUs: number, see: (grants: readonly Granted[]) => void = () => {}) {
  for (;;) {
    const { grants, stop, nextUs } = await held.depart(100, horizonUs)
    see(grants)
    const wakeUs = (nextUs as number) - horizonUs
    if (stop !== 'closed' || wakeUs > us) break
    await held.advanceTo(wakeUs)
  }
  await held.advanceTo(us)
}

test(
  'retryAfterMs is the first millisecond at which the job would be taken, if jobs depart as granted',
  LONG,
  async () => {
    const scenario = fc.record({
      limit: fc.integer({ min: 1, max: 900 }),
      burst: fc.integer({ min: 1, max: 4 }),
      slots: fc.integer({ min: 0, max: 5 }),
      pauseMs: fc.constantFrom(0, 0, 700),
      passedUs: fc.integer({ min: 0, max: 100_000 }),
      horizonUs: fc.constantFrom(0, 50_000),
    })
    let refusals = 0
    const tryAdd = async () => {
      try {
        await held.add()
        return undefined
      } catch (error) {
        if (error instanceof CannotStartInTimeError) return error.retryAfterMs
        throw error
      }
    }
    await fc.assert(
      fc.asyncProperty(scenario, async ({ limit, burst, slots, pauseMs, passedUs, horizonUs }) => {
        await held.reset({ rate: `${limit}/s`, burst, maxWaitMs: Math.floor((slots * 1000) / limit) })
        for (let n = 0; n < 12; n++) {
          await tryAdd()
          if (n % 4 === 1) await held.depart(100, horizonUs)
          if (n === 6) await held.advanceTo(held.nowUs + passedUs)
        }
        if (pauseMs) await held.backend.store.pause({ kind: 'for', ms: pauseMs, reason: 'test' })
        const refusedAt = held.nowUs
        const retryAfterMs = await tryAdd()
        if (retryAfterMs === undefined) return
        refusals += 1
        if (retryAfterMs > 1) {
          await runUntil(refusedAt + (retryAfterMs - 1) * 1000, horizonUs)
          expect(await tryAdd(), 'one ms early').toBe(1)
        }
        await runUntil(refusedAt + retryAfterMs * 1000, horizonUs)
        expect(await tryAdd(), `after ${retryAfterMs} ms`).toBeUndefined()
      }),
      { numRuns: 100 },
    )
    expect(refusals).toBeGreaterThan(40)
  },
)

test('what was let in starts within maxWaitMs, if jobs depart as granted and none goes ahead', LONG, async () => {
  const scenario = fc.record({
    limit: fc.integer({ min: 1, max: 900 }),
    burst: fc.integer({ min: 1, max: 4 }),
    slots: fc.integer({ min: 0, max: 9 }),
    steps: fc.array(fc.tuple(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 3000 })), { maxLength: 15 }),
  })
  await fc.assert(
    fc.asyncProperty(scenario, async ({ limit, burst, slots, steps }) => {
      const maxWaitMs = Math.floor((slots * 1000) / limit)
      await held.reset({ rate: `${limit}/s`, burst, maxWaitMs })
      const addedAt = new Map<string, number>()
      const check = (grants: readonly Granted[]) => {
        for (const { id, slotUs } of grants) {
          // These calls look no time ahead, and at whole microseconds: a slot may be 1 µs later for each job before it.
          expect(slotUs - (addedAt.get(id) as number)).toBeLessThanOrEqual(maxWaitMs * 1000 + slots + burst)
        }
      }
      for (const [jobs, passed] of steps) {
        for (let n = 0; n < jobs; n++) {
          const added = await held.add().catch(() => undefined)
          if (added) addedAt.set(added.id as string, held.nowUs)
        }
        await runUntil(held.nowUs + Math.floor((passed * 1000) / limit), 0, check)
      }
      check(await held.drain(100, 0))
    }),
    {
      numRuns: 25,
      examples: [
        [
          {
            limit: 893,
            burst: 1,
            slots: 7,
            steps: [
              [2, 1681],
              [0, 69],
              [3, 0],
              [4, 0],
            ],
          },
        ],
      ],
    },
  )
})
