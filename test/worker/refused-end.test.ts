import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, jobs, Workshop, watchScripts } from './support.ts'

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

/** Why the batches of ends of a worker looked for no more jobs. */
async function stopsOf(worker: ReturnType<typeof shop.worker>): Promise<unknown[]> {
  const stops: unknown[] = []
  await watchScripts(worker, (name, _, reply) => {
    if (name.endsWith(':exchange')) stops.push((reply as unknown[])[4])
  })
  return stops
}

// Then it does not wait for a marker, as if the queue were empty.
test.each([
  ['behind the gate', { name: 'places', algorithm: 'concurrency', concurrency: 1000 }, 9, 30, 0],
  // The last of the first five ends needs the gate, since the next job is prioritized.
  ['before another one comes to the gate', { name: 'open', rate: '1000000/s', burst: 1_000_000 }, 0, 13, 15],
] as const)('an end that Redis refuses %s leaves its place to a job that waits', async (_, limit, nth, plain, more) => {
  const queue = shop.queue({ limits: [limit] })
  await queue.addBulk([...jobs(plain), ...jobs(more, { priority: 5 })])
  const [first, second] = [gate(), gate()]
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 10 ? first : second).opened, { concurrency: 10 })
  const [errors, departed] = [eventsOf<Error>('error', worker), departuresOf(worker)]
  const id = (await departed.reach(10))[nth]?.id as string
  // As if it had been stalled, and had begun again elsewhere.
  await client.set(`${queue.toKey(id)}:lock`, 'of another worker')
  const stops = await stopsOf(worker)
  first.open()
  await departed.reach(20)
  expect(stops.slice(0, 2)).toEqual(['full', 'full'])
  expect(errors.all[0]?.message).toContain(`job ${id}`)
  second.open()
  await departed.reach(plain + more)
  await client.del(`${queue.toKey(id)}:lock`)
})
