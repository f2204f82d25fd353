import { expect, test } from 'vitest'
import type { Feedback } from '../../src/feedback/feedback.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { ears, said, Told } from '../feedback/support/told.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// What adapts the rate of one group, with real workers.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const about = (feedback: object) => ({ ...said, scope: 'queue', ...feedback }) as unknown as Feedback

/** A worker whose first calls of group a are told these. */
function telling(queue: ShapedQueue, ...told: readonly (readonly Feedback[])[]) {
  const left = told.slice()
  return shop.worker(
    queue,
    async ({ name }) => {
      const found = name === 'a' ? left.shift() : undefined
      if (found) throw new Told(...found)
    },
    { feedback: ears, feedbackScope: 'group', adapt: { decrease: 0.5 }, concurrency: 1 },
  )
}

const job = (group: string) => ({ name: group, data: {}, opts: { group: { id: group } } })

test('a refusal slows its group alone, and resumeGroup ends that', async () => {
  const queue = shop.queue({ groups: { rate: '100/s' } })
  await queue.addBulk([job('a'), job('a'), job('b'), job('b')])
  const worker = telling(queue, [about({ kind: 'pause', forMs: 1, source: 'user' })])
  const changes = eventsOf<{ kind: string }>('feedback', worker)
  const completed = eventsOf('completed', worker)
  await completed.reach(4)
  await changes.until((all) => all.some(({ kind }) => kind === 'slow'))
  const { inForce, overrides } = await queue.getGroup('a')
  expect(inForce.rate).toBe('50/s')
  expect(overrides.paced).toMatchObject({ value: '50/s', reason: '429' })
  expect((await queue.getGroup('b')).inForce.rate).toBe('100/s')
  expect((await queue.meter()).feedback?.last).toBeUndefined()
  await queue.resumeGroup('a')
  expect((await queue.getGroup('a')).inForce.rate).toBe('100/s')
  // What it knew is dropped with its next step.
  await client.zadd(queue.toKey('meta:groups:climbs'), 1, 'a')
  await queue.add('a', {}, { group: { id: 'a' } })
  await completed.reach(5)
  expect(await client.exists(queue.toKey('meta:groups:climbs'), queue.toKey('meta:groups:used'))).toBe(0)
})

test('cuts by a factor for a time multiply, down to the floor', async () => {
  const queue = shop.queue({ groups: { rate: '100/s' } })
  await queue.addBulk(Array.from({ length: 12 }, () => job('a')))
  const slow = about({ kind: 'slow', factor: 0.2, ttlMs: 60_000, source: 'user' })
  const worker = telling(queue, [slow], [slow], [slow])
  const changes = eventsOf<{ rate: number }>('feedback', worker)
  await changes.reach(3)
  expect(changes.all.map(({ rate }) => Math.round(rate * 100) / 100)).toEqual([20, 4, 1])
})

test('a group without a rate pauses instead, as without adapt', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk([job('a'), job('b')])
  const worker = telling(queue, [about({ kind: 'slow', factor: 0.5, source: 'user' })])
  const changes = eventsOf<{ kind: string }>('feedback', worker)
  await changes.reach(1)
  expect(changes.all[0]).toMatchObject({ kind: 'pause', scope: { group: 'a' } })
  expect((await queue.getGroup('a')).overrides.paced).toBeUndefined()
})
