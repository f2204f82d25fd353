import { type Job, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { createShapedBackend } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, gate, jobs, Record, rounding, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const { connection, prefix } = redis

test('in shadow mode nothing is held, and what would have been is counted', async () => {
  const queue = shop.queue({ rate: '1/min', mode: 'shadow' })
  await queue.addBulk(jobs(10))
  const worker = shop.worker(queue, async () => {}, { concurrency: 3 })
  const late = eventsOf('late', worker)
  await eventsOf('completed', worker).reach(10)
  const meter = await queue.meter()
  expect(meter.shadowDelayedTotal).toBe(9)
  expect(meter.cause).toBe('shadow')
  expect(late.all).toEqual([])
})

test('with mode off the shape is as if it were not there', async () => {
  const queue = shop.queue({ rate: '1/min', mode: 'off' })
  await queue.addBulk(jobs(10))
  const worker = shop.worker(queue, async () => {}, { concurrency: 3 })
  await eventsOf('completed', worker).reach(10)
  expect((await queue.meter()).shadowDelayedTotal).toBe(0)
})

test('a shape that is turned on at run time holds from then on', async () => {
  const queue = shop.queue({ rate: '50/s', mode: 'shadow' })
  await queue.addBulk(jobs(5))
  const worker = shop.worker(queue, async () => {}, { concurrency: 5 })
  const departed = departuresOf(worker)
  await departed.reach(5)
  await queue.setShape({ mode: 'enforce' }, { by: 'test', reason: 'seen enough' })
  await queue.addBulk(jobs(6))
  await departed.reach(11)
  const slots = departed.all.slice(5).map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, 20_000)).toBeLessThanOrEqual(rounding(20_000))
})

test('the limit on running jobs holds over two workers, together with the rate', async () => {
  const queue = shop.queue({ rate: '200/s', concurrency: 3 })
  await queue.waitUntilReady()
  let running = 0
  let most = 0
  const started = new Record<string>()
  const releases: (() => void)[] = []
  const workers = [1, 2].map(() =>
    shop.worker(
      queue,
      async (job) => {
        running += 1
        most = Math.max(most, running)
        started.add(job.name)
        await new Promise<void>((resolve) => releases.push(resolve))
        running -= 1
      },
      { concurrency: 5 },
    ),
  )
  const [departed, completed] = [departuresOf(...workers), eventsOf('completed', ...workers)]
  await queue.addBulk(jobs(9))
  for (let n = 3; n <= 9; n++) {
    await started.reach(n)
    expect(running).toBe(3)
    releases.shift()!()
  }
  for (const release of releases) release()
  await completed.reach(9)
  expect(most).toBe(3)
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, 5000)).toBeLessThanOrEqual(rounding(5000))
})

test('a worker without Sluice on the same queue is told of', async () => {
  const queue = shop.queue({ rate: '20/s' })
  await queue.addBulk(jobs(40))
  const released = gate()
  const stock = shop.keep(new Worker(queue.name, () => released.opened, { connection, prefix, concurrency: 2 }))
  await eventsOf('active', stock).reach(2)
  const worker = shop.worker(queue, async () => {}, { concurrency: 4 })
  const foreign = eventsOf<{ jobId: string }>('foreignWorker', worker)
  const running = await queue.getActive()
  await foreign.reach(1)
  expect(running.map(({ id }) => id)).toContain(foreign.all[0]!.jobId)
  released.open()
})

test('a stock worker with our backend is no stranger: it obeys the meter', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.addBulk(jobs(12))
  const stock = shop.keep(
    new Worker(queue.name, async () => {}, { connection, prefix, concurrency: 2 }, createShapedBackend),
  )
  const worker = shop.worker(queue, async () => {}, { concurrency: 2 })
  const foreign = eventsOf<unknown>('foreignWorker', worker)
  const done = eventsOf<Job>('completed', stock, worker)
  await done.reach(12)
  const client = redis.client()
  const slots = await Promise.all(
    done.all.map(async ({ id }) => Number(await client.hget(queue.toKey(id!), 'departure'))),
  )
  expect(excess(slots, 20_000)).toBeLessThanOrEqual(rounding(20_000))
  expect(foreign.all).toEqual([])
})

test('a concurrency that cannot keep the rate up is warned of, once', async () => {
  const queue = shop.queue({ rate: '500/s' })
  await queue.addBulk(jobs(80))
  const warnings = new Record<Error & { code?: string }>()
  const onWarning = (warning: Error & { code?: string }) => {
    if (warning.code === 'SLUICE_CONCURRENCY') warnings.add(warning)
  }
  process.on('warning', onWarning)
  try {
    const work = () => new Promise<void>((resolve) => setTimeout(resolve, 15))
    const worker = shop.worker(queue, work, { concurrency: 1 })
    const completed = eventsOf('completed', worker)
    await warnings.reach(1)
    await completed.reach(75)
    expect(warnings.all.length).toBe(1)
    expect(warnings.all[0]!.message).toMatch(
      new RegExp(`queue "${queue.name}": jobs take \\d+ ms, so its rate needs \\d`),
    )
  } finally {
    process.off('warning', onWarning)
  }
})
