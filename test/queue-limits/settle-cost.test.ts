import { Worker } from 'bullmq'
import { expect, test } from 'vitest'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { InvalidCostError, type QueueLimit, type ShapedJob, type ShapedQueue } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { rejection } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, settled, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { prefix } = redis

type Settle = (job: ShapedJob) => Promise<unknown>

const ALGORITHMS: Record<string, Partial<QueueLimit>> = {
  gcra: { rate: '100/day', burst: 100 },
  'token bucket': { algorithm: 'token-bucket', rate: '100/day', burst: 100 },
  'leaky bucket': { algorithm: 'leaky-bucket', rate: '100/day', burst: 100 },
  'sliding log': { algorithm: 'sliding-window-log', rate: '100/day' },
  'sliding counter': { algorithm: 'sliding-window-counter', rate: '100/day' },
  'fixed window': { algorithm: 'fixed-window', rate: '100/day', align: 'first' },
}

let names = 0
/** A shared limit on tokens, and what of it is left as a limiter sees it. */
function tokens(rule: Partial<QueueLimit> = ALGORITHMS.gcra as Partial<QueueLimit>) {
  names += 1
  const name = `tokens${names}`
  const limiter = createLimiter(client, { name, prefix, timeoutMs: 10_000, ...rule })
  const limit: QueueLimit = { name, unit: 'tokens', shared: true, prefix, ...rule }
  return { limit, left: async () => (await limiter.peek()).remaining }
}

/** The limiter that shares it. */
function limiterOf({ unit: _unit, shared: _shared, ...options }: QueueLimit) {
  return { ...options, timeoutMs: 10_000 }
}

/** Runs what is in the queue, and fails with whatever a job fails with but on purpose. */
async function run(queue: ShapedQueue, settle: Settle, ends = 1) {
  const worker = shop.worker(queue, settle as never)
  const failures: string[] = []
  worker.on('failed', (_job, { message }) => message === 'on purpose' || failures.push(message))
  await eventsOf('completed', worker).reach(ends)
  expect(failures).toEqual([])
  await worker.close()
}

test.each(Object.entries(ALGORITHMS))(
  'what a job cost more is charged, what it cost less is given back: %s',
  async (_name, rule) => {
    const { limit, left } = tokens(rule)
    const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
    await queue.add('job', {}, { costs: { tokens: 20 } })
    const seen: number[] = []
    await run(queue, async (job) => {
      seen.push(await left())
      await job.settleCost({ tokens: 35 })
      seen.push(await left())
      await job.settleCost({ tokens: 35 })
      seen.push(await left())
      await job.settleCost({ tokens: 5 })
      seen.push(await left())
    })
    // The log knows what was charged up to the departure; what was added later stays until it leaves the window.
    expect(seen).toEqual([80, 65, 65, rule.algorithm === 'sliding-window-log' ? 85 : 95])
  },
)

test('a debt holds the jobs behind, and may be more than the limit', async () => {
  const { limit, left } = tokens()
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.addBulk(jobs(3, { costs: { tokens: 10 } }))
  const worker = shop.worker(queue, (async (job: ShapedJob) => job.settleCost({ tokens: 400 })) as never)
  const departed = departuresOf(worker)
  await departed.reach(1)
  await asleep(queue, client)
  expect(departed.all).toHaveLength(1)
  expect(await left()).toBe(0)
})

