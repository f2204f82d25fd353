import { QueueEvents } from 'bullmq'
import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, settled, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

async function queueEvents(name: string): Promise<QueueEvents> {
  const events = shop.keep(new QueueEvents(name, { connection: redis.connection, prefix: redis.prefix }))
  await events.waitUntilReady()
  return events
}

test('jobs leave in the order they came, whatever the number of places', async () => {
  // One that were late on a busy machine would leave behind others.
  const queue = shop.queue({ rate: '500/s', maxLatenessMs: 60_000 })
  await queue.addBulk(jobs(40))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 8 }))
  expect((await departed.reach(40)).map(({ name }) => name)).toEqual(jobs(40).map(({ name }) => name))
})

test('a cheap prioritized job does not overtake a costly head', async () => {
  const queue = shop.queue({ rate: '20/s', burst: 4, maxLatenessMs: 60_000 })
  await queue.add('first', {}, { cost: 4 })
  await queue.add('costly', {}, { cost: 4 })
  for (let i = 0; i < 3; i++) await queue.add(`cheap${i}`, {}, { cost: 1, priority: 2 })
  const worker = shop.worker(queue, async () => {}, { concurrency: 5 })
  const departed = await departuresOf(worker).reach(5)
  expect(departed.map(({ name }) => name)).toEqual(['first', 'costly', 'cheap0', 'cheap1', 'cheap2'])
  expect(departed[1]!.departureTimeUs - departed[0]!.departureTimeUs).toBeGreaterThanOrEqual(199_999)
})

test('jobs of equal priority keep their order while the bucket is closed', async () => {
  const queue = shop.queue({ rate: '10/s', maxLatenessMs: 60_000 })
  const worker = shop.worker(queue, async () => {}, { concurrency: 5, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await queue.add('p0', {}, { priority: 3 })
  await queue.add('p1', {}, { priority: 3 })
  void worker.run()
  // BullMQ resets its counter of priorities when a fetch finds nothing: a closed bucket is not an empty queue.
  await asksUntil(calls, 'closed')
  for (const i of [2, 3, 4]) await queue.add(`p${i}`, {}, { priority: 3 })
  expect((await departed.reach(5)).map(({ name }) => name)).toEqual(['p0', 'p1', 'p2', 'p3', 'p4'])
})

test('delayed jobs are promoted in time while the bucket is closed', async () => {
  const queue = shop.queue({ rate: '1/min' })
  const events = await queueEvents(queue.name)
  const promoted = eventsOf<{ jobId: string; prev?: string }>('waiting', events)
  await queue.addBulk(jobs(2))
  const delayed = await queue.add('delayed', {}, { delay: 300 })
  const running = new RunningTime(client)
  const worker = shop.worker(queue, async () => {}, { concurrency: 5, autorun: false })
  const calls = callsOf(worker)
  void worker.run()
  await asksUntil(calls, 'closed')
  await promoted.until((all) => all.some(({ jobId, prev }) => jobId === delayed.id && prev === 'delayed'))
  expect(running.ms).toBeLessThan(300 + 1000)
  expect(await delayed.getState()).toBe('waiting')
})

test('a delayed job that comes while everybody sleeps is promoted in time too', async () => {
  const queue = shop.queue({ rate: '1/min' })
  const events = await queueEvents(queue.name)
  const promoted = eventsOf<{ jobId: string; prev?: string }>('waiting', events)
  await queue.addBulk(jobs(2))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 5, autorun: false }))
  const calls = workers.map(callsOf)
  for (const worker of workers) void worker.run()
  await Promise.all(calls.map((each) => asksUntil(each, 'closed')))
  await settled(queue, client, ...calls)
  const delayed = await queue.add('delayed', {}, { delay: 300 })
  const running = new RunningTime(client)
  await promoted.until((all) => all.some(({ jobId, prev }) => jobId === delayed.id && prev === 'delayed'))
  expect(running.ms).toBeLessThan(300 + 1000)
})

test('a retry with a backoff is promoted in time while the bucket is closed', async () => {
  const queue = shop.queue({ rate: '1/min' })
  const events = await queueEvents(queue.name)
  const promoted = eventsOf<{ jobId: string; prev?: string }>('waiting', events)
  const failing = await queue.add('failing', {}, { attempts: 2, backoff: 300 })
  await queue.addBulk(jobs(2))
  const released = gate()
  const fail = () => released.opened.then(() => Promise.reject(new Error('not yet')))
  const worker = shop.worker(queue, fail, { concurrency: 5, autorun: false })
  const calls = callsOf(worker)
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(queue, client, calls)
  released.open()
  await eventsOf('failed', worker).reach(1)
  const running = new RunningTime(client)
  await promoted.until((all) => all.some(({ jobId, prev }) => jobId === failing.id && prev === 'delayed'))
  expect(running.ms).toBeLessThan(300 + 1000)
})

test("a scheduler's next iteration is made when its job departs, not when it is granted", async () => {
  const queue = shop.queue({ rate: '2/s', horizonMs: 400 })
  await queue.add('first', {})
  await queue.upsertJobScheduler('tick', { every: 100_000 }, { name: 'tick' })
  const worker = shop.worker(queue, async () => {}, { concurrency: 5, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  const active = eventsOf('active', worker)
  void worker.run()
  await calls.until((all) => all.some(({ reply }) => reply.grants.some(({ id }) => id.startsWith('repeat:tick'))))
  expect(await queue.getDelayedCount()).toBe(0)
  expect(active.all.map(({ name }) => name)).toEqual(['first'])
  await departed.until((all) => all.some(({ name }) => name === 'tick'))
  expect(await queue.getDelayedCount()).toBe(1)
})

test.each([
  [1, 'no rate', {}],
  [12, 'no rate', {}],
  [12, 'a rate that holds none', { rate: '100000/s', burst: 1000 }],
] as const)(
  'with %i at once and %s, a job is reported ended before another starts in its place',
  async (concurrency, _, shape) => {
    const queue = shop.queue({ capacity: 1000, ...shape })
    await queue.addBulk(jobs(100))
    const worker = shop.worker(queue, async ({ name }) => failsSometimes(name), { concurrency, autorun: false })
    let [running, most, ended] = [0, 0, 0]
    worker.on('active', () => {
      running += 1
      most = Math.max(most, running)
    })
    for (const event of ['completed', 'failed'] as const) {
      worker.on(event, () => {
        running -= 1
        ended += 1
      })
    }
    void worker.run()
    await expect.poll(() => ended, { timeout: 60_000 }).toBe(100)
    expect(most).toBe(concurrency)
  },
)

async function failsSometimes(name: string): Promise<void> {
  if (name.endsWith('7')) throw new Error('seven')
}
