import { type Job, Queue, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, jobs, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

test('stock workers that still run are told of; once they are gone the bound holds; nothing is lost or run twice', async () => {
  const old = shop.keep(new Queue('deploy', { connection, prefix }))
  await old.addBulk(jobs(400))
  const work = () => new Promise<void>((resolve) => setTimeout(resolve, 15))
  const stock = shop.keep(new Worker('deploy', work, { connection, prefix, concurrency: 2 }))
  const done = eventsOf<Job>('completed', stock)

  const queue = shop.queueNamed('deploy', { rate: '40/s' })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, work, { concurrency: 4 })
  const [foreign, departed] = [eventsOf<{ jobId: string }>('foreignWorker', worker), departuresOf(worker)]
  worker.on('completed', (job) => done.add(job))
  await foreign.reach(1)
  expect(departed.all.map(({ id }) => id)).not.toContain(foreign.all[0]!.jobId)

  await stock.close()
  const goneUs = Date.now() * 1000
  const since = departed.all.length
  await departed.reach(since + 12)
  const slots = departed.all.filter(({ departureTimeUs }) => departureTimeUs > goneUs).map((d) => d.departureTimeUs)
  expect(excess(slots, 25_000)).toBeLessThanOrEqual(rounding(25_000))

  await queue.setShape({ rate: null }, { by: 'test', reason: 'to see the end' })
  await done.reach(400)
  expect(new Set(done.all.map(({ id }) => id)).size).toBe(400)
  expect(done.all.length).toBe(400)
})

test('producers of the old release are not bounded; those of the new one see the depth they make', async () => {
  const queue = shop.queueNamed('producers', { rate: '10/s', capacity: 5 })
  await queue.addBulk(jobs(5))
  const old = shop.keep(new Queue('producers', { connection, prefix }))
  await old.add('past the bound', {})
  expect(await queue.getWaitingCount()).toBe(6)
  const offer = await queue.offer('refused', {})
  expect(offer).toMatchObject({ accepted: false, depth: 6, capacity: 5 })
})