test('what is given back goes to the jobs behind, at once', async () => {
  const { limit } = tokens()
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.addBulk(jobs(2, { costs: { tokens: 60 } }))
  const known = gate()
  shop.keep({ close: async () => known.open() })
  const process: Settle = async (job) => {
    if (job.name === 'job1') return
    await known.opened
    await job.settleCost({ tokens: 30 })
  }
  const worker = shop.worker(queue, process as never, { concurrency: 2, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(queue, client, calls)
  expect(departed.all).toHaveLength(1)
  known.open()
  await departed.reach(2)
})

test('each attempt is charged by itself', async () => {
  const { limit, left } = tokens()
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {}, { costs: { tokens: 20 }, attempts: 2 })
  const seen: number[] = []
  await run(queue, async (job) => {
    seen.push(await left())
    await job.settleCost({ tokens: 30 })
    seen.push(await left())
    if (job.attemptsStarted === 1) throw new Error('on purpose')
  })
  expect(seen).toEqual([80, 70, 50, 40])
})

test.each([
  ['by its group', { groups: {} }],
  ['by the downstream', { groups: {} }],
] as const)('a job that goes back to the queue, held %s, is charged and settled anew', async (held, shape) => {
  const { limit, left } = tokens({ rate: '1000/day', burst: 1000 })
  const queue = shop.queue({ ...shape, maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {}, { costs: { tokens: 20 }, group: { id: 'a' } })
  const seen: number[] = []
  const pause = { ...said, scope: 'group', kind: 'pause', forMs: 50, hard: true } as unknown as Feedback
  const worker = shop.worker(
    queue,
    (async (job: ShapedJob) => {
      await job.settleCost({ tokens: 120 })
      seen.push(await left())
      if (seen.length > 1) return
      if (held === 'by the downstream') throw new Told(pause)
      await worker.rateLimitGroup(job, 50)
      throw Worker.RateLimitError()
    }) as never,
    { feedback: ears },
  )
  await eventsOf('completed', worker).reach(1)
  expect(seen).toEqual([880, 760])
})

test('a job that gave no costs was charged 1 of each unit, and limits of one unit are settled together', async () => {
  const [one, other] = [tokens(), tokens({ algorithm: 'token-bucket', rate: '50/day', burst: 50 })]
  const requests: QueueLimit = { name: 'requests', rate: '10/day', burst: 10 }
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [one.limit, other.limit, requests] })
  await queue.add('job', {})
  await run(queue, async (job) => {
    await expect(job.settleCost({ tokens: 11, unheard: 3 })).rejects.toThrow("no limit of this queue counts 'unheard'")
    await job.settleCost({ tokens: 11 })
  })
  expect([await one.left(), await other.left()]).toEqual([89, 39])
  // That of requests was not touched: nine more leave.
  await queue.addBulk(jobs(12))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 20 }))
  await asleep(queue, client)
  expect(departed.all).toHaveLength(9)
})

test('a number is what it cost of the rate, and of the limits without a unit', async () => {
  const queue = shop.queue({
    maxLatenessMs: 60_000,
    rate: '10/day',
    burst: 10,
    limits: [{ name: 'all', rate: '8/day', burst: 8 }],
  })
  await queue.add('job', {}, { cost: 5 })
  await run(queue, (job) => job.settleCost(3))
  expect((await queue.meter()).level).toBeCloseTo(3, 1)
  await queue.addBulk(jobs(12))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 20 }))
  await asleep(queue, client)
  expect(departed.all).toHaveLength(5)
})

test('a credit fills no bucket above its burst', async () => {
  const { limit, left } = tokens()
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {}, { costs: { tokens: 20 } })
  await run(queue, async (job) => {
    await job.settleCost({ tokens: 60 })
    await job.settleCost({ tokens: 0.5 })
  })
  expect(await left()).toBe(99)
})

test('a job may have cost nothing', async () => {
  const { limit, left } = tokens()
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {}, { costs: { tokens: 20 } })
  await run(queue, (job) => job.settleCost({ tokens: 0 }))
  expect(await left()).toBeGreaterThanOrEqual(99)
})

test('what has come back by itself is not given back again: others have it', async () => {
  const { limit, left } = tokens({ rate: { limit: 100, period: 1000 }, burst: 100 })
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
  await queue.add('job', {}, { costs: { tokens: 100 } })
  await run(queue, async (job) => {
    await expect.poll(left, { interval: 20 }).toBe(100)
    await createLimiter(client, limiterOf(limit)).take(undefined, { cost: 100 })
    const before = await left()
    await job.settleCost({ tokens: 1 })
    // No more than what the time since then has brought.
    expect(before).toBeLessThan(50)
    expect(await left()).toBeLessThan(90)
  })
})

test.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '3', {}, { tokens: -1 }, { tokens: '7' }, [4], null])(
  'what is no cost is refused, and nothing is changed: %j',
  async (bad) => {
    const { limit, left } = tokens()
    const queue = shop.queue({ maxLatenessMs: 60_000, limits: [limit] })
    await queue.add('job', {}, { costs: { tokens: 20 } })
    let error: unknown
    await run(queue, async (job) => {
      error = await rejection(job.settleCost(bad as never))
    })
    expect(error).toBeInstanceOf(InvalidCostError)
    expect(await left()).toBe(80)
  },
)
