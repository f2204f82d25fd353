import { afterAll, expect, test } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, jobs, settled, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const felt: string[] = []

afterAll(() => {
  console.log(`felt by sleeping workers after: ${felt.join(', ')}`)
})

/** Two workers that sleep until a slot that is an hour away. */
async function sleepers(queue: ShapedQueue, shapeName: string) {
  await queue.waitUntilReady()
  await queue.addBulk(jobs(6))
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 1, autorun: false }))
  const calls = workers.map(callsOf)
  const departed = departuresOf(...workers)
  for (const worker of workers) void worker.run()
  await Promise.all(calls.map((each) => asksUntil(each, 'closed')))
  await settled(queue, client, ...calls)
  const asked = () => calls.reduce((sum, { all }) => sum + all.length, 0)
  const before = departed.all.length
  const callsBefore = asked()
  return {
    /** Resolves when the change was felt; it takes no poll, and not a second. */
    async feel(change: () => Promise<unknown>): Promise<void> {
      expect(asked()).toBe(callsBefore)
      const running = new RunningTime(client)
      await change()
      await departed.reach(before + 2)
      const { ms } = running
      felt.push(`${shapeName} ${ms.toFixed(1)} ms`)
      expect(ms).toBeLessThan(1000)
    },
  }
}

const why = { by: 'test', reason: 'to see it felt' }

test('a raised rate is felt by workers that sleep', async () => {
  const queue = shop.queue({ rate: '1/h' })
  const sleeping = await sleepers(queue, 'raised rate')
  await sleeping.feel(() => queue.setShape({ rate: '100/s' }, why))
})

test('a lifted pause is felt', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  await queue.pauseUntil(new Date(Date.now() + 3_600_000), { reason: 'maintenance' })
  const sleeping = await sleepers(queue, 'lifted pause')
  await sleeping.feel(() => queue.clearPause())
})

test('a cleared override is felt', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  await queue.setShape({ rate: '1/h' }, why)
  const sleeping = await sleepers(queue, 'cleared override')
  await sleeping.feel(() => queue.clearShape({ fields: ['rate'] }))
})

test('an override that ends is felt, though nothing is published then', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  await queue.addBulk(jobs(1))
  const warm = shop.worker(queue, async () => {})
  await eventsOf('completed', warm).reach(1)
  await warm.close()
  const ends = Date.now() + 700
  const running = new RunningTime(client)
  await queue.setShape({ rate: '1/h' }, { ...why, ttlMs: 700 })
  await queue.addBulk(jobs(3))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(3)
  felt.push(`ended override ${(running.ms - 700).toFixed(1)} ms`)
  expect(departed.all[2]!.wallMs).toBeGreaterThanOrEqual(ends - 1)
  expect(running.ms).toBeLessThan(700 + 1000)
})

test('a pause that ends by itself is over on time', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const until = Date.now() + 600
  const running = new RunningTime(client)
  await queue.pauseUntil(until, { reason: 'for a moment' })
  await queue.addBulk(jobs(3))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(3)
  expect(departed.all[0]!.departureTimeUs).toBeGreaterThanOrEqual(until * 1000)
  expect(running.ms).toBeLessThan(600 + 1000)
})

test('a pause holds what is not granted yet', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.addBulk(jobs(30))
  const worker = shop.worker(queue, async () => {}, { concurrency: 10 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await departed.reach(3)
  await queue.pauseUntil(Date.now() + 3_600_000, { reason: 'incident' })
  const committedUs = Date.now() * 1000
  await settled(queue, client, calls)
  await asksUntil(calls, 'closed')
  // One horizon may have been granted ahead.
  const horizonUs = Math.max(...calls.all.map(({ request }) => request.horizonUs))
  expect(departed.all.at(-1)!.departureTimeUs).toBeLessThanOrEqual(committedUs + horizonUs + 1000)
  expect(departed.all.length).toBeLessThan(30)
})

test('after a reconnect a worker asks again: what was published meanwhile is gone', async () => {
  const proxy = await startProxy(redis.url)
  const queue = shop.queue({ rate: '1/h' })
  await queue.waitUntilReady()
  await queue.addBulk(jobs(3))
  const connection = { ...redis.connection, host: proxy.host, port: proxy.port }
  const worker = shop.worker(queue, async () => {}, { connection, autorun: false })
  worker.on('error', () => {})
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'closed')
  await settled(queue, client, calls)
  await proxy.refuse()
  await queue.setShape({ rate: '100/s' }, why)
  await proxy.resume()
  await departed.reach(3)
  await worker.close()
  await proxy.stop()
})

test('global concurrency that is raised is felt', async () => {
  const queue = shop.queue({ rate: '1000/s', concurrency: 1 })
  await queue.waitUntilReady()
  await queue.addBulk(jobs(3))
  const releases: (() => void)[] = []
  const worker = shop.worker(queue, () => new Promise<void>((resolve) => releases.push(resolve)), { concurrency: 3 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await departed.reach(1)
  await asksUntil(calls, 'halted')
  await settled(queue, client, calls)
  expect(departed.all.length).toBe(1)
  const running = new RunningTime(client)
  await queue.setShape({ concurrency: 3 }, why)
  await departed.reach(3)
  const { ms } = running
  felt.push(`raised concurrency ${ms.toFixed(1)} ms`)
  expect(ms).toBeLessThan(1000)
  for (const release of releases) release()
})
