import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { QueueUnavailableError, type ShapedWorker } from '../../src/index.ts'
import { LOOK_MS } from '../../src/redis/connection-watch.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from '../worker/support.ts'
import { Fleet } from './support/fleet.ts'
import { OwnCluster } from './support/own-cluster.ts'

/** What docs/high-availability.md promises: 15 s, less a second to open the next connection. */
const MOST_LOOKS = Math.floor(14_000 / LOOK_MS)
/** So that what was sent on a live connection is answered between two looks. */
const BETWEEN_LOOKS_MS = 30

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Lets the library look at its connections until something has happened. @returns how often it looked */
async function lookUntil(happened: Promise<unknown>): Promise<number> {
  let over = false
  const end = () => {
    over = true
  }
  happened.then(end, end)
  for (let looks = 0; ; looks++) {
    if (over || looks === 100) return looks
    vi.advanceTimersByTime(LOOK_MS)
    await sleep(BETWEEN_LOOKS_MS)
  }
}

async function proxied(): Promise<{ proxy: RedisProxy; connection: Record<string, unknown> }> {
  const proxy = await startProxy(redis.url)
  onTestFinished(async () => {
    await shop.close()
    await proxy.stop()
  })
  const { host, port } = proxy
  const quick = { retryStrategy: () => 20, disconnectTimeout: 20 }
  return { proxy, connection: { ...redis.connection, host, port, ...quick } }
}

async function clientOf(user: Pick<ShapedWorker, 'getBackend'>): Promise<Redis> {
  return (await user.getBackend().client) as unknown as Redis
}

/** Resolves once its main connection is closed, by whichever side. */
async function closing(user: Pick<ShapedWorker, 'getBackend'>): Promise<{ readonly closed: Promise<void> }> {
  const client = await clientOf(user)
  return { closed: new Promise((resolve) => client.once('close', () => resolve())) }
}

// Fault table, row 11.
describe.each([[undefined], ['requests'], ['replies']] as const)('connections fall silent (%s)', (direction) => {
  test('a worker that runs goes on, and each job runs once', async () => {
    const { proxy, connection } = await proxied()
    const queue = shop.queue({ rate: '100/s' })
    const ran: string[] = []
    await queue.addBulk(jobs(60))
    const worker = shop.worker(queue, async ({ id }) => void ran.push(id as string), { connection, concurrency: 10 })
    worker.on('error', () => {})
    const completed = eventsOf('completed', worker)
    await completed.reach(20)
    const { closed } = await closing(worker)
    proxy.silence(direction)
    const looks = await lookUntil(closed)
    process.stdout.write(`silent (${direction ?? 'both ways'}): closed after ${(looks * LOOK_MS) / 1000} s\n`)
    expect(looks).toBeLessThanOrEqual(MOST_LOOKS)
    await completed.reach(60)
    expect(ran).toHaveLength(60)
    expect(new Set(ran).size).toBe(60)
  })
})

test('a lone worker that sleeps behind a silent subscriber hears of what it missed', async () => {
  const { proxy, connection } = await proxied()
  const queue = shop.queue({ rate: '1/h' })
  await queue.addBulk(jobs(3))
  const worker = shop.worker(queue, async () => {}, { connection, concurrency: 1 })
  worker.on('error', () => {})
  const completed = eventsOf('completed', worker)
  await completed.reach(1)
  await vi.waitFor(async () => expect(await redis.client().zcard(queue.toKey('meta:sleepers'))).toBe(1), 60_000)
  proxy.silence()
  await queue.setShape({ rate: '100/s' }, { by: 'test', reason: 'missed by the worker' })
  expect(await lookUntil(completed.reach(3))).toBeLessThan(100)
})

test('a worker that waits for a job finds it', async () => {
  const { proxy, connection } = await proxied()
  const queue = shop.queue({ rate: '100/s' })
  const worker = shop.worker(queue, async () => {}, { connection, drainDelay: 0.2 })
  worker.on('error', () => {})
  const completed = eventsOf('completed', worker)
  await worker.waitUntilReady()
  await vi.waitFor(() => expect(proxy.connections).toBe(3), 60_000)
  proxy.silence()
  await queue.add('job', {})
  const { closed } = await closing(worker)
  expect(await lookUntil(closed)).toBeLessThanOrEqual(MOST_LOOKS)
  await completed.reach(1)
})

