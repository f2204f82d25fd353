import { expect, test } from 'vitest'
import { heldByText } from '../../packages/cli/src/queue-text.ts'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import type { QueueLimit, ShapedQueue } from '../../src/index.ts'
import { inspectorOf, statusOf } from '../inspect/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const FAST: QueueLimit = { name: 'rpm', by: 'model', rate: '60/h', unit: 'requests' }
const SLOW: QueueLimit = { name: 'hosts', by: 'host', rate: '2/h' }
const MINUTE_MS = 60_000

const add = (queue: ShapedQueue, id: string, keys: Record<string, string>, more: ShapedJobsOptions = {}) =>
  queue.add('job', {}, { jobId: id, keys, ...more })

test('a queue of which all lanes wait names the limit and the value that let one go first', async () => {
  const queue = shop.queue({ rate: '1000/s', limits: [FAST, SLOW] })
  for (const id of ['h1', 'h2']) await add(queue, id, { host: 'example.com' })
  for (const id of ['a1', 'a2']) await add(queue, id, { model: 'gpt-large' })
  await departuresOf(shop.worker(queue, async () => {})).reach(2)
  const inspector = inspectorOf(redis, shop)
  await expect
    .poll(async () => (await statusOf(inspector, queue.name)).hold)
    .toMatchObject({ cause: 'limits', limit: 'rpm', keys: { model: 'gpt-large' } })
  const status = await statusOf(inspector, queue.name)
  expect(heldByText(status)).toBe('limit rpm of model gpt-large')
  const inMs = status.hold!.until!.getTime() - status.at.getTime()
  expect(inMs).toBeGreaterThan(MINUTE_MS / 2)
  expect(inMs).toBeLessThanOrEqual(MINUTE_MS)
  // What workers noted while it held the queue counts as time of limits.
  expect(await redis.client().hget(queue.toKey('meta:meter'), 'holds')).toBe('limits:rpm')
})

test('a group says which limit of its keys holds it once no lane of it may go', async () => {
  const queue = shop.queue({ groups: {}, limits: [FAST, SLOW] })
  for (const id of ['h1', 'h2']) await add(queue, id, { host: 'example.com' }, { group: { id: 'acme' } })
  const worker = shop.worker(queue, async () => {})
  await departuresOf(worker).reach(1)
  await expect
    .poll(() => queue.getGroup('acme'))
    .toMatchObject({ status: 'limited', waiting: 1, heldBy: 'hosts', heldKeys: { host: 'example.com' } })
  const { at, until } = await queue.getGroup('acme')
  expect(until!.getTime() - at.getTime()).toBeGreaterThan(29 * MINUTE_MS)
  expect(until!.getTime() - at.getTime()).toBeLessThanOrEqual(30 * MINUTE_MS)
  const view = (await inspectorOf(redis, shop).groups(queue.name, { count: 3 }))!
  expect(view.held).toMatchObject([{ id: 'acme', heldBy: 'hosts', headAgeMs: expect.any(Number) }])
  await worker.close()
  await add(queue, 'free', {}, { group: { id: 'acme' } })
  expect(await queue.getGroup('acme')).toMatchObject({ status: 'waiting', heldBy: undefined, heldKeys: undefined })
})

test('the rate of a group holds it, not the limits of its lanes', async () => {
  const queue = shop.queue({ groups: { rate: '1/h' }, limits: [FAST] })
  for (const id of ['a1', 'a2']) await add(queue, id, { model: 'a' }, { group: { id: 'acme' } })
  await departuresOf(shop.worker(queue, async () => {})).reach(1)
  await expect.poll(() => queue.getGroup('acme')).toMatchObject({ status: 'limited', heldBy: undefined })
  await expect
    .poll(async () => (await statusOf(inspectorOf(redis, shop), queue.name)).hold)
    .toMatchObject({ cause: 'rate', group: 'acme' })
})
