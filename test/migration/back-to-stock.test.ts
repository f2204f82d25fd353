import { type Job, Queue, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

test('stock classes go on where Sluice left off, without a clean-up', async () => {
  const queue = shop.queueNamed('back', { rate: '20/s', burst: 3, capacity: 1000, concurrency: 50 })
  await queue.addBulk(jobs(10, { cost: 2 }))
  await queue.add('urgent', {}, { priority: 1 })
  await queue.add('later', {}, { delay: 300 })
  await queue.add('flaky', {}, { attempts: 3, backoff: 50 })
  await queue.upsertJobScheduler('tick', { every: 200 }, { name: 'tick', opts: { cost: 1 } })
  const shaped = shop.worker(queue, async () => {}, { concurrency: 3 })
  await departuresOf(shaped).reach(3)
  await shaped.close()
  await queue.close()

  const stock = shop.keep(new Queue('back', { connection, prefix }))
  const seen: string[] = []
  const worker = shop.keep(
    new Worker(
      'back',
      async (job) => {
        seen.push(job.name)
        if (job.name === 'flaky' && job.attemptsMade < 2) throw new Error('not yet')
      },
      { connection, prefix, concurrency: 5 },
    ),
  )
  const completed = eventsOf<Job>('completed', worker)
  const names = () => completed.all.map(({ name }) => name)
  await completed.until(
    () =>
      names().filter((name) => name === 'tick').length >= 3 && names().includes('later') && names().includes('flaky'),
  )
  expect(seen.filter((name) => name === 'flaky').length).toBe(3)
  for (const name of ['urgent', 'job9']) expect(names()).toContain(name)
  expect(new Set(completed.all.map(({ id }) => id)).size).toBe(completed.all.length)
  await stock.removeJobScheduler('tick')
  expect(await stock.getFailedCount()).toBe(0)
  // Unbounded and unpaced again, but for the one value that is BullMQ's own too.
  await stock.addBulk(jobs(50))
  expect(await stock.getGlobalConcurrency()).toBe(50)
  await stock.removeGlobalConcurrency()
  expect(await stock.getGlobalConcurrency()).toBeNull()
})

test('BullMQ’s clean-up of orphaned jobs leaves the shape alone, so the way forward again is open', async () => {
  const queue = shop.queueNamed('forth', { rate: '20/s', capacity: 7 })
  await queue.add('a', {})
  await queue.close()
  const stock = shop.keep(new Queue('forth', { connection, prefix }))
  await stock.removeOrphanedJobs()
  expect(await stock.getWaitingCount()).toBe(1)
  const again = shop.queueNamed('forth')
  expect(await again.getShape()).toMatchObject({ rate: '20/s', capacity: 7 })
})
