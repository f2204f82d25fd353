import fc from 'fast-check'
import { afterAll, beforeEach, expect, test } from 'vitest'
import { applyFeedback } from '../../src/feedback/request.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { concurrency, HeldLoop, ok, pause, slow } from './support/held-loop.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const loop = new HeldLoop(redis, 'state')
/** Another process with the same queue. */
const other = new HeldQueue(redis, client, 'state')
afterAll(() => other.close())

const CONFIGURED_US = 5000
beforeEach(() => loop.queue.reset({ rate: '200/s' }))

async function loseAll(): Promise<void> {
  await client.unlink(...(await client.keys(`${loop.queue.base}*`)))
}

/** Pace, a set rate, a concurrency, a quota, a pause and a probe: 50/s is the slowest. */
async function hearAll(): Promise<void> {
  await loop.tell(slow({ rate: { limit: 50, period: 1000 }, ttlMs: 60_000 }))
  await loop.tell(concurrency(3, 60_000))
  await loop.tell(ok({ remaining: 1000, resetMs: 10_000 }))
  await loop.tell(pause(5000, true))
}

const inForce = async () => {
  await loop.pass(0)
  const [probe, bullmq] = await Promise.all([
    client.hget(`${loop.queue.base}meta:shape`, 'probe'),
    client.hget(`${loop.queue.base}meta`, 'concurrency'),
  ])
  const { pace, slow, quota, concurrency: limit } = loop.shape.feedback
  return { rate: loop.rate, pausedMs: loop.pausedMs, probe, bullmq, pace, slow, quota, limit }
}

test('what Redis loses comes back with the shape', async () => {
  await hearAll()
  const before = await inForce()
  expect(before).toMatchObject({ rate: 50, pausedMs: 5000, probe: 'armed 10000', bullmq: '3' })
  await loseAll()
  await loop.fill(1)
  expect(await loop.depart(1, 50_000)).toEqual([])
  expect(await inForce()).toEqual(before)
  await loop.pass(60_000)
  expect(await inForce()).toMatchObject({ rate: 140, bullmq: null })
})

test('it comes back beside what another process has declared and heard since', async () => {
  await hearAll()
  const before = await inForce()
  await loseAll()
  await loop.queue.advanceTo(loop.nowUs + 1)
  other.backend.store.declare({ fields: { rate: [100, 1000] }, version: undefined, declarer: 'other' })
  await other.backend.waitUntilReady()
  await other.backend.store.pause({ kind: 'for', ms: 9000, reason: 'other' })
  await applyFeedback(other.backend.store, loop.request(concurrency(5, 90_000)))
  await loop.queue.backend.store.restore()
  const { pace, slow, quota } = before
  // Of the two limits of running jobs the later one is in force.
  expect(await inForce()).toMatchObject({
    pace,
    slow,
    quota,
    rate: 50,
    pausedMs: 9000,
    probe: 'armed 10000',
    bullmq: '5',
  })
})

test('whatever is heard: never faster than configured, and a pause never ends sooner', {
  timeout: 180_000,
}, async () => {
  const length = fc.constantFrom(0, 1, 500, 5000, 60_000, 86_400_000)
  const heard = fc.oneof(
    fc.tuple(fc.option(length, { nil: undefined }), fc.boolean()).map(([forMs, hard]) => pause(forMs, hard)),
    fc.record({ factor: fc.constantFrom(0.01, 0.7, 0.99), ttlMs: fc.option(length, { nil: undefined }) }).map(slowing),
    fc.tuple(fc.integer({ min: 1, max: 1000 }), length).map(([limit, ttlMs]) => slowing({ limit, ttlMs })),
    fc.tuple(fc.integer({ min: 1, max: 9 }), length).map(([limit, ttlMs]) => concurrency(limit, ttlMs)),
    fc.record({ remaining: fc.nat(5000), resetMs: length }).map(ok),
    fc.constant(ok()),
  )
  const step = fc.record({
    heard,
    afterMs: fc.constantFrom(0, 1, 100, 2000, 10_000, 100_000),
    sentAgoUs: fc.constantFrom(-20_000, 0, 50_000, 5_000_000),
    oks: fc.constantFrom(0, 1, 10_000),
    jitter: fc.constantFrom(0, 0.5, 0.999),
    adapt: fc.constantFrom(true, false, { floor: '10/s', decrease: 0.5 } as const, { increase: 1, quietMs: 1 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 15 }), async (steps) => {
      await loop.queue.reset({ rate: '200/s' })
      let pausedUntilUs = 0
      for (const { heard, afterMs, sentAgoUs, ...telling } of steps) {
        await loop.pass(afterMs)
        await loop.tell(heard, { ...telling, sentUs: loop.nowUs - sentAgoUs })
        await loop.pass(0)
        expect(loop.shape.number('interval')).toBeGreaterThanOrEqual(CONFIGURED_US)
        expect(loop.shape.pausedUntilUs).toBeGreaterThanOrEqual(pausedUntilUs)
        pausedUntilUs = loop.shape.pausedUntilUs
      }
    }),
    { numRuns: 60, seed: 4 },
  )
})

function slowing({ factor, limit, ttlMs }: { factor?: number; limit?: number; ttlMs: number | undefined }) {
  const how = limit === undefined ? { factor: factor as number } : { rate: { limit, period: 1000 } }
  return slow({ ...how, ...(ttlMs !== undefined && { ttlMs }) })
}
