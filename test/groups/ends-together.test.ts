import { expect, test } from 'vitest'
import type { ShapedBackend } from '../../src/backend/backend.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, gate, settled, Workshop } from '../worker/support.ts'

// Jobs of groups that end together fetch the next ones by themselves (lua/ends/ungated.lua).
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

test.each([
  ['some of the next ones', 12],
  ['none', 10],
])('jobs that end together and fetch %s leave a worker that knows when their group may go', async (_, burst) => {
  const queue = shop.queue({ groups: { rate: '1/hour', burst } })
  await queue.addBulk(Array.from({ length: 14 }, () => ({ name: 'job', data: {}, opts: { group: { id: 'a' } } })))
  const [first, rest] = [gate(), gate()]
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 10 ? first : rest).opened, { concurrency: 10 })
  // The marker says nothing: the next jobs have been there all the time.
  ;(worker.getBackend() as ShapedBackend).waitForJob = () => new Promise(() => {})
  const calls = callsOf(worker)
  const departed = departuresOf(worker)
  await departed.reach(10)
  await settled(queue, redis.client(), calls)
  first.open()
  await departed.reach(burst)
  await asksUntil(calls, 'closed')
  expect(calls.all.at(-1)?.reply.wakeUs).toBeDefined()
  rest.open()
})

test('one whose lock is lost does not start what the others fetched a second time', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'job', data: {}, opts: { group: { id: 'a' } } })))
  const [first, rest] = [gate(), gate()]
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 10 ? first : rest).opened, { concurrency: 10 })
  const calls = callsOf(worker)
  const departed = departuresOf(worker)
  const ten = await departed.reach(10)
  await settled(queue, redis.client(), calls)
  await redis.client().del(queue.toKey(`${ten[0]?.id}:lock`))
  first.open()
  await departed.reach(20)
  rest.open()
  const all = await departed.reach(30)
  expect(new Set(all.map(({ id }) => id)).size).toBe(30)
  expect(departed.all).toHaveLength(30)
})
