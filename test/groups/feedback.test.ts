import { expect, test } from 'vitest'
import type { Feedback } from '../../src/feedback/feedback.ts'
import { type FeedbackChange, PauseQueueError, type ShapedJob, type ShapedQueue } from '../../src/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// What the downstream answers to jobs of one group holds that group, and no other.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const SHAPE = { rate: '200/s', groups: {} } as const
const HOUR_MS = 3_600_000

const of = (group: string, count: number, opts: object = {}) =>
  Array.from({ length: count }, (_, i) => ({ name: `${group}${i}`, data: {}, opts: { group: { id: group }, ...opts } }))

const about = (feedback: object) => ({ ...said, scope: 'group', ...feedback }) as unknown as Feedback
const pause = (forMs?: number) => about({ kind: 'pause', forMs, hard: true })

/** A worker whose calls are refused for the jobs that the answer names. */
function worker(queue: ShapedQueue, answer: (name: string) => readonly Feedback[] | undefined, options: object = {}) {
  const processor = async ({ name }: { name: string }) => {
    const found = answer(name)
    if (found) throw new Told(...found)
  }
  const made = shop.worker(queue, processor as never, { feedback: ears, ...options })
  return { worker: made, completed: eventsOf('completed', made), changes: eventsOf<FeedbackChange>('feedback', made) }
}

test('an answer that names a time holds the group of its job in the whole fleet, and no other', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 2), ...of('b', 3)])
  const answer = (name: string) => (name.startsWith('a') ? [pause(HOUR_MS)] : undefined)
  const { worker: first, completed, changes } = worker(queue, answer)
  await Promise.all([completed.reach(3), changes.reach(1)])
  await first.close()
  const second = shop.worker(queue, async () => {})
  const others = eventsOf('completed', second)
  await queue.addBulk(of('b', 2))
  await others.reach(2)
  const group = await queue.getGroup('a')
  expect(group).toMatchObject({ status: 'limited', waiting: 2, overrides: { limited: { reason: '429' } } })
  expect(group.until!.getTime() - group.at.getTime()).toBeGreaterThan(HOUR_MS - 60_000)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { group: 'a' }, reason: '429', until: group.until })
  const [job] = await queue.getGroupJobs('a')
  expect(job!.attemptsMade).toBe(0)
  expect((await queue.meter()).pausedUntil).toBeUndefined()
  // It may not take the job before the group is read.
  await second.close()
  await queue.resumeGroup('a')
  expect(await queue.getGroup('a')).toMatchObject({ status: 'waiting', overrides: {} })
})

test('other groups go on while one is held, and its jobs follow when its time is over', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 3), ...of('b', 20), { name: 'plain', data: {} }])
  let refusals = 0
  const { completed } = worker(queue, (name) => {
    if (!name.startsWith('a') || refusals === 1) return undefined
    refusals += 1
    return [pause(1500)]
  })
  await completed.reach(24)
  const names = completed.all.map(({ name }) => name)
  expect(names.slice(-3).toSorted()).toEqual(['a0', 'a1', 'a2'])
  expect(completed.all.every(({ attemptsMade }) => attemptsMade === 1)).toBe(true)
})

test('refusals without a time: one job waits alone, two hold the group for a second, others go on', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 1), ...of('b', 1)])
  const { changes, completed } = worker(queue, (name) => (name.startsWith('a') ? [pause()] : undefined))
  await completed.reach(1)
  await expect.poll(() => queue.getDelayedCount()).toBe(1)
  expect(await queue.getGroup('a')).toMatchObject({ status: 'idle', overrides: {} })
  await queue.addBulk([...of('a', 1, { lifo: false }), ...of('b', 1)])
  await changes.reach(1)
  const { status, until, at } = await queue.getGroup('a')
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { group: 'a' } })
  expect(status).toBe('limited')
  expect(until!.getTime() - at.getTime()).toBeLessThanOrEqual(1100)
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('one bad job among good ones of its group does not hold the group', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk(of('a', 40))
  const { completed, changes } = worker(queue, (name) => (name === 'a3' ? [pause()] : undefined))
  await completed.reach(39)
  expect(changes.all).toEqual([])
})

test("with feedbackScope: 'group' what a profile finds about the queue is about the group", async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 1), ...of('b', 1)])
  const found = { kind: 'pause', forMs: HOUR_MS, hard: true, ...said } as const
  const answer = (name: string) => (name.startsWith('a') ? [found] : undefined)
  const { completed, changes } = worker(queue, answer, { feedbackScope: 'group' })
  await Promise.all([completed.reach(1), changes.reach(1)])
  expect(completed.all[0]!.name).toBe('b0')
  expect(changes.all[0]).toMatchObject({ scope: { group: 'a' } })
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test.each([
  ['without a group', SHAPE],
  ['of a queue without groups', { rate: '200/s' }],
])('a job %s is alone with what concerns its group', async (_, shape) => {
  const queue = shop.queue(shape)
  await queue.addBulk(['bad', 'good', 'good'].map((name) => ({ name, data: {} })))
  const { completed, changes } = worker(queue, (name) => (name === 'bad' ? [pause(HOUR_MS)] : undefined))
  await completed.reach(2)
  await expect.poll(() => queue.getDelayedCount()).toBe(1)
  expect(changes.all).toEqual([])
  expect((await queue.meter()).pausedUntil).toBeUndefined()
  const [bad] = await queue.getDelayed()
  expect([bad!.name, bad!.attemptsMade]).toEqual(['bad', 0])
  expect(bad!.delay).toBeGreaterThanOrEqual(HOUR_MS)
})

