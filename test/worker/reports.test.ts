import { expect, onTestFinished, test, vi } from 'vitest'
import { HeldClockMemory } from '../../src/reports/held-clocks.ts'
import { StartCounts } from '../../src/reports/start-counts.ts'
import { WorkerReports } from '../../src/reports/worker-reports.ts'
import { StoredShape } from '../../src/shape/stored.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

test('a worker tells of itself when it comes, of its starts, and that it is gone', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 5 })
  await queue.waitUntilReady()
  const base = queue.toKey('')
  const worker = shop.worker(queue, async () => {}, { concurrency: 7 })
  const departed = departuresOf(worker)
  await expect.poll(() => client.hlen(`${base}meta:workers`)).toBe(1)
  const row = JSON.parse((await client.hget(`${base}meta:workers`, worker.id)) as string)
  expect(row).toMatchObject({ pid: process.pid, concurrency: 7, started: 0, state: 'running' })
  expect(Math.abs(row.seen - Date.now())).toBeLessThan(60_000)
  await queue.addBulk(jobs(10))
  await departed.reach(10)
  await worker.close()
  expect(await client.hlen(`${base}meta:workers`)).toBe(0)
  const starts = await client.hgetall(`${base}meta:starts`)
  expect(starts).toMatchObject({ count: '10', waits: '10' })
  expect(starts).not.toHaveProperty('early')
  const counted = Object.entries(starts).filter(([field]) => field.startsWith('l:'))
  expect(counted.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(10)
  for (const seconds of [2, 15, 120]) {
    const samples = await client.lrange(`${base}meta:series:${seconds}`, 0, -1)
    expect(samples.length).toBeGreaterThan(0)
    expect(JSON.parse(samples[0] as string)).toHaveLength(23)
  }
})

test('one that is told not to writes nothing', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 5 })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {}, { report: false })
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(2))
  await departed.reach(2)
  await worker.close()
  expect(
    await client.exists(queue.toKey('meta:starts'), queue.toKey('meta:workers'), queue.toKey('meta:series:2')),
  ).toBe(0)
})

test('a worker of a queue without a shape keeps nothing of its starts', async () => {
  const counted = vi.spyOn(StartCounts.prototype, 'add')
  const queue = shop.queue()
  const worker = shop.worker(queue, async () => {}, { allowUnshaped: true })
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(3))
  await departed.reach(3)
  expect(counted).not.toHaveBeenCalled()
  vi.restoreAllMocks()
})

test('a report that is on its way is no error of a worker that is closed by force', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const errors: string[] = []
  for (let i = 0; i < 8; i++) {
    const worker = shop.worker(queue, async () => {})
    worker.on('error', ({ message }) => errors.push(message))
    await worker.waitUntilReady()
    await worker.close(true)
  }
  expect(errors).toEqual([])
})

test.each([
  ['TRYAGAIN Multiple keys request during rehashing of slot', []],
  ['ERR Script attempted to access a non local key in a cluster node script: 095b, on @user_script:660.', []],
  ['ERR value is not an integer', ['ERR value is not an integer']],
])('a report that fails with %j is an error of the worker unless the failure passes', async (message, expected) => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {})
  const errors: string[] = []
  worker.on('error', (error) => errors.push(error.message))
  const { store } = worker.backend
  const run = store.run.bind(store)
  const failed = new Promise<void>((resolve) => {
    vi.spyOn(store, 'run').mockImplementation(async (script, args) => {
      if (script !== 'report') return run(script, args)
      setImmediate(resolve)
      throw new Error(message)
    })
  })
  await failed
  expect(errors).toEqual(expected)
  vi.restoreAllMocks()
})

function split(clocks: HeldClockMemory, fromUs: number, toUs: number): number[] {
  const parts = [0, 0, 0, 0, 0]
  clocks.addSplit(parts, fromUs, toUs)
  return parts
}

test('a wait is divided by what held the queue meanwhile; what nothing tells of was for want of a worker', () => {
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 1000, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 2000, heldUs: [500, 0, 0, 200, 300] })
  clocks.add({ atUs: 3000, heldUs: [500, 1000, 0, 200, 300] })
  expect(split(clocks, 1000, 3000)).toEqual([500, 1000, 0, 200, 300])
  expect(split(clocks, 1500, 2500)).toEqual([250, 500, 0, 100, 150])
  expect(split(clocks, 0, 1000)).toEqual([0, 0, 0, 0, 1000])
  expect(split(clocks, 2500, 9000)).toEqual([0, 500, 0, 0, 6000])
  expect(split(new HeldClockMemory(), 5, 9)).toEqual([0, 0, 0, 0, 4])
})

