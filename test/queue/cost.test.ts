import { expect, test } from 'vitest'
import { CostTooHighError, InvalidCostError, type ShapedJobsOptions } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { excess, Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

/** Expects that the one job that waits costs so much: so many hours after it left the bucket is as it was. */
async function expectCost(queue: ReturnType<Workshop['queue']>, taker: Taker, cost: number): Promise<void> {
  const job = await taker.take()
  const { level, shape } = await queue.meter()
  expect(shape!.rate).toBe('1/h')
  expect(level).toBeGreaterThan(cost - 0.01)
  expect(level).toBeLessThanOrEqual(cost)
  expect((await queue.getJob(job.id!))?.opts).toMatchObject({ cost })
}

function hourly(options: { defaultJobOptions?: ShapedJobsOptions } = {}) {
  const queue = shop.queue({ rate: '1/h', burst: 10, capacity: 20 }, options)
  return { queue, taker: new Taker(shop, queue) }
}

test('of a job', async () => {
  const { queue, taker } = hourly()
  await queue.add('job', {}, { cost: 3 })
  await expectCost(queue, taker, 3)
})

test('of a job of a bulk', async () => {
  const { queue, taker } = hourly()
  await queue.addBulk([{ name: 'job', data: {}, opts: { cost: 4 } }])
  await expectCost(queue, taker, 4)
})

test('of a job that waited for its place', async () => {
  const { queue, taker } = hourly()
  await queue.addWhenFree('job', {}, { cost: 5, timeoutMs: 10_000 })
  await expectCost(queue, taker, 5)
})

test('by default, and a job of its own cost beside it', async () => {
  const { queue, taker } = hourly({ defaultJobOptions: { cost: 2 } })
  await queue.add('job', {})
  await expectCost(queue, taker, 2)
  await queue.addBulk(many(1))
  const job = await taker.take()
  expect(job.opts).toMatchObject({ cost: 2 })
  await queue.add('job', {}, { cost: 0.5 })
  expect((await taker.take()).opts).toMatchObject({ cost: 0.5 })
  expect((await queue.meter()).level).toBeGreaterThan(4.49)
})

test('of the jobs that a scheduler makes, the first and the next', async () => {
  const { queue, taker } = hourly()
  const first = await queue.upsertJobScheduler('s', { every: HOUR_MS }, { name: 'tick', opts: { cost: 6 } })
  await first.promote().catch(() => {})
  await expectCost(queue, taker, 6)
  await queue.setShape({ rate: null }, { by: 'test', reason: 'the next one' })
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const active = await queue.getActive()
  await redis.client().del(...active.map(({ id }) => `${queue.toKey(id!)}:lock`))
  await queue.clean(0, 100, 'active')
  const again = await queue.upsertJobScheduler('s', { every: HOUR_MS }, { name: 'tick', opts: { cost: 7 } })
  await again.promote().catch(() => {})
  const done = new Promise((resolve) => worker.once('completed', resolve))
  void worker.run()
  await done
  expect((await queue.getDelayed()).map(({ name, opts }) => [name, (opts as ShapedJobsOptions).cost])).toEqual([
    ['tick', 7],
  ])
})

test('a job without one costs 1, and nothing of it is stored', async () => {
  const { queue, taker } = hourly()
  await queue.add('job', { cost: 9 })
  const job = await taker.take()
  expect((await queue.meter()).level).toBeGreaterThan(0.99)
  expect((await queue.meter()).level).toBeLessThanOrEqual(1)
  expect(Object.keys(job.opts)).not.toContain('cost')
})

test('more than the burst is refused, and the message says what to do', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 5 })
  const error = await rejection<CostTooHighError>(queue.add('job', {}, { cost: 2 }))
  expect(error).toBeInstanceOf(CostTooHighError)
  expect(error).toMatchObject({ name: 'CostTooHighError', cost: 2, burst: 1 })
  expect(error.message).toBe('cost 2 exceeds burst 1: set burst to at least 2')
  await expect(queue.addBulk([...many(1), ...many(1, { cost: 1.5 })])).rejects.toThrow(
    'cost 1.5 exceeds burst 1: set burst to at least 1.5',
  )
  await expect(queue.upsertJobScheduler('s', { every: HOUR_MS }, { name: 'tick', opts: { cost: 2 } })).rejects.toThrow(
    CostTooHighError,
  )
  expect(await queue.getJobSchedulersCount()).toBe(0)
  expect(await queue.count()).toBe(0)
})

test('without a rate any cost is accepted', async () => {
  const queue = shop.queue({ capacity: 5 })
  await queue.add('job', {}, { cost: 100 })
  expect(await queue.count()).toBe(1)
})

test('a job that was accepted is not blocked by a burst that is lowered below its cost', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 8 })
  const taker = new Taker(shop, queue)
  await queue.addBulk([...many(1, { cost: 8 }), ...many(2)])
  await queue.setShape({ burst: 2 }, { by: 'test', reason: 'smoother' })
  expect((await taker.take()).opts).toMatchObject({ cost: 8 })
  // It is charged in full, and leaves from an empty bucket: the next one has to wait for it.
  const { level, nextDepartureAt, at } = await queue.meter()
  expect(level).toBeLessThanOrEqual(8)
  expect(nextDepartureAt!.getTime() - at.getTime()).toBeLessThanOrEqual(70)
  const worker = shop.worker(queue, async () => {}, { concurrency: 4, autorun: false })
  const slots: number[] = []
  worker.on('departed', (_job, { departureTimeUs }) => slots.push(departureTimeUs))
  const both = new Promise<void>((resolve) => worker.on('completed', () => slots.length === 2 && resolve()))
  void worker.run()
  await both
  expect(excess(slots, 10_000, 2)).toBeLessThanOrEqual(0.001)
})

const WRONG: [cost: unknown, came: string][] = [
  [0, '0'],
  [-1, '-1'],
  [Number.NaN, 'NaN'],
  [Number.POSITIVE_INFINITY, 'Infinity'],
  ['2', '"2"'],
  [null, 'null'],
]

test.each(WRONG)('%s is no cost', async (cost, came) => {
  const { queue } = hourly()
  const opts = { cost } as ShapedJobsOptions
  const attempts = [
    () => queue.add('job', {}, opts),
    () => queue.offer('job', {}, opts),
    () => queue.addWhenFree('job', {}, opts),
    () => queue.addBulk([{ name: 'job', data: {}, opts }]),
    () => queue.upsertJobScheduler('s', { every: HOUR_MS }, { opts }),
  ]
  for (const attempt of attempts) {
    const error = await rejection(attempt())
    expect(error).toBeInstanceOf(InvalidCostError)
    expect(error.message).toBe(`cost must be a number > 0 and at most 1000000000; got ${came}`)
  }
  expect(await queue.count()).toBe(0)
  expect(() => shop.queue({}, { defaultJobOptions: opts })).toThrow(InvalidCostError)
})
