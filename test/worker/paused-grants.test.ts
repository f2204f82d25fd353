import { expect, onTestFinished, test } from 'vitest'
import type { Exchange } from '../../src/departure/exchange.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import type { ShapedQueue, ShapedQueueOptions, ShapedWorker } from '../../src/index.ts'
import type { ShapeStore } from '../../src/shape/store.ts'
import { quickConnection } from '../faults/support/own-redis.ts'
import { asks, textOf } from '../faults/support/scripts.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, jobs, Workshop } from './support.ts'

// Jobs that were granted before a pause, of which the worker hears first.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const PAUSE_MS = 600_000

/** The worker's first reply that is as wanted comes after it has heard of a pause which was stored after it. */
function pauseBefore(worker: ShapedWorker, wanted: (reply: DepartureReply) => boolean): void {
  const { store, exchange } = worker.getBackend() as { store: ShapeStore; exchange: Exchange }
  const ask = exchange.ask.bind(exchange)
  let paused = false
  exchange.ask = async (request) => {
    const reply = await ask(request)
    if (!paused && wanted(reply)) {
      paused = true
      await store.pause({ kind: 'for', ms: PAUSE_MS, reason: 'test' })
    }
    return reply
  }
}

async function waiting(queue: ShapedQueue): Promise<string[]> {
  return (await queue.getJobs(['wait'], 0, -1, true)).map(({ name }) => name)
}

const names = (count: number, from = 0) => jobs(count).map((_, i) => `job${from + i}`)

test.each<[string, ShapedQueueOptions['shape']]>([
  ['whose slots are ahead', { rate: '100/s', horizonMs: 1000 }],
  ['that may start at once', { rate: '100/s', burst: 10 }],
  ['that nothing holds', { concurrency: 10 }],
])('jobs %s go back', async (_, shape) => {
  const queue = shop.queue(shape)
  await queue.addBulk(jobs(4))
  const worker = shop.worker(queue, async () => {}, { concurrency: 10, autorun: false })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  pauseBefore(worker, ({ grants }) => grants.length > 0)
  void worker.run()
  await asksUntil(calls, 'closed')
  expect(departed.all).toEqual([])
  expect(await waiting(queue)).toEqual(names(4))
  await queue.clearPause()
  await departed.reach(4)
  expect(departed.all.map(({ name }) => name)).toEqual(names(4))
})

test('they go back behind those that are held', async () => {
  // A busy machine may start a job late.
  const queue = shop.queue({ rate: '2/s', horizonMs: 20_000, maxLatenessMs: 60_000 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {}, { concurrency: 10 })
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await calls.reach(1)
  await queue.addBulk(jobs(4))
  await departed.reach(1)
  await calls.until((all) => all.some(({ reply }) => reply.grants.length > 0))
  pauseBefore(worker, ({ grants }) => grants.length > 0)
  await queue.addBulk(jobs(8).slice(4))
  await asksUntil(calls, 'closed')
  expect(departed.all).toHaveLength(1)
  expect(await waiting(queue)).toEqual(names(7, 1))
})

test('also where the reply was lost with the connection, and is repeated with word of the pause', async () => {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const queue = shop.queue({ rate: '100/s', horizonMs: 5000, maxLatenessMs: 60_000 })
  await queue.addBulk(jobs(4))
  const connection = { ...quickConnection(proxy.url), retryStrategy: () => 200 }
  await redis.client().script('LOAD', textOf('exchange'))
  const worker = shop.worker(queue, async () => {}, { connection, concurrency: 10, autorun: false })
  worker.on('error', () => {})
  await worker.waitUntilReady()
  await worker.getBackend().store.prepared()
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  const dropped = proxy.dropReplyOf(asks)
  void worker.run()
  await dropped
  await proxy.refuse()
  await queue.pauseUntil(Date.now() + PAUSE_MS, { reason: 'test' })
  await proxy.resume()
  await calls.reach(1)
  expect(calls.all[0]!.reply.grants).toHaveLength(4)
  await asksUntil(calls, 'closed')
  expect(departed.all).toEqual([])
  expect(await waiting(queue)).toEqual(names(4))
})
