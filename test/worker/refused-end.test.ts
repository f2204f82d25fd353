import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

test('an end that Redis refuses, since the job is another one’s by now, does not fail the job for that other one', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const [wait, active] = [queue.toKey('wait'), queue.toKey('active')]
  let runs = 0
  const process = async (job: Job) => {
    runs += 1
    if (runs > 1) return
    // What recovers stalled jobs found its lock gone.
    await client.del(`${queue.toKey(job.id as string)}:lock`)
    await client.lmove(active, wait, 'RIGHT', 'RIGHT')
    const complete = job.moveToCompleted.bind(job)
    job.moveToCompleted = async (...args) => {
      try {
        return await complete(...args)
      } finally {
        // Another worker took the job and lost the lock, too: Redis stood still.
        await client.lmove(wait, active, 'RIGHT', 'LEFT')
      }
    }
  }
  const worker = shop.worker(queue, process, { stalledInterval: 200 })
  const [errors, failed] = [eventsOf<Error>('error', worker), eventsOf('failed', worker)]
  const completed = eventsOf<Job>('completed', worker)
  const { id } = await queue.add('job', {}, { attempts: 1 })
  await Promise.race([completed.reach(1), failed.reach(1)])
  expect(completed.all.map((job) => job.id)).toEqual([id])
  expect(runs).toBe(2)
  expect(failed.all).toEqual([])
  expect(errors.all[0]?.message).toBe(`Missing lock for job ${id}. moveToFinished`)
  expect(await queue.getJobCounts('failed', 'completed')).toEqual({ failed: 0, completed: 1 })
})
