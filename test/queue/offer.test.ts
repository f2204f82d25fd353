import { expect, test } from 'vitest'
import type { Offer } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { expectUntil, many, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

/** A queue whose bucket is empty: slots lie whole hours apart from the next one on. */
async function hourly(shape: { burst?: number } = {}) {
  const queue = shop.queue({ rate: '1/h', capacity: 20, ...shape })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(shape.burst ?? 1))
  for (let n = 0; n < (shape.burst ?? 1); n++) await taker.take()
  return queue
}

function accepted<J>(offer: Offer<J>): Extract<Offer<J>, { accepted: true }> {
  return offer.accepted ? offer : expect.fail('expected the offer to be accepted')
}

const startOf = (offer: { startsAt: Date | undefined }) => offer.startsAt?.getTime() ?? expect.fail('no start')

test('a job is told its position and its slot', async () => {
  const queue = await hourly()
  const next = (await queue.meter()).nextDepartureAt!.getTime()
  for (let n = 0; n < 3; n++) {
    const offer = accepted(await queue.offer('job', { n }))
    expect(offer.position).toBe(n)
    expect(Math.abs(startOf(offer) - next - n * HOUR_MS)).toBeLessThanOrEqual(1)
    expect(await queue.getJob(offer.job.id!)).toMatchObject({ data: { n } })
  }
})

test('a job that can leave at once starts now', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 2 })
  const before = (await queue.meter()).at
  const offer = accepted(await queue.offer('job', {}))
  const after = (await queue.meter()).at
  expect(offer.position).toBe(0)
  expect(startOf(offer)).toBeGreaterThanOrEqual(before.getTime())
  expect(startOf(offer)).toBeLessThanOrEqual(after.getTime())
})

test('a lifo job is the next one', async () => {
  const queue = await hourly()
  const next = (await queue.meter()).nextDepartureAt!.getTime()
  await queue.addBulk(many(3))
  const offer = accepted(await queue.offer('job', {}, { lifo: true }))
  expect(offer.position).toBe(0)
  expect(Math.abs(startOf(offer) - next)).toBeLessThanOrEqual(1)
})

test('a prioritized job stands behind those without a priority and those of a higher one', async () => {
  const queue = await hourly()
  const next = (await queue.meter()).nextDepartureAt!.getTime()
  await queue.addBulk([...many(2), ...many(2, { priority: 1 }), ...many(3, { priority: 9 })])
  const offer = accepted(await queue.offer('job', {}, { priority: 5 }))
  expect(offer.position).toBe(4)
  expect(Math.abs(startOf(offer) - next - 4 * HOUR_MS)).toBeLessThanOrEqual(1)
})

test('what stands ahead counts with the mean cost of what has left', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 100, capacity: 20 })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(2, { cost: 50 }))
  await taker.take()
  await taker.take()
  const mean = 1 + (50 - 1) / 16 + (50 - 1 - (50 - 1) / 16) / 16
  await queue.addBulk(many(2))
  const next = (await queue.meter()).nextDepartureAt!.getTime()
  const offer = accepted(await queue.offer('job', {}))
  // The head costs 1, the one behind it and the job itself the mean.
  expect(offer.position).toBe(2)
  expect(Math.abs(startOf(offer) - next - 2 * mean * HOUR_MS)).toBeLessThanOrEqual(2)
})

test.each([
  ['gcra', { rate: '1/h', burst: 2 }, 2],
  ['token-bucket', { rate: '1/h', burst: 2 }, 2],
  ['leaky-bucket', { rate: '1/h', burst: 2 }, 2],
  ['fixed-window', { rate: '2/h', align: 'first' }, 1],
  ['sliding-window-log', { rate: '2/h' }, 1],
] as const)('a job far back is told the start that a limit allows: %s', async (algorithm, limit, hoursEach) => {
  const queue = shop.queue({ limits: [{ name: 'tokens', unit: 'tokens', algorithm, ...limit }], capacity: 100 })
  const opts = { costs: { tokens: 2 } }
  await queue.addBulk(many(1, opts))
  await new Taker(shop, queue).take()
  const first = startOf(accepted(await queue.offer('job', {}, opts)))
  // More than are computed one by one.
  await queue.addBulk(many(69, opts))
  const last = accepted(await queue.offer('job', {}, opts))
  expect(last.position).toBe(70)
  expect(Math.abs(startOf(last) - first - 70 * hoursEach * HOUR_MS)).toBeLessThanOrEqual(2)
})

test('a delayed job has neither position nor start', async () => {
  const offer = accepted(await (await hourly()).offer('job', {}, { delay: 60_000 }))
  expect(offer).toMatchObject({ position: undefined, startsAt: undefined })
})

test("a job that comes in the meter's pause starts after it", async () => {
  const queue = shop.queue({ rate: '1/s', capacity: 5 })
  await queue.waitUntilReady()
  const until = new Date(Date.now() + HOUR_MS)
  await queue.pauseUntil(until, { reason: 'maintenance' })
  const offers = [accepted(await queue.offer('job', {})), accepted(await queue.offer('job', {}))]
  expect(offers.map(({ position }) => position)).toEqual([0, 1])
  expect(offers.map(startOf)).toEqual([until.getTime(), until.getTime() + 1000])
})

test('in a pause without an end a job has a position and no start', async () => {
  const queue = await hourly()
  await queue.pause()
  await queue.add('job', {})
  expect(accepted(await queue.offer('job', {}))).toMatchObject({ position: 1, startsAt: undefined })
})

test('without a rate only the head knows its start', async () => {
  const queue = shop.queue({ capacity: 5 })
  const before = (await queue.meter()).at
  const [first, second] = [accepted(await queue.offer('a', {})), accepted(await queue.offer('b', {}))]
  expect(first.position).toBe(0)
  expect(startOf(first)).toBeGreaterThanOrEqual(before.getTime())
  expect(second).toMatchObject({ position: 1, startsAt: undefined })
})

test('a full queue is an answer: when to come back, how many wait', async () => {
  const queue = await hourly()
  await queue.addBulk(many(20))
  const before = await queue.meter()
  const offer = await queue.offer('job', {})
  const after = await queue.meter()
  expect(offer).toEqual({ accepted: false, retryAfterMs: expect.any(Number), depth: 20, capacity: 20, paused: false })
  if (!offer.accepted) expectUntil(offer.retryAfterMs, before.nextDepartureAt!, before.at, after.at)
})

test('the estimate is neither stored nor left on the job', async () => {
  const queue = shop.queue({ rate: '1/s', capacity: 5 })
  const { job } = accepted(await queue.offer('job', {}, { attempts: 2 }))
  const stored = await redis.client().hget(queue.toKey(job.id!), 'opts')
  expect(Object.keys(JSON.parse(stored!)).sort()).toEqual(['attempts'])
  expect(JSON.stringify(job)).not.toContain('estimate')
})

test('errors that are not about room are thrown by offer too', async () => {
  const queue = shop.queue({ rate: '1/s', capacity: 5 })
  await expect(queue.offer('job', {}, { cost: 2 })).rejects.toThrow('cost 2 exceeds burst 1: set burst to at least 2')
  await expect(queue.offer('job', {}, { jobId: 'wait' })).rejects.toThrow("job id 'wait'")
})
