import { once } from 'node:events'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { Exchange } from '../../src/departure/exchange.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import {
  type Asked,
  asksUntil,
  callsOf,
  departuresOf,
  eventsOf,
  gate,
  jobs,
  type Record,
  settled,
  Workshop,
} from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

/** A worker that holds jobs: the horizon is far wider than the interval, and at most a quarter of the lock. */
function holder(queue: ShapedQueue, options: object = {}) {
  const held = { concurrency: 5, autorun: false, lockDuration: 400_000 }
  const worker = shop.worker(queue, async () => {}, { ...held, ...options })
  return { worker, calls: callsOf(worker), departed: departuresOf(worker) }
}

/** Resolves with the reply that granted what is held now. */
async function holding(calls: Record<Asked>, count: number): Promise<Asked> {
  const all = await calls.until((seen) => seen.some(({ reply }) => reply.grants.length >= count))
  return all.find(({ reply }) => reply.grants.length >= count) as Asked
}

async function waiting(queue: ShapedQueue): Promise<string[]> {
  return (await queue.getJobs(['wait', 'prioritized'], 0, -1, true)).map(({ name }) => name)
}

/** A shape under which the first job starts and eight more are held, longer than a busy machine needs for a test. */
const WIDE = { rate: '12/min', horizonMs: 60_000 }

/** A worker that knows the shape, and with it the horizon, before it asks for the first job. */
async function started(queue: ShapedQueue, options: object = {}) {
  await queue.waitUntilReady()
  const held = holder(queue, options)
  const ran = held.worker.run()
  await held.calls.reach(1)
  return { ...held, ran }
}

test('what is held goes back in order, as if it had never been granted', async () => {
  const queue = shop.queue(WIDE)
  const { worker, calls, departed } = await started(queue)
  await queue.addBulk(jobs(8))
  await holding(calls, 5)
  expect((await queue.getActive()).length).toBeGreaterThanOrEqual(4)
  await worker.close()
  expect(departed.all.map(({ name }) => name)).toEqual(['job0'])
  expect(await waiting(queue)).toEqual(['job1', 'job2', 'job3', 'job4', 'job5', 'job6', 'job7'])
  for (const job of await queue.getWaiting()) {
    expect(job.attemptsStarted).toBe(0)
    expect(job.attemptsMade).toBe(0)
    expect(job.processedOn).toBeUndefined()
    expect(await client.hmget(queue.toKey(job.id!), 'processedOn', 'departure', 'pb')).toEqual([null, null, null])
    expect(await client.exists(queue.toKey(`${job.id}:lock`))).toBe(0)
  }
  expect(await client.llen(queue.toKey('active'))).toBe(0)
  expect(await client.scard(queue.toKey('stalled'))).toBe(0)
})

test('priorities keep their exact order when they come back', async () => {
  const queue = shop.queue(WIDE)
  const { worker, calls, departed } = await started(queue, { concurrency: 9 })
  const names = Array.from({ length: 12 }, (_, i) => `p${i}`)
  await queue.addBulk(names.map((name, i) => ({ name, data: {}, opts: { priority: i < 6 ? 7 : 8 } })))
  const before = await client.zrange(queue.toKey('prioritized'), '0', '-1', 'WITHSCORES')
  await holding(calls, 9)
  await departed.reach(1)
  await worker.close()
  const after = await client.zrange(queue.toKey('prioritized'), '0', '-1', 'WITHSCORES')
  expect(await waiting(queue)).toEqual(names.slice(1))
  // The very scores are back, so that what is added next finds its place too.
  const ids = new Set(after.filter((_, i) => i % 2 === 0))
  expect(ids.size).toBe(11)
  const scores = new Map(before.flatMap((id, i) => (i % 2 === 0 ? [[id, before[i + 1]] as const] : [])))
  for (let i = 0; i < after.length; i += 2) if (scores.has(after[i]!)) expect(after[i + 1]).toBe(scores.get(after[i]!))
})

test('the slots of what goes back are refunded: the next one granted is the first of them', async () => {
  const queue = shop.queue(WIDE)
  const first = await started(queue)
  await queue.addBulk(jobs(6))
  const { reply } = await holding(first.calls, 5)
  await first.departed.reach(1)
  await first.worker.close()
  const [next] = (await holding((await started(queue)).calls, 1)).reply.grants
  expect(next!.id).toBe(reply.grants[1]!.id)
  expect(Math.abs(next!.slotUs - reply.grants[1]!.slotUs)).toBeLessThanOrEqual(1)
})

