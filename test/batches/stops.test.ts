import { expect, test } from 'vitest'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, gate, jobs, rounding, Workshop } from '../worker/support.ts'
import { recording } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const processes = useProcesses()

/** Waits for more jobs than there are. */
const PATIENT = { batch: { size: 10, minSize: 10, timeoutMs: 3_600_000 } }

/** A worker that has gathered these jobs. */
async function gathering(count: number) {
  const queue = shop.queue({})
  await queue.addBulk(jobs(count))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, PATIENT)
  await eventsOf('active', shop.queueEvents(queue)).reach(count)
  return { queue, worker, batches }
}

async function waiting(queue: { getJobs(types: never, from: number, to: number, asc: boolean): Promise<unknown[]> }) {
  return (await queue.getJobs(['wait'] as never, 0, -1, true)).map((job) => (job as { name: string }).name)
}

const NAMES = jobs(4).map(({ name }) => name)

test('a close gives a partly gathered batch back, in order', async () => {
  const { queue, worker, batches } = await gathering(4)
  await worker.close()
  expect(await waiting(queue)).toEqual(NAMES)
  expect(batches.all).toEqual([])
  const other = recording()
  const completed = eventsOf('completed', shop.worker(queue, other.processor, { batch: { size: 10 } }))
  await completed.reach(4)
  expect(other.batches.all).toEqual([NAMES])
})

test('a pause of the worker does too, and a resume gathers again', async () => {
  const { queue, worker, batches } = await gathering(4)
  await worker.pause()
  expect(await waiting(queue)).toEqual(NAMES)
  worker.resume()
  await queue.addBulk(jobs(6))
  await batches.reach(1)
  expect(batches.all.map(({ length }) => length)).toEqual([10])
})

test('a pause of the meter does too', async () => {
  const { queue, batches } = await gathering(4)
  await queue.pauseUntil(new Date(Date.now() + 3_600_000), { by: 'test', reason: 'told to' })
  // A worker that waits for the marker hears of nothing else for 5 s.
  await expect.poll(() => waiting(queue), { timeout: 4000 }).toEqual(NAMES)
  expect(batches.all).toEqual([])
})

test('a close waits for the batch that runs', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(3))
  const [begun, open] = [gate(), gate()]
  const { processor } = recording(() => {
    begun.open()
    return open.opened
  })
  const worker = shop.worker(queue, processor, { batch: { size: 3 } })
  const completed = eventsOf('completed', worker)
  await begun.opened
  const closed = worker.close()
  open.open()
  await closed
  expect(completed.all).toHaveLength(3)
  expect(await queue.getJobCounts('completed', 'active', 'wait')).toEqual({ completed: 3, active: 0, wait: 0 })
})

test('two workers run each job once, at the rate', async () => {
  const intervalUs = 2500
  const queue = shop.queue({ rate: '400/s' })
  await queue.addBulk(jobs(120))
  const { batches, processor } = recording()
  const workers = [1, 2].map(() =>
    shop.worker(queue, processor, { batch: { size: 30, minSize: 5, timeoutMs: 100 }, concurrency: 2 }),
  )
  const departed = departuresOf(...workers)
  await eventsOf('completed', ...workers).reach(120)
  expect(batches.all.flat().sort()).toEqual(
    jobs(120)
      .map(({ name }) => name)
      .sort(),
  )
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, intervalUs)).toBeLessThanOrEqual(rounding(intervalUs))
})

test('the jobs of a batch whose process is killed come back, each by itself', async () => {
  const queue = shop.queue({})
  const added = await queue.addBulk(jobs(4))
  const args = [queue.name, redis.prefix, JSON.stringify(redis.connection), '3']
  const script = new URL('./programs/batch-worker.ts', import.meta.url)
  const program = processes.fork<{ type: 'batch'; ids: string[] }>(script, { args })
  const { ids } = await program.waitFor('batch')
  expect(ids).toEqual(added.slice(0, 3).map(({ id }) => id))
  await program.kill('SIGKILL')
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 10 }, stalledInterval: 200 })
  const stalled = eventsOf<string>('stalled', worker)
  await eventsOf('completed', worker).reach(4)
  expect([...stalled.all].sort()).toEqual([...ids].sort())
  expect(batches.all.flat().sort()).toEqual(NAMES)
})
