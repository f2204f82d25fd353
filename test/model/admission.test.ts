import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { CannotStartInTimeError, QueueFullError, TooLargeError } from '../../src/errors.ts'
import { useRedis } from '../support/redis.ts'
import { AdmissionMirror, type AdmissionShape, type NewJob } from './admission-mirror.ts'
import { HeldQueue, START_US } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const queue = new HeldQueue(redis, client, 'admission')
afterAll(() => queue.close())

const shapes = fc
  .record({
    limit: fc.integer({ min: 1, max: 900 }),
    burst: fc.integer({ min: 1, max: 3 }),
    capacity: fc.option(fc.integer({ min: 2, max: 8 }), { nil: undefined }),
    reserved: fc.option(
      fc.dictionary(fc.constantFrom('0', '1', '2', '5'), fc.integer({ min: 1, max: 2 }), { minKeys: 1, maxKeys: 2 }),
      { nil: undefined },
    ),
    overflow: fc.constantFrom('reject' as const, 'drop-oldest' as const, 'drop-lowest' as const),
    waits: fc.option(fc.integer({ min: 0, max: 8 }), { nil: undefined }),
    mode: fc.constantFrom(
      'enforce' as const,
      'enforce' as const,
      'enforce' as const,
      'shadow' as const,
      'off' as const,
    ),
  })
  .map(({ limit, burst, capacity, reserved, overflow, waits, mode }): AdmissionShape => {
    const sum = Object.values(reserved ?? {}).reduce((all, places) => all + places, 0)
    return {
      ...{ rate: `${limit}/s`, burst, overflow, mode },
      ...(capacity === undefined ? {} : { capacity }),
      ...(reserved && sum < (capacity ?? 0) ? { reservedPlaces: reserved } : {}),
      ...(waits === undefined ? {} : { maxWaitMs: Math.floor((waits * 1000) / limit) }),
    }
  })

const job = fc.record({
  priority: fc.constantFrom(0, 0, 0, 1, 2, 3, 5, 9),
  lifo: fc.constantFrom(false, false, false, true),
  slots: fc.option(fc.integer({ min: 0, max: 9 }), { nil: undefined, freq: 3 }),
})
const deeds = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ jobs: fc.array(job, { minLength: 1, maxLength: 1 }) }) },
    { weight: 3, arbitrary: fc.record({ jobs: fc.array(job, { minLength: 2, maxLength: 6 }) }) },
    { weight: 3, arbitrary: fc.record({ passed: fc.integer({ min: 0, max: 3000 }) }) },
    { weight: 1, arbitrary: fc.record({ pausedMs: fc.integer({ min: 1, max: 100 }) }) },
  ),
  { minLength: 10, maxLength: 25 },
)

let ids = 0

function optionsOf({ id, priority, lifo, deadlineMs }: NewJob): ShapedJobsOptions {
  const deadline = Number.isFinite(deadlineMs) ? { mustStartBefore: deadlineMs } : {}
  return { jobId: id, ...(priority ? { priority } : {}), ...(lifo && !priority ? { lifo } : {}), ...deadline }
}

async function add(jobs: readonly NewJob[]): Promise<unknown> {
  const all = jobs.map((one) => ({ name: 'job', data: {}, opts: optionsOf(one) }))
  const [first] = all
  return all.length === 1 ? queue.add(first?.opts) : queue.queue.addBulk(all as never)
}

async function verdictOf(jobs: readonly NewJob[]) {
  const before = await client.zcard(`${queue.base}failed`)
  try {
    await add(jobs)
  } catch (error) {
    if (error instanceof TooLargeError) return { what: 'too large' }
    if (error instanceof QueueFullError) return { what: 'full' }
    if (!(error instanceof CannotStartInTimeError)) throw error
    return { what: 'late', startsAtMs: error.startsAt.getTime(), retryAfterMs: error.retryAfterMs }
  }
  const dropped = await client.zrange(`${queue.base}failed`, '0', '-1')
  return { what: 'added', dropped: dropped.length - before }
}

async function line(): Promise<string[]> {
  const plain = await client.lrange(`${queue.base}wait`, 0, -1)
  return [...plain.reverse(), ...(await client.zrange(`${queue.base}prioritized`, '0', '-1'))]
}

test('jobs are let in, refused and dropped as the reference says', { timeout: 600_000 }, async () => {
  const seen = { added: 0, dropped: 0, full: 0, late: 0, 'too large': 0 }
  await fc.assert(
    fc.asyncProperty(shapes, deeds, async (shape, all) => {
      await queue.reset(shape)
      const mirror = new AdmissionMirror(shape, START_US)
      const limit = Number.parseInt(shape.rate as string, 10)
      for (const deed of all) {
        if ('passed' in deed) {
          const us = Math.floor((deed.passed * 1000) / limit)
          await queue.advanceTo(queue.nowUs + us)
          mirror.advance(us)
          if (shape.mode !== 'enforce') continue
          const { grants } = await queue.depart(50)
          expect(mirror.depart()).toEqual(grants.map(({ id }) => id))
        } else if ('pausedMs' in deed) {
          await queue.backend.store.pause({ kind: 'for', ms: deed.pausedMs, reason: 'test' })
          mirror.pauseUntil(queue.nowUs + deed.pausedMs * 1000)
        } else {
          const jobs = deed.jobs.map(({ priority, lifo, slots }): NewJob => {
            ids += 1
            const nowMs = Math.floor(queue.nowUs / 1000)
            const deadlineMs =
              slots === undefined ? Number.POSITIVE_INFINITY : nowMs + Math.floor((slots * 1000) / limit)
            return { id: `j${ids}`, priority, lifo: lifo && priority === 0, deadlineMs }
          })
          const expected = mirror.add(jobs)
          const found = await verdictOf(jobs)
          seen[expected.what] += 1
          if (expected.what === 'added') seen.dropped += expected.dropped.length
          if (expected.what === 'late') {
            const startsAtMs = Math.floor(expected.startsAtUs / 1000)
            expect(found).toEqual({ what: 'late', startsAtMs, retryAfterMs: expect.any(Number) })
            // Where there is no place either, the hint is the later of the two.
            const { retryAfterMs } = found as { retryAfterMs: number }
            expect(retryAfterMs).toBeGreaterThanOrEqual(Math.ceil(expected.lateUs / 1000))
          } else if (expected.what === 'added')
            expect(found).toEqual({ what: 'added', dropped: expected.dropped.length })
          else expect(found).toEqual(expected)
        }
        expect(await line()).toEqual(mirror.line)
      }
    }),
    { numRuns: Number(process.env.MODEL_ADMISSIONS ?? 150) },
  )
  expect(Math.min(...Object.values(seen))).toBeGreaterThan(5)
})