test('a worker whose new connection says nothing from the start opens another', async () => {
  const { proxy, connection } = await proxied()
  const queue = shop.queue({ rate: '100/s' })
  await queue.add('job', {})
  proxy.blackhole()
  const worker = shop.worker(queue, async () => {}, { connection })
  worker.on('error', () => {})
  await vi.waitFor(() => expect(proxy.connections).toBe(2), 60_000)
  proxy.silence()
  proxy.restore()
  const completed = eventsOf('completed', worker)
  await lookUntil(completed.reach(1))
  expect(completed.all).toHaveLength(1)
})

test.each(['idle', 'with a job that has just ended'])('a worker closes in time (%s)', async (how) => {
  const { proxy, connection } = await proxied()
  const queue = shop.queue({ rate: '100/s' })
  let end = () => {}
  const running = new Promise<void>((resolve) => {
    end = resolve
  })
  const worker = shop.worker(queue, () => running, { connection, drainDelay: 0.2 })
  worker.on('error', () => {})
  await worker.waitUntilReady()
  await vi.waitFor(() => expect(proxy.connections).toBe(3), 60_000)
  if (how !== 'idle') {
    const active = eventsOf('active', worker)
    await queue.add('job', {})
    await active.reach(1)
  }
  proxy.silence()
  end()
  expect(await lookUntil(worker.close())).toBeLessThan(2 * MOST_LOOKS)
  expect(await queue.getJobCountByTypes('active')).toBe(0)
})

test.each(['options', 'a client of the program'])('a producer can add again (%s)', async (kind) => {
  const { proxy, connection } = await proxied()
  const given = kind === 'options' ? connection : new Redis({ ...connection, maxRetriesPerRequest: null })
  if (given instanceof Redis) onTestFinished(() => given.disconnect())
  const queue = shop.queue({ capacity: 10 }, { connection: given as never, admitTimeoutMs: 1000 })
  queue.on('error', () => {})
  await vi.waitFor(() => queue.add('job', {}, { jobId: 'first' }), 60_000)
  proxy.silence()
  const { closed } = await closing(queue)
  const refused = queue.add('job', {}).catch((error: unknown) => error)
  expect(await refused).toBeInstanceOf(QueueUnavailableError)
  expect(await lookUntil(closed)).toBeLessThanOrEqual(MOST_LOOKS)
  const client = await clientOf(queue)
  await vi.waitFor(() => expect(client.status).toBe('ready'), 60_000)
  await vi.waitFor(() => queue.add('job', {}), 60_000)
})

test('on a cluster whose connections fall silent the worker goes on, each job runs once, and a producer can add again', async () => {
  const cluster = await OwnCluster.start()
  const { connection, proxies } = await cluster.connectThroughProxies()
  const fleet = new Fleet()
  const prefix = '{b}'
  const queue = fleet.queue('mail', { connection: cluster.connect(), prefix, shape: { rate: '100/s' } })
  await queue.addBulk(jobs(60))
  const producer = fleet.queue('mail', { connection, prefix, admitTimeoutMs: 500 })
  // The first call of a process may take longer than that.
  await vi.waitFor(() => producer.add('job', {}, { jobId: 'first' }), 60_000)
  fleet.worker('mail', { connection, prefix, concurrency: 10 })
  await fleet.until(() => fleet.completed.length >= 20)
  for (const proxy of proxies) proxy.silence()
  const refused = await producer.add('job', {}).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(QueueUnavailableError)
  const replaced = new Promise<void>((resolve) => {
    connection.on('node error', (error: Error) => error.message.includes('silent') && resolve())
  })
  expect(await lookUntil(replaced)).toBeLessThanOrEqual(MOST_LOOKS)
  const completed = fleet.completed.length
  await lookUntil(fleet.until(() => fleet.completed.length > completed))
  await vi.waitFor(() => producer.add('job', {}), 60_000)
  await fleet.until(() => fleet.completed.length >= 62)
  expect(new Set(fleet.completed).size).toBe(fleet.completed.length)
})
