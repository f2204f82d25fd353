import { expect, test } from 'vitest'
import type { QueueLimit, ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const tokens: QueueLimit = { name: 'tokens', by: 'model', algorithm: 'fixed-window', rate: '100/day', unit: 'tokens' }
const change = { by: 'test', reason: 'a test' }

const add = (queue: ShapedQueue, jobId: string, cost: number, group: string) =>
  queue.add(jobId, {}, { jobId, group: { id: group }, keys: { model: 'm' }, costs: { tokens: cost } })

// The first lane of a line waits for more than is left of a window; the one behind it would fit.
test.each<[string, (queue: ShapedQueue) => Promise<unknown>]>([
  ['is cancelled', (queue) => queue.cancelJob('large', { ...change })],
  ['is cancelled and removed', (queue) => queue.cancelJob('large', { ...change, remove: true })],
  ['is removed', async (queue) => (await queue.getJob('large'))?.remove()],
  ['is removed with others', (queue) => queue.cancelJobs({ group: 'a' }, { ...change })],
  ['has its group paused', (queue) => queue.pauseGroup('a', change)],
])('once the first job of a line %s, the one behind it goes', async (_what, act) => {
  const queue = shop.queue({ groups: {}, limits: [tokens] })
  await add(queue, 'first', 60, 'a')
  const worker = shop.worker(queue, async () => undefined)
  const calls = callsOf(worker)
  const departed = departuresOf(worker)
  await departed.reach(1)
  await add(queue, 'large', 50, 'a')
  await settled(queue, client, calls)
  await add(queue, 'small', 10, 'b')
  await settled(queue, client, calls)
  expect(departed.all.map(({ id }) => id)).toEqual(['first'])
  await act(queue)
  await departed.reach(2)
  expect(departed.all.map(({ id }) => id)).toEqual(['first', 'small'])
})
