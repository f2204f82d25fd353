import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { useProcesses } from '../support/processes.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const processes = useProcesses()
const DRAIN_DELAY_S = 0.5
const script = new URL('./programs/closes-without-redis.ts', import.meta.url)

test.each(['before it was ever reached', 'after a while'])(
  'a process whose Redis is gone (%s) ends when its worker is closed by force',
  async (when) => {
    const proxy = await startProxy(redis.url)
    const connection = { ...redis.connection, host: proxy.host, port: proxy.port }
    if (when.startsWith('before')) await proxy.refuse()
    type Message = { type: 'ready' } | { type: 'closed' }
    const program = processes.fork<Message>(script, {
      args: ['gone', redis.prefix, JSON.stringify(connection)],
    })
    await program.waitFor('ready')
    if (when.startsWith('after')) {
      // Client, blocking client and subscriber.
      while (proxy.connections < 3) await new Promise((resolve) => setImmediate(resolve))
      await proxy.refuse()
    }
    program.send('close')
    await program.waitFor('closed')
    // A connection that goes on trying would keep the process alive.
    expect(await program.exited).toEqual({ code: 0, signal: null })
    await proxy.stop()
  },
)

// 0: before it runs. 1: while its connections open, which BullMQ's close would wait for.
test.each((['refuses', 'is silent'] as const).flatMap((redisThat) => [0, 1, 50].map((ms) => [redisThat, ms] as const)))(
  'a worker that never reached Redis, which %s, closes by itself after %i ms',
  async (redisThat, ms) => {
    const proxy = await startProxy(redis.url)
    const connection = { ...redis.connection, host: proxy.host, port: proxy.port, disconnectTimeout: 20 }
    if (redisThat === 'refuses') await proxy.refuse()
    else proxy.blackhole()
    const worker = new ShapedWorker('never', async () => {}, { connection, prefix: redis.prefix })
    const errors = eventsOf('error', worker)
    if (ms > 0) await sleep(ms)
    await worker.close()
    for (const { message } of errors.all as unknown as Error[]) expect(message).toMatch('ECONNREFUSED')
    await proxy.stop()
  },
)

test('a connection that ioredis opens no more is told to who waits for it', async () => {
  const proxy = await startProxy(redis.url)
  await proxy.refuse()
  const { host, port } = proxy
  const connection = { ...redis.connection, host, port, retryStrategy: () => null }
  const queue = new ShapedQueue('never', { connection, prefix: redis.prefix })
  queue.on('error', () => {})
  await expect(queue.waitUntilReady()).rejects.toThrow('ECONNREFUSED')
  await queue.close()
  await proxy.stop()
})

test('a close whose connections are cut ends although the end of a job could not be stored', async () => {
  const proxy = await startProxy(redis.url)
  const queue = shop.queue({ rate: '100/s' })
  await queue.add('job', {})
  const connection = { ...redis.connection, host: proxy.host, port: proxy.port, disconnectTimeout: 20 }
  const { open, opened } = gate()
  const worker = shop.worker(queue, () => opened, { connection })
  worker.on('error', () => {})
  await eventsOf('active', worker).reach(1)
  await proxy.refuse()
  const closed = worker.close()
  open()
  // What a close does by itself after CLOSE_LIMIT_MS: test/worker/closing.test.ts.
  worker.backend.cut()
  await closed
  // It runs again once its lock is over.
  expect(await queue.getActiveCount()).toBe(1)
  await proxy.stop()
})

test('a worker on a client of the program that never connected closes, and fetches nothing if it connects later', async () => {
  const proxy = await startProxy(redis.url)
  await proxy.refuse()
  const queue = shop.queue({ rate: '100/s' })
  await queue.addBulk(jobs(3))
  const { host, port } = proxy
  const client = new Redis({ ...redis.connection, host, port, maxRetriesPerRequest: null, retryStrategy: () => 10 })
  client.on('error', () => {})
  const worker = shop.worker(queue, async () => {}, { connection: client as never })
  worker.on('error', () => {})
  await new Promise<void>((resolve) => client.once('reconnecting', () => resolve()))
  await worker.close()
  await proxy.resume()
  await (worker as unknown as { readonly mainLoopRunning: Promise<void> }).mainLoopRunning
  expect(client.status).toBe('ready')
  expect(await queue.getJobCountByTypes('active', 'completed')).toBe(0)
  client.disconnect()
  await proxy.stop()
})

test('a worker goes on by itself when Redis comes back', async () => {
  const proxy = await startProxy(redis.url)
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const connection = { ...redis.connection, host: proxy.host, port: proxy.port }
  const worker = shop.worker(queue, async () => {}, { connection, concurrency: 3 })
  worker.on('error', () => {})
  const completed = eventsOf('completed', worker)
  await queue.add('before', {})
  await completed.reach(1)
  await proxy.refuse()
  await queue.add('meanwhile', {})
  await proxy.resume()
  await completed.reach(2)
  await worker.close()
  await proxy.stop()
})

test('a connection that is closed for a while is no error of the worker, as in BullMQ', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.waitUntilReady()
  const connection = redis.client()
  const worker = shop.worker(queue, async () => {}, { connection })
  const errors = eventsOf<Error>('error', worker)
  const completed = eventsOf('completed', worker)
  await queue.add('before', {})
  await completed.reach(1)
  for (const name of ['first', 'second']) {
    const ended = once(connection, 'end')
    connection.disconnect()
    await Promise.all([ended, queue.add(name, {})])
    // Unless the worker has connected it again.
    if (connection.status === 'end') await connection.connect()
  }
  await completed.reach(3)
  expect(errors.all).toEqual([])
})

// Fault table, row 10; with the usual drainDelay: test/slow/outages.test.ts.
test('workers resume after an outage that is longer than they wait for a job', async () => {
  const proxy = await startProxy(redis.url)
  onTestFinished(async () => {
    await shop.close()
    await proxy.stop()
  })
  const queue = shop.queue({ rate: '100/s' })
  await queue.waitUntilReady()
  const connection = { ...redis.connection, host: proxy.host, port: proxy.port, retryStrategy: () => 20 }
  const begun = new Set<number>()
  const both = gate()
  const ends = [1, 2].map((number) => {
    const process = async ({ name }: { name: string }) => {
      if (name === 'before') return
      // However late one of them is, the other leaves it a job.
      if (begun.add(number).size === 2) both.open()
      await both.opened
    }
    const worker = shop.worker(queue, process, { connection, drainDelay: DRAIN_DELAY_S })
    worker.on('error', () => {})
    return eventsOf('completed', worker)
  })
  const count = () => ends.reduce((sum, { all }) => sum + all.length, 0)
  await queue.add('before', {})
  await expect.poll(count).toBe(1)
  await proxy.refuse()
  await sleep((DRAIN_DELAY_S + 1.5) * 1000)
  await queue.addBulk(jobs(40))
  await proxy.resume()
  await expect.poll(count).toBe(41)
  expect(ends.filter(({ all }) => all.length === 0)).toEqual([])
})
