import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import {
  callsOf,
  departuresOf,
  eventsOf,
  excess,
  gate,
  jobs,
  rounding,
  type Seen,
  Workshop,
} from '../worker/support.ts'
import { expectBound } from './support/bounds.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** None was before its slot, and no job left twice. */
function expectSound(departures: readonly Seen[]): void {
  expect(new Set(departures.map(({ id }) => id)).size).toBe(departures.length)
  expect(departures.filter(({ departedAtUs, departureTimeUs }) => departedAtUs < departureTimeUs)).toEqual([])
}

/** What left, in units, in the order of the slots. */
function leftOf(departures: readonly Seen[], units = 1) {
  return departures
    .map(({ departureTimeUs }) => ({ slotUs: departureTimeUs, units }))
    .sort((one, other) => one.slotUs - other.slotUs)
}

test('without a rate, limits alone pace two workers', async () => {
  const tokens: QueueLimit = { name: 'tokens', algorithm: 'token-bucket', rate: '800/s', burst: 90, unit: 'tokens' }
  const queue = shop.queue({ limits: [tokens] })
  await queue.addBulk(jobs(14, { costs: { tokens: 40 } }))
  const departed = departuresOf(...[1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 5 })))
  const departures = await departed.reach(14)
  expectSound(departures)
  expectBound(tokens, leftOf(departures, 40))
})

test('with a rate, a sliding log and a token bucket, each holds by itself', async () => {
  const log: QueueLimit = { name: 'log', algorithm: 'sliding-window-log', rate: { limit: 12, period: 300 } }
  const bytes: QueueLimit = { name: 'bytes', algorithm: 'token-bucket', rate: '500/s', burst: 50, unit: 'bytes' }
  const queue = shop.queue({ rate: '100/s', burst: 8, limits: [log, bytes] })
  await queue.addBulk(jobs(40, { costs: { bytes: 10 } }))
  const departed = departuresOf(...[1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 6 })))
  const departures = await departed.reach(40)
  expectSound(departures)
  const slots = departures.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, 10_000, 8)).toBeLessThanOrEqual(rounding(10_000))
  expectBound(log, leftOf(departures))
  expectBound(bytes, leftOf(departures, 10))
})

test('a fixed window lets its limit through at once, and no more before the next', async () => {
  const window: QueueLimit = { name: 'window', algorithm: 'fixed-window', rate: { limit: 5, period: 200 } }
  const queue = shop.queue({ limits: [window] })
  await queue.addBulk(jobs(22))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 30 }))
  const departures = await departed.reach(22)
  expectSound(departures)
  expectBound(window, leftOf(departures))
  // Under a backlog windows are used up: five windows begin, of which the first may have been left early.
  const windows = new Set(departures.map(({ departureTimeUs }) => Math.floor(departureTimeUs / 200_000)))
  expect(windows.size).toBeGreaterThanOrEqual(5)
})

test('jobs that end together start as many as the limits let: none is lost, and the bound holds', async () => {
  const log: QueueLimit = { name: 'log', algorithm: 'sliding-window-log', rate: { limit: 60, period: 250 } }
  const spaced: QueueLimit = { name: 'spaced', rate: '2000/s', burst: 30 }
  const queue = shop.queue({ limits: [log, spaced] })
  await queue.addBulk(jobs(240))
  const worker = shop.worker(queue, () => nextTurn(), { concurrency: 20 })
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  await completed.reach(240)
  expect(departed.all).toHaveLength(240)
  expectSound(departed.all)
  expect(new Set(completed.all.map(({ id }) => id)).size).toBe(240)
  expectBound(log, leftOf(departed.all))
  expectBound(spaced, leftOf(departed.all))
  expect(await queue.getJobCounts('waiting', 'active', 'failed')).toEqual({ waiting: 0, active: 0, failed: 0 })
})

test.each<[string, QueueLimit]>([
  ['that has to wait for it', { name: 'limit', rate: '20/s' }],
  ['that may leave as soon as another ends', { name: 'limit', rate: '10000/s', burst: 100 }],
])('a job that is late for its slot goes back and departs at a new one: %s', async (_name, limit) => {
  const queue = shop.queue({ limits: [limit], maxLatenessMs: 50, horizonMs: 200 })
  await queue.waitUntilReady()
  const worker = shop.worker(
    queue,
    async ({ data }) => {
      const until = performance.now() + (data.i === 0 ? 180 : 0)
      while (performance.now() < until);
    },
    { concurrency: 12 },
  )
  const [calls, departed, late, completed] = [
    callsOf(worker),
    departuresOf(worker),
    eventsOf('late', worker),
    eventsOf('completed', worker),
  ]
  // It knows the horizon once it has asked.
  await calls.reach(1)
  await queue.addBulk(jobs(12))
  await completed.reach(12)
  expect(late.all.length).toBeGreaterThan(0)
  expect(departed.all).toHaveLength(12)
  expectSound(departed.all)
  expectBound(limit, leftOf(departed.all))
  expect(Math.max(...departed.all.map(({ latenessUs }) => latenessUs))).toBeLessThanOrEqual(51_000)
})

test('a worker that closes gives back what it holds, in order', async () => {
  const limit: QueueLimit = { name: 'limit', rate: '20/s' }
  const queue = shop.queue({ limits: [limit], horizonMs: 2000 })
  await queue.waitUntilReady()
  const first = gate()
  const worker = shop.worker(queue, () => first.opened, { concurrency: 8, autorun: false })
  const [calls, before] = [callsOf(worker), departuresOf(worker)]
  void worker.run()
  // It knows the horizon once it has asked.
  await calls.reach(1)
  const added = await queue.addBulk(jobs(8))
  await calls.until((all) => all.flatMap(({ reply }) => reply.grants).length === 8)
  first.open()
  await worker.close()
  const waiting = await queue.getWaiting()
  expect(waiting.length).toBe(8 - before.all.length)
  expect(waiting.length).toBeGreaterThan(0)
  expect(await queue.getActiveCount()).toBe(0)

  // In the list, not by their starts: a job that is late for its slot goes back once more.
  const left = waiting.map(({ id }) => id as string)
  expect(left).toEqual(added.slice(before.all.length).map(({ id }) => id))

  const after = departuresOf(shop.worker(queue, async () => {}, { concurrency: 8 }))
  await after.reach(left.length)
  expect(after.all.map(({ id }) => id).toSorted()).toEqual(left.toSorted())
  expectBound(limit, leftOf([...before.all, ...after.all]))
})
