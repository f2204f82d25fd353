import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { afterEach, vi } from 'vitest'
import { InvalidInputError, QueueUnavailableError, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { ShardedQueue } from '../../src/sharding/index.ts'
import { findFreePort } from '../../workers/services/free-port.ts'
import { expect, PerTest, test, useConcurrentTests } from '../support/concurrent.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { many, rejection } from './support.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const ADMIT_TIMEOUT_MS = 1000
const shape = { rate: '50/s', capacity: 100 }

const opened = new PerTest<{ close(): Promise<unknown> }>()
const proxies = new PerTest<RedisProxy>()

async function proxied(): Promise<RedisProxy> {
  const proxy = await startProxy(redis.url)
  proxies.list.push(proxy)
  return proxy
}

afterEach(async () => {
  for (const proxy of proxies.list) proxy.restore()
  await Promise.all(opened.list.map((thing) => thing.close()))
  for (const proxy of proxies.list) await proxy.stop()
})

function keep<T extends { close(): Promise<unknown>; on(event: 'error', listener: () => void): unknown }>(thing: T): T {
  // A connection that is gone is what these tests are about.
  thing.on('error', () => {})
  opened.list.push(thing)
  return thing
}

const connectionTo = (port: number) => ({ ...redis.connection, host: '127.0.0.1', port, retryStrategy: () => 20 })

function queueAt(port: number, name: string, admitTimeoutMs = ADMIT_TIMEOUT_MS): ShapedQueue {
  const { prefix } = redis
  return keep(new ShapedQueue(name, { connection: connectionTo(port), prefix, shape, admitTimeoutMs }))
}

/** What an attempt ends with, and that it ended in time. */
async function unavailable(attempt: () => Promise<unknown>): Promise<QueueUnavailableError> {
  const running = new RunningTime()
  const error = await rejection<QueueUnavailableError>(attempt())
  expect(running.ms).toBeLessThan(ADMIT_TIMEOUT_MS + 1000)
  expect(error).toBeInstanceOf(QueueUnavailableError)
  expect(error.name).toBe('QueueUnavailableError')
  return error
}

/** Every way to add a job. */
function attemptsOf(queue: ShapedQueue): (() => Promise<unknown>)[] {
  return [
    () => queue.add('job', {}),
    () => queue.offer('job', {}),
    () => queue.addBulk(many(2)),
    () => queue.addWhenFree('job', {}),
    () => queue.upsertJobScheduler('s', { every: 3_600_000 }),
  ]
}

/** What a busy machine may be late with, where nothing holds it back. */
const inTheEnd = <T>(attempt: () => Promise<T>): Promise<T> => vi.waitFor(attempt, 60_000)

const addFirst = (queue: ShapedQueue) => inTheEnd(() => queue.add('job', {}, { jobId: 'first' }))

async function countAfterReconnect(queue: ShapedQueue): Promise<number> {
  await queue.waitUntilReady()
  // A command of this connection comes back after all that were sent before it.
  await inTheEnd(() => queue.getJobCounts())
  return inTheEnd(() => queue.count())
}

test('a Redis that was never reached: nothing is stored, now or later', async () => {
  const port = await findFreePort()
  const queue = queueAt(port, 'never')
  const errors = await Promise.all(attemptsOf(queue).map(unavailable))
  for (const error of errors) {
    expect(error).toMatchObject({ mayBeStored: false, queueName: 'never' })
    const refused = `connect ECONNREFUSED 127.0.0.1:${port}`
    expect(error.message).toBe(
      `queue "never" is unavailable: Redis did not answer within ${ADMIT_TIMEOUT_MS} ms (${refused}); nothing was stored`,
    )
    expect(error.cause).toMatchObject({ message: refused })
  }
  const late = await startProxyOn(port)
  try {
    expect(await countAfterReconnect(queue)).toBe(0)
    await addFirst(queue)
    expect(await inTheEnd(() => queue.count())).toBe(1)
  } finally {
    await queue.close()
    await late.stop()
  }
})

test('a connection that is lost: nothing is stored, now or later', async () => {
  const proxy = await proxied()
  const queue = queueAt(proxy.port, 'lost')
  await addFirst(queue)
  const closed = once(queue, 'ioredis:close')
  await proxy.refuse()
  try {
    await closed
    for (const attempt of attemptsOf(queue)) expect(await unavailable(attempt)).toMatchObject({ mayBeStored: false })
  } finally {
    await proxy.resume()
  }
  expect(await countAfterReconnect(queue)).toBe(1)
})

test('a command that was sent and is not answered: the job may be stored', async () => {
  const proxy = await proxied()
  const queue = queueAt(proxy.port, 'hole')
  await addFirst(queue)
  proxy.blackhole()
  // All at once: a connection that stays silent for some seconds is replaced.
  for (const error of await Promise.all(attemptsOf(queue).map(unavailable))) {
    expect(error.mayBeStored).toBe(true)
    expect(error.message).toBe(
      `queue "hole" is unavailable: Redis did not answer within ${ADMIT_TIMEOUT_MS} ms; the job may have been stored`,
    )
  }
})

test('a job whose answer got lost is stored once, and the caller never learns that it failed', async () => {
  const proxy = await proxied()
  const queue = queueAt(proxy.port, 'dropped', 20_000)
  await queue.waitUntilReady()
  const dropped = proxy.dropReplyOf(
    (words) => /^(eval|fcall)/i.test(words[0] ?? '') && words.some((w) => w.includes('once')),
  )
  const job = await queue.add('job', { once: 'once' })
  await dropped
  expect((await queue.getJob(job.id!))?.data).toEqual({ once: 'once' })
  expect(await queue.count()).toBe(1)
})

test('a flow: in time, and truthful', async () => {
  const proxy = await proxied()
  const { prefix } = redis
  const producer = (port: number) =>
    keep(new ShapedFlowProducer({ connection: connectionTo(port), prefix, admitTimeoutMs: ADMIT_TIMEOUT_MS }))
  const flow = { name: 'parent', queueName: 'flow', children: [{ name: 'child', queueName: 'flow' }] }
  const never = producer(await findFreePort())
  expect(await unavailable(() => never.add(flow))).toMatchObject({ mayBeStored: false, queueName: 'flow' })
  expect(await unavailable(() => never.addBulk([flow]))).toMatchObject({ mayBeStored: false })
  const lost = producer(proxy.port)
  await inTheEnd(() => lost.add(flow))
  proxy.blackhole()
  expect(await unavailable(() => lost.add(flow))).toMatchObject({ mayBeStored: true })
})

test('a Redis that can not serve is unavailable, not full, and nothing is stored', async () => {
  const proxy = await proxied()
  const queue = queueAt(proxy.port, 'refusing')
  await queue.waitUntilReady()
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', () => socket.write('-LOADING Redis is loading the dataset in memory\r\n'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const loading = queueAt((server.address() as AddressInfo).port, 'loading')
  expect(await unavailable(() => loading.add('job', {}))).toMatchObject({ mayBeStored: false })
  await loading.close()
  server.close()
})

test('waitUntilReady resolves once the declared shape is stored', async () => {
  const proxy = await proxied()
  const queue = queueAt(proxy.port, 'ready')
  await queue.waitUntilReady()
  expect(await redis.client().hget(queue.toKey('meta:shape'), 'capacity')).toBe('100')
})

test('an admission waits for a connection that comes in time', async () => {
  const port = await findFreePort()
  const { prefix } = redis
  const queue = keep(new ShapedQueue('soon', { connection: connectionTo(port), prefix, shape, admitTimeoutMs: 20_000 }))
  const added = queue.add('job', {})
  await once(queue, 'error')
  const late = await startProxyOn(port)
  try {
    expect((await added).id).toBeDefined()
  } finally {
    await queue.close()
    await late.stop()
  }
})

/** A proxy before the run's Redis that appears on a port where nothing was. */
async function startProxyOn(port: number): Promise<{ stop(): Promise<void> }> {
  const { connect } = await import('node:net')
  const { host, port: targetPort } = redis.connection
  const server = createServer((socket) => {
    const target = connect(targetPort, host)
    socket.on('error', () => target.destroy()).on('close', () => target.destroy())
    target.on('error', () => socket.destroy()).on('close', () => socket.destroy())
    socket.pipe(target).pipe(socket)
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    stop: async () => {
      const closed = once(server, 'close')
      server.close()
      await closed
    },
  }
}

test.each([Number.POSITIVE_INFINITY, Number.NaN, 0, -1, 2 ** 31, '5000'])(
  'admitTimeoutMs: %s is refused before a connection is opened',
  (wrong) => {
    const admitTimeoutMs = wrong as number
    const { connection } = redis
    for (const open of [
      () => new ShapedQueue('wrong', { connection, admitTimeoutMs }),
      () => new ShapedFlowProducer({ connection, admitTimeoutMs }),
      () => new ShardedQueue('wrong', { connection, shards: 2, admitTimeoutMs }),
    ]) {
      expect(open).toThrow(InvalidInputError)
      expect(open).toThrow(`admitTimeoutMs must be a number of ms > 0 and at most 2147483647; got ${wrong}`)
    }
  },
)
