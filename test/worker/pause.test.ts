import { expect, test, vi } from 'vitest'
import type { ShapedBackend } from '../../src/backend/backend.ts'
import { redisTime } from '../limits/support/limiters.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, settled, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
/** Time enough to pause a worker before its second job, also on a busy machine. */
const INTERVAL_MS = 2000
const WIDE = { rate: { limit: 1, period: INTERVAL_MS }, horizonMs: 20_000, maxLatenessMs: 60_000 }

async function holding(processor = async () => {}) {
  const queue = shop.queue(WIDE)
  await queue.waitUntilReady()
  const worker = shop.worker(queue, processor, { concurrency: 4 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await calls.reach(1)
  await queue.addBulk(jobs(5))
  await calls.until((all) => all.some(({ reply }) => reply.grants.length === 4))
  await departed.reach(1)
  return { queue, worker, calls, departed }
}

test('a paused worker gives back what it holds; resumed, it goes on in order', async () => {
  const { queue, worker, calls, departed } = await holding()
  const [paused, resumed] = [eventsOf<undefined>('paused', worker), eventsOf<undefined>('resumed', worker)]
  await worker.pause()
  expect(worker.isPaused()).toBe(true)
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 4, active: 0 })
  expect(paused.all.length).toBe(1)
  const asked = calls.all.length
  const running = new RunningTime(client)
  await worker.resume()
  expect(resumed.all.length).toBe(1)
  await calls.until((before) => before.slice(asked).some(({ reply }) => reply.grants.length > 0))
  const { ms } = running
  const grantedUs = 1000 * (await redisTime(client))
  const all = await departed.reach(3)
  expect(all.map(({ name }) => name)).toEqual(['job0', 'job1', 'job2'])
  // The slots were refunded: no time was lost but what the pause took.
  expect(ms).toBeLessThan(1000)
  expect(all[1]!.departureTimeUs).toBeLessThanOrEqual(
    Math.max(all[0]!.departureTimeUs + 1000 * INTERVAL_MS + 1, grantedUs),
  )
})

test('pause waits for the job that runs', async () => {
  const released = gate()
  const { queue, worker } = await holding(() => released.opened)
  let paused = false
  const pausing = worker.pause().then(() => {
    paused = true
  })
  await queue.getActiveCount()
  expect(paused).toBe(false)
  released.open()
  await pausing
  expect(await queue.getJobCounts('wait', 'active', 'completed')).toEqual({ wait: 4, active: 0, completed: 1 })
})

test('pause(true) does not wait, and gives back what is held all the same', async () => {
  const released = gate()
  const { queue, worker, departed } = await holding(() => released.opened)
  const back = eventsOf<unknown>('completed', worker)
  await worker.pause(true)
  const probe = shop.worker(queue, null)
  // Given back while job0 still runs: another worker can have it.
  let job = await probe.getNextJob('probe')
  while (!job) job = await probe.getNextJob('probe')
  expect(job.name).toBe('job1')
  expect(back.all.length).toBe(0)
  released.open()
  await back.reach(1)
  expect(departed.all.length).toBe(1)
  await worker.resume()
  await departed.reach(2)
  expect(departed.all[1]!.name).toBe('job2')
  await job.moveToCompleted('done', 'probe', false)
})

test('resume while a job still runs fetches at once', async () => {
  const released = gate()
  const queue = shop.queue({ rate: '100/s' })
  await queue.addBulk(jobs(1))
  const worker = shop.worker(queue, (job) => (job.name === 'job0' ? released.opened : Promise.resolve()), {
    concurrency: 2,
  })
  const departed = departuresOf(worker)
  await departed.reach(1)
  await worker.pause(true)
  await queue.add('second', {})
  await worker.resume()
  await departed.reach(2)
  released.open()
})

test('resumed at any moment after a pause that does not wait, a worker goes on', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {})
  const completed = eventsOf('completed', worker)
  // The loop ends in some of these ticks of the promises.
  for (let ticks = 0; ticks < 30; ticks++) {
    await queue.add('job', {})
    await completed.reach(ticks + 1)
    await worker.pause(true)
    for (let i = 0; i < ticks; i++) await Promise.resolve()
    await worker.resume()
  }
  await queue.add('job', {})
  await completed.reach(31)
})

test('a paused worker that slept leaves its slot to another', async () => {
  const queue = shop.queue({ rate: '1/min' })
  await queue.addBulk(jobs(4))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 3, autorun: false }))
  const calls = workers.map(callsOf)
  for (const [i, worker] of workers.entries()) {
    void worker.run()
    await asksUntil(calls[i]!, 'closed')
  }
  await settled(queue, client, ...calls)
  const wakes = calls.map(({ all }) => all.at(-1)!.reply.wakeUs!)
  const early = wakes[0]! < wakes[1]! ? 0 : 1
  await workers[early]!.pause()
  const late = calls[1 - early]!
  await late.until((all) => Math.abs(all.at(-1)!.reply.wakeUs! - wakes[early]!) < 1_000_000)
})

test("BullMQ's pause of the queue stops all, its resume lets them go on", async () => {
  const queue = shop.queue({ rate: '50/s' })
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 3 }))
  const calls = workers.map(callsOf)
  const departed = departuresOf(...workers)
  await Promise.all(calls.map((each) => each.reach(1)))
  await queue.pause()
  await queue.addBulk(jobs(4))
  await settled(queue, client, ...calls)
  expect(departed.all.length).toBe(0)
  await queue.resume()
  await departed.reach(4)
})

test('a worker that was paused while it waited does not keep a job from the others', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const [first, second] = [1, 2].map(() => shop.worker(queue, async () => {}, { autorun: false }))
  const calls = callsOf(first!)
  void first!.run()
  await asksUntil(calls, 'empty')
  await settled(queue, client, calls)
  // BullMQ's marker goes to whoever waits longest: the first one.
  const secondCalls = callsOf(second!)
  void second!.run()
  await asksUntil(secondCalls, 'empty')
  await settled(queue, client, secondCalls)
  await first!.pause(true)
  const departed = departuresOf(second!)
  const running = new RunningTime(client)
  await queue.add('a', {})
  await departed.reach(1)
  expect(running.ms).toBeLessThan(1000)
})

test.each([
  ['while it opens its connection again', false, false],
  ['while it opens its connection again, forced', true, false],
  ['before that', false, true],
])('a close that overtakes a pause lets it resolve, and leaves no connection: %s', async (_when, force, isBefore) => {
  const { worker } = await holding()
  const { backend } = worker as unknown as { readonly backend: ShapedBackend }
  const reconnect = backend.reconnectBlocking.bind(backend)
  let closing: Promise<void> | undefined
  vi.spyOn(backend, 'reconnectBlocking').mockImplementation(async () => {
    const opened = isBefore ? undefined : reconnect()
    closing = worker.close(force)
    if (isBefore) await closing
    return opened ?? reconnect()
  })
  await worker.pause()
  expect(closing).toBeDefined()
  await closing
  await worker.pause()
})
