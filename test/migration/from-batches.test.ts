import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import type { ShapedJob } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from '../worker/support.ts'

const shop = new Workshop(useRedis(import.meta.url))

test("a processor of Pro's batches runs as it is, and each job has its own events", async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(4))
  const sizes: number[] = []
  const worker = shop.worker(
    queue,
    async (job: Job) => {
      const batch = (job as ShapedJob).getBatch()
      sizes.push(batch.length)
      expect(batch[0]).toBe(job)
      for (let i = 0; i < batch.length; i++) if (i % 2 === 1) batch[i]?.setAsFailed(new Error('it is odd'))
    },
    { batch: { size: 10 } },
  )
  const [completed, failed] = [eventsOf<Job>('completed', worker), eventsOf<Job>('failed', worker)]
  await Promise.all([completed.reach(2), failed.reach(2)])
  expect(sizes).toEqual([4])
  expect(completed.all.map(({ name }) => name)).toEqual(['job0', 'job2'])
  expect(failed.all.map(({ name }) => name)).toEqual(['job1', 'job3'])
})

test('minSize, timeoutMs and groupAffinity work together', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk(jobs(9).map((job, i) => ({ ...job, name: `g${i % 3}`, opts: { group: { id: `g${i % 3}` } } })))
  const batches: string[][] = []
  const processor = async (job: Job) => {
    batches.push((job as ShapedJob).getBatch().map(({ name }) => name))
  }
  const batch = { size: 9, minSize: 3, timeoutMs: 600_000, groupAffinity: true }
  await eventsOf('completed', shop.worker(queue, processor, { batch, concurrency: 3 })).reach(9)
  expect(batches.sort()).toEqual(['g0', 'g1', 'g2'].map((group) => [group, group, group]))
})