test('before the first clocks a queue had no other holds than theirs, and they ended then', () => {
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 5000, heldUs: [1000, 2000, 0, 0, 0] })
  expect(split(clocks, 1000, 5000)).toEqual([1000, 2000, 0, 0, 1000])
  clocks.add({ atUs: 9000, heldUs: [1000, 3000, 0, 0, 0] })
  expect(split(clocks, 5000, 8000)).toEqual([0, 0, 0, 0, 3000])
})

test('a clock of Redis that went back begins anew', () => {
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 9000, heldUs: [9000, 0, 0, 0, 0] })
  clocks.add({ atUs: 1000, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 2000, heldUs: [1000, 0, 0, 0, 0] })
  expect(split(clocks, 1000, 2000)).toEqual([1000, 0, 0, 0, 0])
})

test('starts are counted by how late they were, and waits by their length', () => {
  const counts = new StartCounts()
  counts.add(10_000_000, 400, 0)
  counts.add(10_000_000, 5000, 9_950_000)
  counts.add(10_000_000, 1_000_000, undefined)
  counts.add(10_000_000, -2, undefined)
  expect(counts.fields()).toEqual({
    ...{ count: 4, early: 1, latenessUs: 1_005_400 },
    ...{ 'l:500': 2, 'l:5000': 1, 'l:inf': 1 },
  })
  expect(counts.latenessMaxUs).toBe(1_000_000)
  const clocks = new HeldClockMemory()
  clocks.add({ atUs: 0, heldUs: [0, 0, 0, 0, 0] })
  clocks.add({ atUs: 10_000_000, heldUs: [10_000_000, 0, 0, 0, 0] })
  const waits = { waits: 2, waitMs: 10_050, 'w:10000': 1, 'w:100': 1, 'waited:rate': 10_050 }
  expect(counts.waitFields(clocks)).toEqual(waits)
})

/** A worker with `workers` reporting ones on its queue, whose clock is moved by hand. */
async function reporting(workers: number) {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const activity = { running: 0, held: [] as string[], roundTrip: { ms: 1 }, clockErrorUs: 1 }
  const run = vi.fn(async () => ['1', ['0', '0', '0', '0', '0'], workers])
  const store = {
    base: 'b:q:',
    memory: { stored: new StoredShape({ born: '1', rev: '1' }) },
    prepared: () => undefined,
    run,
  }
  const worker = {
    ...{ id: 'w', opts: {}, concurrency: 1, closing: undefined, isPaused: () => false, emit: () => true, on: () => {} },
    backend: { store, deadLetter: undefined, client: Promise.resolve({ status: 'ready', lrange: async () => [] }) },
  }
  const bypassing = { clients: undefined, clientId: undefined, found: () => {} }
  const reports = new WorkerReports(worker, activity, { overloaded: false }, bypassing)
  void reports.during(new Promise(() => {}))
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  await turn()
  const start = (count: number) => {
    const departure = { departureTimeUs: 1, departedAtUs: 1, latenessUs: 0, clockErrorUs: 0 }
    for (let i = 0; i < count; i++) reports.departed({ timestamp: 0, opts: {}, attemptsStarted: 1 }, departure)
  }
  /** Seconds until the next report, of `limit` at most. */
  const nextAfterS = async (limit: number) => {
    const before = run.mock.calls.length
    for (let seconds = 2; seconds <= limit; seconds += 2) {
      await vi.advanceTimersByTimeAsync(2000)
      await turn()
      if (run.mock.calls.length > before) return seconds
    }
    return undefined
  }
  return { activity, start, nextAfterS, run }
}

test.each([
  [1, 1, 2],
  [3, 1, 6],
  [30, 10, 10],
  [20, 1, 40],
  [60, 9, 60],
])('all workers of a queue together report about each 2 s: of %i, one with %i starts after %i s', async (...row) => {
  const [workers, starts, seconds] = row
  const { start, nextAfterS } = await reporting(workers)
  start(starts)
  expect(await nextAfterS(90)).toBe(seconds)
})

test.each([
  [1, 2],
  [3, 6],
  [40, 60],
])('with %i workers, a start is in a report, and its wait in one more %i s later', async (...row) => {
  const [workers, seconds] = row
  const { start, nextAfterS, run } = await reporting(workers)
  start(1)
  const waits = () => JSON.parse((run.mock.lastCall as unknown as [string, string[]])[1][2] as string).waits
  expect([await nextAfterS(90), waits()]).toEqual([seconds, undefined])
  expect([await nextAfterS(90), waits()]).toEqual([seconds, 1])
  expect(await nextAfterS(90)).toBeUndefined()
})

test('a worker whose job runs reports each 10 s, and once it no longer runs', async () => {
  const { activity, nextAfterS } = await reporting(40)
  activity.running = 1
  expect([await nextAfterS(90), await nextAfterS(90)]).toEqual([10, 10])
  activity.running = 0
  expect([await nextAfterS(90), await nextAfterS(90)]).toEqual([10, undefined])
})
