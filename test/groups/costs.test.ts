import { expect, test } from 'vitest'
import { CostTooHighError, ShapedFlowProducer, type ShapedJobsOptions, type ShapedQueue } from '../../src/index.ts'
import { changeFailed } from '../../src/queue/failed-jobs.ts'
import { lettersOf } from '../failures/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const by = { by: 'test', reason: 'test' }
const job = (id: string, cost: number) => ({ name: 'job', data: {}, opts: { cost, group: { id } } })
const waiting = (queue: ShapedQueue) => queue.getJobCountByTypes('prioritized', 'wait', 'delayed')

const WAYS: Record<string, (queue: ShapedQueue, opts: ShapedJobsOptions) => Promise<unknown>> = {
  add: (queue, opts) => queue.add('job', {}, opts),
  'many at once': (queue, opts) =>
    Promise.all([
      ...Array.from({ length: 10 }, () => queue.add('job', {}, { group: { id: 'a' } }).then((one) => one.remove())),
      queue.add('job', {}, opts),
    ]),
  addBulk: (queue, opts) => queue.addBulk([job('a', 1), { name: 'job', data: {}, opts }]),
  'a large addBulk': (queue, opts) => {
    return queue.addBulk([...Array.from({ length: 250 }, () => job('b', 1)), { name: 'job', data: {}, opts }])
  },
  addOnce: (queue, opts) => queue.addOnce([{ name: 'job', data: {}, opts }], { key: 'k', fingerprint: 'f' }),
  'a flow': (queue, opts) => {
    const flows = shop.keep(new ShapedFlowProducer({ connection: shop.connection, prefix: shop.prefix }))
    const child = { name: 'child', queueName: queue.name, data: {}, opts }
    return flows.add({ name: 'parent', queueName: queue.name, data: {}, children: [child] } as never)
  },
  'a scheduler': (queue, { delay: _, ...opts }) => {
    return queue.upsertJobScheduler('s', { every: 60_000 }, { name: 'job', opts: opts as never })
  },
}

test.each(Object.entries(WAYS))('%s: a job costs no more than the burst of its group', async (_name, add) => {
  const queue = shop.queue({ capacity: 1000, groups: { rate: '10/s', burst: 2 } })
  await queue.waitUntilReady()
  const error = (await add(queue, { cost: 3, group: { id: 'a' } }).catch((thrown: unknown) => thrown)) as Error
  expect(error).toBeInstanceOf(CostTooHighError)
  expect(error).toMatchObject({ cost: 3, burst: 2, groupId: 'a', limitName: undefined })
  expect(error.message).toContain('burst 2 of group "a"')
  await expect.poll(() => waiting(queue)).toBe(0)
  await queue.add('job', {}, { cost: 2, group: { id: 'a' } })
})

test.each([10, 250])('what is set for a group decides, in a bulk of %i', async (count) => {
  const queue = shop.queue({ capacity: 1000, groups: { rate: '10/s', burst: 2 } })
  const bulk = (id: string, cost: number) => queue.addBulk(Array.from({ length: count }, () => job(id, cost)))
  await queue.setGroup('large', { burst: 5 }, by)
  await queue.setGroup('free', { rate: null }, by)
  await queue.setGroup('small', { burst: 1 }, by)
  await bulk('large', 5)
  await bulk('free', 9)
  await expect(bulk('small', 2)).rejects.toMatchObject({ burst: 1, groupId: 'small' })
  expect(await waiting(queue)).toBe(2 * count)
})

test('groups without a rate take any cost, also while feedback slows them', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk([job('a', 3), job('a', 3)])
  await queue.setGroup('a', { rate: '10/s' }, by)
  await expect(queue.add('job', {}, { cost: 3, group: { id: 'a' } })).rejects.toMatchObject({ groupId: 'a' })
  await queue.clearGroup('a', by)
  const { store } = queue.getBackend() as unknown as { store: { changeGroup: (...args: unknown[]) => Promise<void> } }
  await store.changeGroup('a', { slowed: [1, 1000] }, by, 60_000)
  await queue.add('job', {}, { cost: 3, group: { id: 'a' } })
})

/** How a job that has failed comes back. */
const RETURNS: Record<string, (queue: ShapedQueue, letters: string) => Promise<unknown>> = {
  'is redriven': (queue, from) => queue.redrive({ from }),
  'is retried': async (queue) => (await queue.getJobs(['failed']))[0]?.retry(),
  'is retried with all others': (queue) => queue.retryJobs(),
  'is retried where there is a place': async (queue) => {
    const [failed] = await queue.getJobs(['failed'])
    return changeFailed(queue, failed?.id as string, { kind: 'retry' })
  },
}

test.each(
  Object.entries(RETURNS).flatMap(([how, back]) => [
    { how, back, of: 'its rate', shape: { groups: { rate: '20/s', burst: 5 } } },
    ...(['gcra', 'token-bucket', 'leaky-bucket'] as const).map((algorithm) => ({
      ...{ how, back, of: `a limit of ${algorithm}` },
      shape: { groups: {}, limits: [{ name: 'units', by: 'group', algorithm, rate: '20/s', burst: 5 }] as const },
    })),
  ]),
)('a job above the burst of $of that $how leaves once nothing is owed, and owes all that it costs', async (one) => {
  const queue = shop.queue({ ...one.shape, maxLatenessMs: 60_000 })
  const letters = lettersOf(shop)
  await queue.addBulk([job('a', 5)])
  const failing = shop.worker(queue, () => Promise.reject(new Error('no')), { deadLetter: letters.name })
  await eventsOf('failed', failing).reach(1)
  await failing.close()
  const lower =
    'limits' in one.shape ? { limits: [{ ...one.shape.limits[0], burst: 2 }] } : { groups: { rate: '20/s', burst: 2 } }
  await queue.setShape(lower, by)
  await queue.addBulk([job('a', 1), job('a', 1)])
  await one.back(queue, letters.name)
  await queue.addBulk([job('a', 1)])
  const departed = await departuresOf(shop.worker(queue, async () => {}, { concurrency: 9 })).reach(4)
  const slots = departed.map(({ departureTimeUs }) => departureTimeUs)
  const [, second = 0, dear = 0, last = 0] = slots
  expect(await queue.getCompletedCount()).toBeGreaterThan(0)
  // The second one owes a unit more at least; the dear one has five, of which one may still be owed.
  expect(dear - second).toBeGreaterThanOrEqual(50_000)
  expect(last - dear).toBeGreaterThanOrEqual(200_000)
})