test('slots of several grants are refunded where nobody else was granted one in between', async () => {
  const queue = shop.queue(WIDE)
  const { worker, calls, departed } = await started(queue, { concurrency: 3 })
  await queue.addBulk(jobs(6))
  // job0 ends at once; its place is taken by a job of a second grant.
  const granted = () => calls.all.flatMap(({ reply }) => reply.grants)
  await calls.until(() => granted().length >= 4)
  await departed.reach(1)
  const second = granted()[1]!
  await worker.close()
  const [next] = (await holding((await started(queue)).calls, 1)).reply.grants
  expect(next!.id).toBe(second.id)
  expect(Math.abs(next!.slotUs - second.slotUs)).toBeLessThanOrEqual(1)
})

test('slots are not refunded when another worker was granted later ones', async () => {
  const queue = shop.queue(WIDE)
  const one = await started(queue, { concurrency: 3 })
  await queue.addBulk(jobs(8))
  const mine = (await holding(one.calls, 3)).reply
  const other = holder(queue, { concurrency: 2 })
  void other.worker.run()
  const theirs = (await other.calls.until((all) => all.some(({ reply }) => reply.grants.length > 0))).find(
    ({ reply }) => reply.grants.length > 0,
  )!.reply
  await one.departed.reach(1)
  await one.worker.close()
  const lastTheirs = theirs.grants.at(-1)!.slotUs
  expect(lastTheirs).toBeGreaterThan(mine.grants.at(-1)!.slotUs)
  const meter = await queue.meter()
  // The bucket still stands behind the last slot granted to the other worker.
  expect(meter.nextDepartureAt!.getTime() * 1000).toBeGreaterThanOrEqual(lastTheirs + 4_999_000)
  // What went back is ahead of what was never granted.
  expect((await waiting(queue))[0]).toBe('job1')
})

test('a job that runs is waited for, unless the close is forced', async () => {
  const queue = shop.queue(WIDE)
  await queue.waitUntilReady()
  const [running, released] = [gate(), gate()]
  const worker = shop.worker(queue, async () => {
    running.open()
    await released.opened
    return 'done'
  })
  const job = await queue.add('slow', {})
  await running.opened
  let closed = false
  const closing = worker.close().then(() => {
    closed = true
  })
  await queue.getActiveCount()
  expect(closed).toBe(false)
  released.open()
  await closing
  expect(await job.getState()).toBe('completed')
})

test('a forced close waits for nothing, and nothing that was held starts after it', async () => {
  const queue = shop.queue({ rate: '5/s', horizonMs: 20_000 })
  await queue.waitUntilReady()
  const released = gate()
  const worker = shop.worker(queue, () => released.opened, { concurrency: 5, autorun: false })
  const errors = eventsOf<Error>('error', worker)
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  await asksUntil(calls, 'empty')
  await queue.addBulk(jobs(5))
  await holding(calls, 5)
  await departed.reach(1)
  await worker.close(true)
  const counts = await queue.getJobCounts()
  expect(departed.all.length).toBe(1)
  expect(counts.waiting! + counts.active!).toBe(5)
  // Past the slots of all of them nothing more has started here.
  const next = shop.worker(queue, async () => {}, { concurrency: 1, autorun: false })
  void next.run()
  if (counts.waiting! > 0) await eventsOf('completed', next).reach(counts.waiting!)
  expect(departed.all.length).toBe(1)
  expect(errors.all).toEqual([])
  released.open()
})

test('closing twice is closing once', async () => {
  const queue = shop.queue(WIDE)
  const { worker, calls } = await started(queue)
  await queue.addBulk(jobs(3))
  await holding(calls, 3)
  const closed = eventsOf<unknown>('closed', worker)
  await Promise.all([worker.close(), worker.close(), worker.close(true)])
  await worker.close()
  expect(closed.all.length).toBe(1)
  expect(await waiting(queue)).toEqual(['job1', 'job2'])
})

