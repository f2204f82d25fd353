import { performance } from 'node:perf_hooks'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { DepartureRequest, Exchange } from '../../src/departure/exchange.ts'
import { type ShapedWorker, UncertainClockError } from '../../src/index.ts'
import type { ShapeStore } from '../../src/shape/store.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const ROUND_TRIP_MS = 200
/** What a busy machine may add between a start and the note of it. */
const JITTER_MS = 100

/** What a worker asks for from now on. */
function requestsOf(worker: ShapedWorker): DepartureRequest[] {
  const exchange = worker.getBackend().exchange as Exchange
  const asked: DepartureRequest[] = []
  const ask = exchange.ask.bind(exchange)
  exchange.ask = (request) => {
    asked.push(request)
    return ask(request)
  }
  return asked
}

async function farAway(): Promise<{ proxy: RedisProxy; connection: object }> {
  const proxy = await startProxy(redis.url)
  onTestFinished(async () => {
    await shop.close()
    await proxy.stop()
  })
  proxy.latency(ROUND_TRIP_MS)
  return { proxy, connection: { ...redis.connection, host: proxy.host, port: proxy.port } }
}

/** Redis's clock less the monotonic one of this process, ms, by the fastest of some calls. */
async function distanceMs(): Promise<number> {
  const client = redis.client()
  const found: { rttMs: number; distance: number }[] = []
  for (let i = 0; i < 20; i++) {
    const sentMs = performance.now()
    const [seconds, micros] = await client.time()
    const rttMs = performance.now() - sentMs
    found.push({ rttMs, distance: Number(seconds) * 1000 + Number(micros) / 1000 - sentMs - rttMs / 2 })
  }
  return found.toSorted((one, other) => one.rttMs - other.rttMs)[0]!.distance
}

test('a worker far away starts within its lateness and its error, which it tells', async () => {
  const { connection } = await farAway()
  const queue = shop.queue({ rate: '50/s' })
  await queue.addBulk(jobs(30))
  const distance = await distanceMs()
  const worker = shop.worker(queue, async () => {}, { connection, concurrency: 30 })
  const departed = departuresOf(worker)
  const trueLatenessMs: number[] = []
  worker.on('departed', (_job, { departureTimeUs }) =>
    trueLatenessMs.push(performance.now() + distance - departureTimeUs / 1000),
  )
  await departed.reach(30)
  for (const [i, { latenessUs, clockErrorUs }] of departed.all.entries()) {
    // A timer of the delay may fire up to 1 ms early.
    expect(clockErrorUs).toBeGreaterThan((ROUND_TRIP_MS - 2) * 1000)
    expect(latenessUs).toBeLessThanOrEqual(50_000)
    expect(trueLatenessMs[i]).toBeGreaterThan(-1)
    expect(trueLatenessMs[i]).toBeLessThanOrEqual((latenessUs + clockErrorUs) / 1000 + JITTER_MS)
  }
})

test('where the shape says how late a job may be, a worker that can not know it leaves the jobs to others', async () => {
  const { connection } = await farAway()
  const queue = shop.queue({ rate: '50/s', maxLatenessMs: 100 })
  await queue.waitUntilReady()
  const far = shop.worker(queue, async () => {}, { connection, concurrency: 30 })
  const asked = requestsOf(far)
  const errors = eventsOf('error', far)
  const late = eventsOf('late', far)
  const started = departuresOf(far)
  await queue.addBulk(jobs(40))
  const [error] = await errors.reach(1)
  expect(error).toBeInstanceOf(UncertainClockError)
  expect(error).toMatchObject({ maxLatenessMs: 100 })
  // From then on it tries with one job that could start at once; what it held goes back, with its slots.
  expect(late.all).toHaveLength(3)
  const before = asked.length
  await vi.waitFor(() => expect(asked.length).toBeGreaterThanOrEqual(before + 2), 60_000)
  for (const request of asked.slice(before)) expect(request).toMatchObject({ jobs: 1, horizonUs: 0 })
  expect(late.all.length).toBeLessThanOrEqual(3 + asked.length - before)
  const near = shop.worker(queue, async () => {}, { concurrency: 30 })
  const done = eventsOf('completed', near)
  await done.reach(40)
  expect(started.all).toEqual([])
})

test('the first call that tells the time is sent over an open connection, with the shape known', async () => {
  const { connection } = await farAway()
  const queue = shop.queue({ rate: '50/s' })
  await queue.add('job', {})
  const worker = shop.worker(queue, async () => {}, { connection, autorun: false })
  const departed = departuresOf(worker)
  const { store, exchange } = worker.getBackend() as { store: ShapeStore; exchange: Exchange }
  const ask = exchange.ask.bind(exchange)
  const known: boolean[] = []
  exchange.ask = (request) => {
    known.push(store.memory.stored !== undefined)
    return ask(request)
  }
  void worker.run()
  await departed.reach(1)
  expect(known[0]).toBe(true)
})
