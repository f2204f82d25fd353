import { expect, test } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import type { HeldMs } from '../../src/inspect/index.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import type { Shape } from '../../src/shape/shape.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, gate, Workshop } from '../worker/support.ts'
import { inspectorOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const model = (more: Partial<QueueLimit>): QueueLimit => ({ name: 'model', by: 'model', ...more }) as QueueLimit
const JOBS = 8
const OPTIONS = { keys: { model: 'large' }, group: { id: 'acme' } }

/** What a job that has started waited for, ms. */
async function waitedOf(
  queue: ShapedQueue,
  id: string,
): Promise<{ readonly parts: HeldMs; readonly waitedMs: number }> {
  const found = await inspectorOf(redis, shop).explain(queue.name, id)
  if (found?.startedAt === undefined) throw new Error(`expected job ${id} to have started`)
  return found
}

/** Lets jobs run, and returns what the last of them waited for. */
async function lastOf(shape: Shape, process = async () => {}) {
  const queue = shop.queue(shape)
  const { group, keys } = OPTIONS
  const add = (i: number) => queue.add('job', {}, { keys, ...(shape.groups && { group }), jobId: `job${i}` })
  await add(0)
  const departed = departuresOf(shop.worker(queue, process, { concurrency: 2 }))
  // From now on a worker is there.
  await departed.reach(1)
  for (let i = 1; i <= JOBS; i++) await add(i)
  await departed.reach(JOBS + 1)
  return waitedOf(queue, `job${JOBS}`)
}

test.each<[string, Shape, keyof HeldMs]>([
  ['a limit by a key', { limits: [model({ rate: '4/s' })] }, 'limits'],
  ['a limit by a group and a key', { limits: [model({ by: ['group', 'model'], rate: '4/s' })], groups: {} }, 'limits'],
  ['a limit by the group', { groups: {}, limits: [model({ by: 'group', rate: '4/s' })] }, 'limits'],
  ['the rate of a group', { groups: { rate: '4/s' } }, 'rate'],
  ['a limit without keys', { limits: [{ name: 'all', rate: '4/s' }] }, 'limits'],
  ['a limit by a key beside a rate', { rate: '1000/s', limits: [model({ rate: '4/s' })] }, 'limits'],
])('what jobs that have started waited for, without a rate that holds them: %s', async (_, shape, cause) => {
  const { parts, waitedMs } = await lastOf(shape)
  expect(waitedMs).toBeGreaterThan(1000)
  expect(parts[cause], JSON.stringify(parts)).toBeGreaterThan(0.6 * waitedMs)
})

test.each<[string, Shape, keyof HeldMs]>([
  ['places of a key', { limits: [model({ algorithm: 'concurrency', concurrency: 1 })] }, 'limits'],
  ['places of a group', { groups: { concurrency: 1 } }, 'concurrency'],
  ['places of the queue', { groups: {}, concurrency: 1 }, 'concurrency'],
])('what jobs that have started waited for: %s', async (_, shape, cause) => {
  const run = () => new Promise<void>((resolve) => setTimeout(resolve, 300))
  const { parts, waitedMs } = await lastOf(shape, run)
  expect(waitedMs).toBeGreaterThan(1000)
  expect(parts[cause], JSON.stringify(parts)).toBeGreaterThan(0.6 * waitedMs)
})

test('what jobs that have started waited for: several causes in turn, which the totals of the queue have too', async () => {
  const limits = [model({ rate: '4/s', burst: 2 }), model({ name: 'places', algorithm: 'concurrency', concurrency: 1 })]
  const queue = shop.queue({ limits })
  const run = gate()
  const departed = departuresOf(shop.worker(queue, () => run.opened, { concurrency: 3 }))
  const { keys } = OPTIONS
  for (let i = 0; i < JOBS; i++) await queue.add('job', {}, { keys, jobId: `job${i}` })
  await departed.reach(1)
  const inspector = inspectorOf(redis, shop)
  const heldMs = async () => (await inspector.status([queue.name]))[0]!.heldMs
  // The first job runs, and has the only place.
  await expect.poll(async () => (await heldMs()).limits).toBeGreaterThan(500)
  await queue.pauseUntil(Date.now() + 600_000, { reason: 'test' })
  run.open()
  await expect.poll(async () => (await heldMs()).pause).toBeGreaterThan(500)
  await queue.clearPause()
  await departed.reach(JOBS)
  const { parts, waitedMs } = await waitedOf(queue, `job${JOBS - 1}`)
  expect(parts.pause).toBeGreaterThan(400)
  expect(parts.limits).toBeGreaterThan(1000)
  expect(parts.limits + parts.pause, JSON.stringify(parts)).toBeGreaterThan(0.6 * waitedMs)
  await expect.poll(async () => (await inspector.status([queue.name]))[0]!.starts.waitedMs.limits).toBeGreaterThan(1000)
})