test('a close while jobs are being fetched leaves none behind', async () => {
  const proxy = await startProxy(redis.url)
  try {
    const queue = shop.queue({ rate: '1000/s', burst: 20 })
    await queue.addBulk(jobs(20))
    const worker = shop.worker(queue, async () => {}, {
      concurrency: 10,
      autorun: false,
      connection: { ...redis.connection, host: proxy.host, port: proxy.port },
    })
    await worker.waitUntilReady()
    const sent = gate()
    const exchange = worker.getBackend().exchange as Exchange
    const ask = exchange.ask.bind(exchange)
    exchange.ask = (request) => {
      const reply = ask(request)
      sent.open()
      return reply
    }
    proxy.latency(100)
    void worker.run()
    await sent.opened
    await worker.close()
    const counts = await queue.getJobCounts('wait', 'active', 'completed')
    expect(counts.active).toBe(0)
    expect(counts.wait! + counts.completed!).toBe(20)
    const order = await waiting(queue)
    expect(order).toEqual([...order].sort((a, b) => Number(a.slice(3)) - Number(b.slice(3))))
  } finally {
    await proxy.stop()
  }
})

test('what goes back is taken over at once by a worker that sleeps', async () => {
  const queue = shop.queue({ rate: '2/min', horizonMs: 45_000 })
  const leaving = await started(queue, { concurrency: 2 })
  await queue.addBulk(jobs(4))
  await holding(leaving.calls, 2)
  await leaving.departed.reach(1)
  const staying = holder(queue)
  void staying.worker.run()
  await asksUntil(staying.calls, 'closed')
  await settled(queue, client, staying.calls, leaving.calls)
  const asked = staying.calls.all.length
  await leaving.worker.close()
  await staying.calls.reach(asked + 1)
  expect(staying.calls.all.length).toBe(asked + 1)
  expect(staying.calls.all.at(-1)!.reply.grants).toHaveLength(1)
})

test('a worker that sleeps and closes leaves its slot to the next one', async () => {
  const queue = shop.queue({ rate: '1/min' })
  await queue.addBulk(jobs(5))
  const [first, second] = [holder(queue), holder(queue)]
  void first.worker.run()
  await asksUntil(first.calls, 'closed')
  void second.worker.run()
  await asksUntil(second.calls, 'closed')
  await settled(queue, client, first.calls, second.calls)
  const wakeOf = ({ calls }: typeof first) => calls.all.at(-1)!.reply.wakeUs!
  const [early, late] = wakeOf(first) < wakeOf(second) ? [first, second] : [second, first]
  // Each has a slot of its own; when the first leaves, nobody would ask for its slot.
  expect(wakeOf(late) - wakeOf(early)).toBeGreaterThan(30_000_000)
  const slot = wakeOf(early)
  await early.worker.close()
  await late.calls.until((all) => Math.abs(all.at(-1)!.reply.wakeUs! - slot) < 1_000_000)
  expect(await client.zcard(queue.toKey('meta:sleepers'))).toBe(1)
})

test('a forced close does not wait for a Redis that is gone', async () => {
  const proxy = await startProxy(redis.url)
  const queue = shop.queue(WIDE)
  const connection = { ...redis.connection, host: proxy.host, port: proxy.port }
  const { worker, calls, departed, ran } = await started(queue, { connection })
  worker.on('error', () => {})
  await queue.addBulk(jobs(5))
  await holding(calls, 5)
  await proxy.refuse()
  await worker.close(true)
  await ran
  await proxy.stop()
  // What it held is found by the stalled check of another worker, as BullMQ's running jobs are.
  expect(departed.all.length).toBe(1)
  expect(await queue.getActiveCount()).toBeGreaterThanOrEqual(4)
})

test.each([
  ['close', 'reconnecting'],
  ['pause', 'reconnecting'],
  // The last nodes of a cluster end after it has begun to wait.
  ['close', 'close'],
] as const)('a %s does not wait for a blocking connection that waits to reconnect (%s)', async (call, status) => {
  const queue = shop.queue({ rate: '100/s' })
  const worker = shop.worker(queue, async () => {})
  await worker.waitUntilReady()
  const { blockingConnection } = worker.backend as unknown as { blockingConnection: { client: Promise<Redis> } }
  const client = await blockingConnection.client
  client.options.retryStrategy = () => 3_600_000
  const waits = once(client, 'reconnecting')
  client.stream.destroy()
  await waits
  ;(client as unknown as { setStatus(status: string): void }).setStatus(status)
  await worker[call]()
  expect(client.status).toBe(call === 'close' ? 'end' : 'ready')
})
