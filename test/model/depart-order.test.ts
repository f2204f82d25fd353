import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { ReferenceBucket } from '../../src/testing/index.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue, START_US } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const queue = new HeldQueue(redis, client, 'order')
afterAll(() => queue.close())

const jobOf = fc.record({
  priority: fc.constantFrom(0, 0, 1, 2, 3),
  cost: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 5 }), fc.constantFrom(0.25, 0.1, 2.5)),
})
const shapeOf = fc.record({
  limit: fc.integer({ min: 1, max: 3000 }),
  burst: fc.integer({ min: 5, max: 8 }),
})

test('the composed scripts grant the jobs of a queue in its order, at the slots of the reference', {
  timeout: 600_000,
}, async () => {
  const callOf = fc.record({ asked: fc.integer({ min: 1, max: 6 }), horizonMs: fc.constantFrom(0, 50, 400) })
  await fc.assert(
    fc.asyncProperty(shapeOf, fc.array(jobOf, { minLength: 1, maxLength: 25 }), callOf, async (shape, jobs, call) => {
      const { limit, burst } = shape
      await queue.reset({ rate: `${limit}/s`, burst })
      const bucket = new ReferenceBucket({ rate: `${limit}/s`, burst }, START_US)
      for (const [i, { priority, cost }] of jobs.entries()) await queue.add({ jobId: `j${i}`, priority, cost })

      const departures = await queue.drain(call.asked, call.horizonMs * 1000)

      const inOrder = jobs.map((job, i) => ({ ...job, id: `j${i}` })).sort((a, b) => a.priority - b.priority)
      const expected = inOrder.map(({ id, cost }) => {
        const slotUs = bucket.nextSlotUs(cost)
        bucket.advance(Math.max(0, slotUs - call.horizonMs * 1000 - bucket.nowUs))
        return { id, slotUs: bucket.depart(cost, call.horizonMs * 1000) }
      })
      expect(departures).toEqual(expected)
    }),
    { numRuns: 150 },
  )
})

test('a job that waits first is not overtaken by a cheaper one behind it', async () => {
  await queue.reset({ rate: '10/s', burst: 5 })
  for (const [i, cost] of [5, 5, 1, 1].entries()) await queue.add({ jobId: `j${i}`, cost })
  await queue.add({ jobId: 'small', cost: 0.1, priority: 1 })

  const first = await queue.depart(10)
  expect(first.grants.map(({ id }) => id)).toEqual(['j0'])

  await queue.advanceTo(START_US + 499_999)
  expect((await queue.depart(10)).grants).toEqual([])
  await queue.advanceTo(START_US + 500_000)
  expect((await queue.depart(10)).grants.map(({ id }) => id)).toEqual(['j1'])
})

test.each([{}, { groups: {} }])('a marker that BullMQ 4 left lets no job past the rate: %j', async (shape) => {
  await queue.reset({ rate: '10/s', ...shape })
  for (const jobId of ['first', 'second', 'third']) await queue.add({ jobId })
  await client.rpush(`${queue.base}wait`, '0:1')
  expect(await queue.drain(5, 0)).toEqual([
    { id: 'first', slotUs: START_US },
    { id: 'second', slotUs: START_US + 100_000 },
    { id: 'third', slotUs: START_US + 200_000 },
  ])
})

test('a queued job that costs more than a lowered burst leaves when the bucket is empty', async () => {
  await queue.reset({ rate: '10/s', burst: 5 })
  await queue.add({ jobId: 'dear', cost: 5 })
  await queue.add({ jobId: 'next', cost: 1 })
  await queue.backend.store.override({ burst: 1 }, 'test', 'test', undefined)

  expect(await queue.drain(10, 0)).toEqual([
    { id: 'dear', slotUs: START_US },
    { id: 'next', slotUs: START_US + 500_000 },
  ])
})

test('an override ends on time, also where nobody looks then', async () => {
  await queue.reset({ rate: '1/s', burst: 10 })
  await queue.backend.store.override({ rate: [1000, 1000] }, 'test', 'test', 1)
  for (let i = 0; i < 11; i++) await queue.add({ jobId: `j${i}` })
  expect((await queue.depart(10)).grants).toHaveLength(10)

  // A millisecond at 1000/s drained one unit from the bucket; since then it has drained at 1/s, although no call was
  // made.
  await queue.advanceTo(START_US + 983 + 500_000)
  const { grants, nextUs } = await queue.depart(10)
  expect(grants.map(({ id }) => id)).toEqual(['j10'])
  expect(nextUs).toBeGreaterThan(START_US + 1_000_000)
})
