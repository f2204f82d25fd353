import type { JobsOptions } from 'bullmq'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { ShapedWorkerOptions } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

type Kept = Pick<ShapedWorkerOptions, 'removeOnComplete' | 'removeOnFail'>

test.each<[what: string, ofJob: JobsOptions, ofWorker: Kept, fails: boolean, remembered: number]>([
  ['a job that is kept', {}, {}, false, 0],
  ['a job that is not kept', { removeOnComplete: true }, {}, false, 3],
  ['one that only a failure would remove', { removeOnFail: true }, { removeOnFail: { count: 0 } }, false, 0],
  ['one that its worker does not keep', {}, { removeOnComplete: { count: 0 } }, false, 3],
  ['one that 98 others push out', { removeOnComplete: { count: 99 } }, {}, false, 3],
  ['one that 99 others do not push out', {}, { removeOnComplete: { count: 100 } }, false, 0],
  [
    'one that is kept although its worker keeps none',
    { removeOnComplete: false },
    { removeOnComplete: { count: 0 } },
    false,
    0,
  ],
  ['a failed one that is kept', { removeOnComplete: true }, { removeOnComplete: { count: 0 } }, true, 0],
  ['a failed one that is not kept', { removeOnFail: true }, {}, true, 3],
  ['a failed one that its worker does not keep', {}, { removeOnFail: { count: 0 } }, true, 3],
])('the end of a job is remembered apart if the job is gone: %s', async (_what, ofJob, ofWorker, fails, remembered) => {
  const queue = shop.queue({ capacity: 100 })
  const end = async () => {
    if (fails) throw new Error('failed')
  }
  const worker = shop.worker(queue, end, { concurrency: 1, ...ofWorker })
  const ended = eventsOf(fails ? 'failed' : 'completed', worker)
  await queue.addBulk(jobs(3).map((job) => ({ ...job, opts: ofJob })))
  await ended.reach(3)
  const keys = await client.keys(`${queue.toKey('meta:ended:')}*`)
  const ids = await Promise.all(keys.map((key) => client.hkeys(key)))
  expect(new Set(ids.flat()).size).toBe(remembered)
  for (const key of keys) expect(await client.pttl(key)).toBeGreaterThan(0)
})

test('a worker with shorter locks shortens no memory of the others', async () => {
  const queue = shop.queue({ capacity: 100 })
  const now = Date.now()
  const clock = vi.spyOn(Date, 'now').mockReturnValue(now)
  onTestFinished(() => clock.mockRestore())
  for (const lockDuration of [30_000, 1000]) {
    const worker = shop.worker(queue, async () => {}, { lockDuration })
    const completed = eventsOf('completed', worker)
    await queue.add('job', {}, { removeOnComplete: true })
    await completed.reach(1)
    await worker.close()
  }
  const [key] = await client.keys(`${queue.toKey('meta:ended:')}*`)
  expect(await client.hlen(key as string)).toBe(2)
  expect(await client.pttl(key as string)).toBeGreaterThan(20_000)
})
