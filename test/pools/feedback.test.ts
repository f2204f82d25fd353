import { afterAll, expect, test } from 'vitest'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import { type FeedbackChange, type QueueLimit, type ShapedJob, ShapedWorker } from '../../src/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// What the downstream answers to jobs of one member holds that member, and no other.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const KEYS: QueueLimit = { name: 'keys', pool: ['a', 'b', 'c'], rate: '1000/s', burst: 10 }
const HOUR_MS = 3_600_000
const pause = (forMs?: number) => ({ ...said, scope: 'queue', kind: 'pause', forMs, hard: true }) as Feedback
const jobs = (count: number) => Array.from({ length: count }, (_, i) => ({ name: `${i}`, data: {} }))

/** Runs jobs, and refuses those of members as `answer` says. */
function started(limit: QueueLimit, answer: (member: string) => Feedback | undefined, options: object = {}) {
  const queue = shop.queue({ limits: [limit] })
  const left: string[] = []
  const processor = async (job: ShapedJob) => {
    const member = job.departure?.pool?.keys ?? ''
    left.push(member)
    const found = answer(member)
    if (found) throw new Told(found)
  }
  const made = shop.worker(queue, processor as never, {
    ...{ feedback: ears, feedbackScope: { pool: 'keys' }, concurrency: 1 },
    ...options,
  })
  return { queue, left, completed: eventsOf('completed', made), changes: eventsOf<FeedbackChange>('feedback', made) }
}

test('an answer that names a time holds the member alone, and its job goes on with another', async () => {
  const { queue, left, completed, changes } = started(KEYS, (member) => (member === 'a' ? pause(HOUR_MS) : undefined))
  await queue.addBulk(jobs(6))
  await completed.reach(6)
  expect(left.filter((member) => member === 'a')).toHaveLength(1)
  expect(completed.all.every(({ attemptsMade }) => attemptsMade === 1)).toBe(true)
  const state = await queue.getLimit('keys', 'a')
  expect(state.overrides.held).toMatchObject({ reason: '429' })
  expect(state.retryAfterMs).toBeGreaterThan(HOUR_MS - 60_000)
  expect(changes.all).toHaveLength(1)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { limit: 'keys', member: 'a' } })
  expect((await queue.getLimit('keys', 'b')).overrides).toEqual({})
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('a refusal of one member is news, although another was refused after it departed', async () => {
  const { queue, completed, changes } = started(KEYS, (member) => (member === 'c' ? undefined : pause(HOUR_MS)), {
    concurrency: 3,
  })
  await queue.addBulk(jobs(3))
  await completed.reach(3)
  expect(changes.all.map(({ scope }) => (scope as { member: string }).member).toSorted()).toEqual(['a', 'b'])
})

test('a refusal of the last job that had been granted of a member before it was held is no news', async () => {
  await held.reset({ limits: [{ ...KEYS, pool: ['a'], rate: '3/s', burst: 1 }] })
  for (let i = 0; i < 2; i++) await held.add()
  const { grants } = await held.depart(2, 500_000)
  const lastUs = grants[1]?.slotUs as number
  expect(lastUs - held.nowUs).toBe(333_334)
  const refuse = async (sentUs: number) => {
    const found = [{ feedback: { ...pause(), scope: { limit: 'keys' } } as Feedback }]
    const request = { found, sentUs, by: 'test', adapt: undefined, oks: 0, members: { keys: 'a' } }
    return (await applyFeedback(held.backend.store, encodeFeedbackRequest(request))).changes.length
  }
  expect(await refuse(held.nowUs)).toBe(1)
  await held.advanceTo(lastUs + 60_000_000)
  expect(await refuse(lastUs)).toBe(0)
  expect(await refuse(lastUs + 1)).toBe(1)
})

test('when all members are held, jobs wait for the first of them', async () => {
  let refusals = 0
  const { queue, left, completed } = started(KEYS, (member) =>
    refusals++ < 3 ? pause(member === 'b' ? 300 : HOUR_MS) : undefined,
  )
  await queue.addBulk(jobs(4))
  await completed.reach(4)
  expect(left.join('')).toBe('abcbbbb')
})

test('what a processor says of the pool holds the member of its job', async () => {
  const queue = shop.queue({ limits: [KEYS] })
  const left: string[] = []
  const worker = shop.worker(
    queue,
    (async (job: ShapedJob) => {
      left.push(job.departure?.pool?.keys as string)
      if (left.length > 1) return
      await job.feedback({ kind: 'pause', forMs: HOUR_MS, scope: { limit: 'keys' } })
      throw new Error('later')
    }) as never,
    { concurrency: 1 },
  )
  const completed = eventsOf('completed', worker)
  await queue.addBulk(jobs(3))
  await completed.reach(3)
  expect(left.join('')).toBe('abcb')
})

test('a refusal of a removed member holds nothing', async () => {
  const { queue, left, completed, changes } = started({ ...KEYS, pool: ['a'] }, (member) =>
    member === 'a' ? pause(HOUR_MS) : undefined,
  )
  await queue.add('one', {})
  await changes.reach(1)
  await queue.setShape({ limits: [{ ...KEYS, pool: ['b'] }] }, { by: 'ops', reason: 'test' })
  await completed.reach(1)
  expect(left.join('')).toBe('ab')
})

test('feedbackScope names a limit', () => {
  const made = (feedbackScope: unknown) => () =>
    new ShapedWorker('q', async () => {}, {
      connection: redis.connection,
      prefix: redis.prefix,
      feedbackScope,
    } as never)
  expect(made({ pool: 1 })).toThrow("feedbackScope must be 'queue', 'group', { by: 'a key' } or { pool: 'a limit' }")
  expect(made('keys')).toThrow("{ pool: 'a limit' }; got")
})