test('a rate and a number of running jobs hold the group until their time, and resumeGroup lifts them', async () => {
  const queue = shop.queue({ ...SHAPE, groups: { rate: '100/s', concurrency: 5 } })
  await queue.addBulk(of('a', 1))
  const slow = about({ kind: 'slow', rate: { limit: 2, period: 1000 }, ttlMs: HOUR_MS })
  const fewer = about({ kind: 'concurrency', limit: 2, ttlMs: HOUR_MS })
  const { worker: made, changes } = worker(queue, () => [slow, fewer])
  await changes.reach(2)
  expect(changes.all.map(({ kind, scope }) => [kind, scope])).toEqual([
    ['slow', { group: 'a' }],
    ['concurrency', { group: 'a' }],
  ])
  expect((await queue.getGroup('a')).inForce).toMatchObject({ rate: '2/s', concurrency: 2 })
  expect((await queue.getGroup('b')).inForce).toMatchObject({ rate: '100/s', concurrency: 5 })
  // Its next answer would set both again.
  await made.close()
  await queue.resumeGroup('a')
  expect((await queue.getGroup('a')).inForce).toMatchObject({ rate: '100/s', concurrency: 5 })
})

test('with adapt, a group that has no rate pauses where fewer are to run, and keeps its concurrency', async () => {
  const queue = shop.queue({ groups: { concurrency: 4 } })
  await queue.addBulk(of('a', 2))
  const fewer = about({ kind: 'concurrency', factor: 0.5 })
  const { changes } = worker(queue, () => [fewer], { adapt: true })
  await changes.reach(1)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { group: 'a' } })
  expect((await queue.getGroup('a')).inForce.concurrency).toBe(4)
})

test('a hold that ends later makes none weaker that is in force, and none shorter', async () => {
  const queue = shop.queue({ ...SHAPE, groups: { rate: '100/s' } })
  await queue.add('a0', {}, { group: { id: 'a' } })
  const slow = (limit: number, ttlMs: number) => about({ kind: 'slow', rate: { limit, period: 1000 }, ttlMs })
  const fewer = (limit: number, ttlMs: number) => about({ kind: 'concurrency', limit, ttlMs })
  const told = [slow(5, HOUR_MS), slow(2, 60_000), slow(9, 2 * HOUR_MS), fewer(5, HOUR_MS), fewer(2, 2 * HOUR_MS)]
  const { changes } = worker(queue, () => [...told, slow(9, 60_000), fewer(9, 60_000)])
  await changes.reach(5)
  const { at, inForce, overrides } = await queue.getGroup('a')
  expect(inForce).toMatchObject({ rate: '2/s', concurrency: 2 })
  for (const field of ['slowed', 'crowded']) {
    expect(overrides[field]!.until!.getTime() - at.getTime()).toBeGreaterThan(2 * HOUR_MS - 60_000)
  }
  expect(changes.all.map((change) => (change as { rate?: number }).rate)).toEqual([5, 2, 2, undefined, undefined])
})

test('what holds a group as much, but ends sooner, leaves out nothing', async () => {
  const queue = shop.queue({ ...SHAPE, groups: { rate: '100/s', concurrency: 9 } })
  await queue.setGroup('a', { rate: '1/s', concurrency: 1 }, { by: 'test', reason: 'test', ttlMs: 60_000 })
  await queue.add('a0', {}, { group: { id: 'a' } })
  const slow = about({ kind: 'slow', rate: { limit: 10, period: 1000 }, ttlMs: HOUR_MS })
  const fewer = about({ kind: 'concurrency', limit: 2, ttlMs: HOUR_MS })
  const { changes } = worker(queue, () => [slow, fewer])
  await changes.reach(2)
  const { at, overrides } = await queue.getGroup('a')
  for (const field of ['slowed', 'crowded']) {
    expect(overrides[field]!.until!.getTime() - at.getTime()).toBeGreaterThan(HOUR_MS - 60_000)
  }
})

test('a quota that is used up holds its group until the reset', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 3), ...of('b', 3)])
  const used = about({ kind: 'ok', remaining: 0, resetMs: HOUR_MS })
  const processor = async ({ name }: { name: string }) => (name === 'a0' ? new Told(used) : undefined)
  const made = shop.worker(queue, processor as never, { feedback: ears, concurrency: 1 })
  const [completed, changes] = [eventsOf('completed', made), eventsOf<FeedbackChange>('feedback', made)]
  await changes.reach(1)
  await completed.reach(4)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { group: 'a' } })
  expect(await queue.getGroup('a')).toMatchObject({ status: 'limited' })
})

test('a processor names the group of its job, or another', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...of('a', 1), ...of('b', 1)])
  const made = shop.worker(queue, async (job) => {
    const scope = job.name === 'a0' ? 'group' : { group: 'c' }
    await (job as unknown as ShapedJob).feedback({ kind: 'pause', forMs: HOUR_MS, scope, reason: 'maintenance' })
  })
  const changes = eventsOf<FeedbackChange>('feedback', made)
  await changes.reach(2)
  expect(changes.all.map(({ scope }) => scope)).toEqual([{ group: 'a' }, { group: 'c' }])
  for (const id of ['a', 'c']) {
    expect((await queue.getGroup(id)).overrides).toMatchObject({ limited: { reason: 'maintenance' } })
  }
  expect((await queue.getGroup('b')).overrides).toEqual({})
})

test('a PauseQueueError holds the queue, also of a worker whose feedback concerns groups', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk(of('a', 1))
  const made = shop.worker(
    queue,
    async () => {
      throw new PauseQueueError({ retryAfterMs: HOUR_MS, reason: 'maintenance' })
    },
    { feedbackScope: 'group' },
  )
  const changes = eventsOf<FeedbackChange>('feedback', made)
  await changes.reach(1)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: 'queue' })
})
