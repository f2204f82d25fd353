import { expect, test } from 'vitest'
import { CostTooHighError, ShapedFlowProducer, type ShapedJobsOptions, type ShapedQueue } from '../../src/index.ts'
import { rejection } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, jobs, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

/** 100 tokens, and the next tomorrow. */
const TOKENS = { name: 'tokens', algorithm: 'token-bucket', rate: '1/day', burst: 100, unit: 'tokens' } as const

function producer(): ShapedFlowProducer {
  const { connection, prefix } = redis
  return shop.keep(new ShapedFlowProducer({ connection, prefix }))
}

/** Adds so many jobs of these options. */
type Add = (queue: ShapedQueue, count: number, opts: ShapedJobsOptions) => Promise<unknown>

const each = (count: number, add: (i: number) => Promise<unknown>) =>
  Promise.all(Array.from({ length: count }, (_, i) => add(i)))

const WAYS: Record<string, Add> = {
  add: (queue, count, opts) => each(count, (i) => queue.add(`job${i}`, {}, opts)),
  addBulk: (queue, count, opts) => queue.addBulk(jobs(count, opts)),
  'a large bulk': async (queue, count, opts) => {
    await queue.addBulk(jobs(count, opts))
    await queue.addBulk(jobs(220, opts))
  },
  offer: (queue, count, opts) => each(count, (i) => queue.offer(`job${i}`, {}, opts)),
  addWhenFree: (queue, count, opts) => each(count, (i) => queue.addWhenFree(`job${i}`, {}, opts)),
  'a delayed job': (queue, count, opts) => queue.addBulk(jobs(count, { ...opts, delay: 5 })),
  'a prioritized job': (queue, count, opts) => queue.addBulk(jobs(count, { ...opts, priority: 3 })),
  'a scheduler': (queue, count, opts) =>
    each(count, (i) => queue.upsertJobScheduler(`s${i}`, { every: 3_600_000 }, { name: 'job', opts })),
  'a flow': (queue, count, opts) =>
    producer().add({
      ...{ name: 'parent', queueName: queue.name, opts: { ...opts } },
      children: jobs(count - 1, opts).map((job) => ({ ...job, queueName: queue.name })),
    }),
}

test.each(Object.entries(WAYS))('%s carries costs: of jobs of 30, three leave under 100', async (_name, add) => {
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [TOKENS] })
  await queue.waitUntilReady()
  await add(queue, 5, { costs: { tokens: 30 } })
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 }))
  await departed.reach(3)
  await asleep(queue, client)
  expect(departed.all).toHaveLength(3)
})

test.each(Object.entries(WAYS).filter(([name]) => name !== 'a scheduler'))(
  '%s refuses a job that costs more than a limit ever allows, and adds nothing',
  async (_name, add) => {
    const queue = shop.queue({
      maxLatenessMs: 60_000,
      limits: [TOKENS, { name: 'window', algorithm: 'fixed-window', rate: '7/h' }],
    })
    await queue.waitUntilReady()
    const error = await rejection<CostTooHighError>(add(queue, 2, { costs: { tokens: 101 } }))
    expect(error).toBeInstanceOf(CostTooHighError)
    expect(error).toMatchObject({ cost: 101, burst: 100, limitName: 'tokens' })
    expect(error.message).toBe(
      'cost 101 exceeds what limit "tokens" allows at once, 100: raise it to at least 101, or give the limit clampCost: true',
    )
    expect(await rejection(add(queue, 2, { cost: 8 }))).toMatchObject({ cost: 8, burst: 7, limitName: 'window' })
    expect((await queue.meter()).depth).toBe(0)
    await queue.add('job', {}, { cost: 7, costs: { tokens: 100 } })
    expect((await queue.meter()).depth).toBe(1)
  },
)

test('in shadow a job that costs more than a limit allows is added', async () => {
  const queue = shop.queue({ mode: 'shadow', limits: [TOKENS] })
  await queue.waitUntilReady()
  await queue.add('job', {}, { costs: { tokens: 101 } })
  expect((await queue.meter()).depth).toBe(1)
})
