import type { Redis } from 'ioredis'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import { QueueUnavailableError, ShapedQueue } from '../../src/index.ts'
import { Batch } from '../../src/inspect/batch.ts'
import { Inspector, ReadTimeoutError } from '../../src/inspect/index.ts'
import { AdmitTimeout } from '../../src/queue/unavailable.ts'
import { slotOfKey } from '../../src/redis/shards.ts'
import { quickConnection } from '../faults/support/own-redis.ts'
import { fakeCluster } from '../support/fake-cluster.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis

async function filled(name: string) {
  const queue = new ShapedQueue(name, { connection, prefix, shape: { rate: '1/h', capacity: 9, groups: {} } })
  onTestFinished(async () => {
    await queue.obliterate({ force: true })
    await queue.close()
  })
  const [job] = await queue.addBulk([1, 2].map((n) => ({ name: 'job', data: { n } })))
  return job?.id as string
}

const rejection = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  )

function fakeTimeouts() {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
}

/** Advances the timeouts of reads, which let the event loop turn once before they end. */
async function pass(ms: number) {
  await vi.advanceTimersByTimeAsync(ms)
  await new Promise(setImmediate)
}

test('on a cluster, a node that is silent keeps back its own queues alone, for a bounded time', async () => {
  const id = await filled('silent')
  await filled('well')
  const away = new Set<string>()
  const { client, slots } = fakeCluster(redis.client(), away, { unanswered: () => new Promise(() => {}) })
  for (const name of ['silent', 'well', 'none']) slots[slotOfKey(`${prefix}:${name}:`)] = [name]
  const metrics = createMetrics({ connection: client, prefix, timeoutMs: 60_000 })
  onTestFinished(() => metrics.close())
  expect(await metrics.text()).toContain('sluice_accepted_total{queue="silent"} 2')
  const inspector = new Inspector({ connection: client, prefix })
  expect(await inspector.status(['silent', 'well', 'none'])).toMatchObject([{ depth: 2 }, { depth: 2 }, undefined])

  away.add(`${prefix}:silent:`)
  const [[silent, well, none], text] = await Promise.all([inspector.status(['silent', 'well', 'none']), metrics.text()])
  expect(silent).toMatchObject({ name: 'silent', depth: 0, unread: ['queue'] })
  expect([well?.depth, well?.unread, none]).toEqual([2, undefined, undefined])
  expect(await inspector.fullest(['silent', 'well'], 2)).toEqual(['well', 'silent'])
  expect(text).toContain('sluice_unread_queues{queue="silent"} 1')
  expect(text).toContain('sluice_accepted_total{queue="well"} 2')
  expect(text).not.toContain('sluice_accepted_total{queue="silent"}')
  fakeTimeouts()
  const reads = [inspector.explain('silent', id), inspector.jobs('silent', 'waiting'), inspector.job('silent', id)]
  const errors = Promise.all(reads.map(rejection))
  let isOver = false
  void errors.then(() => {
    isOver = true
  })
  for (let waited = 0; !isOver; waited += 100) {
    expect(waited).toBeLessThan(10_000)
    await pass(100)
  }
  for (const error of await errors) expect(error).toBeInstanceOf(ReadTimeoutError)
})

test('a Redis that is silent: every read is over after 5 s, and says so', async () => {
  const id = await filled('mute')
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const inspector = new Inspector({ connection: { ...quickConnection(proxy.url), connectionName: prefix }, prefix })
  onTestFinished(() => inspector.close())
  expect(await inspector.queues()).toContain('mute')
  proxy.blackhole()
  fakeTimeouts()
  const errors = [
    ...[inspector.queues(), inspector.status(['mute']), inspector.fullest(['mute'], 1), inspector.redisState()],
    ...[inspector.explain('mute', id), inspector.job('mute', id), inspector.jobs('mute', 'failed')],
    ...[inspector.series('mute'), inspector.history('mute'), inspector.audit('mute')],
    ...[inspector.groups('mute'), inspector.group('mute', 'a'), inspector.groupOverrides('mute')],
  ].map(rejection)
  await pass(5000)
  for (const error of await Promise.all(errors)) {
    expect(error).toBeInstanceOf(ReadTimeoutError)
    expect(error).toMatchObject({ timeoutMs: 5000, message: expect.stringMatching(/^Command timed out: Redis/) })
  }
})

test('an answer that is long in coming is waited for as long as some of it arrives', async () => {
  fakeTimeouts()
  const stream = { bytesRead: 0 }
  let answer: (replies: unknown) => void = () => {}
  const exec = () => new Promise((resolve) => (answer = resolve))
  const slow = { options: {}, stream, pipeline: () => ({ call: () => undefined, exec }) } as unknown as Redis
  const ask = () => {
    const batch = new Batch(slow)
    const reply = batch.add('get', 'a')
    return batch.run().then(reply)
  }
  const coming = ask()
  for (let bytes = 1; bytes < 4; bytes++) {
    stream.bytesRead = bytes
    await pass(5000)
  }
  answer([[null, 'all of it']])
  expect(await coming).toBe('all of it')
  const stuck = rejection(ask())
  await pass(5000)
  expect(await stuck).toBeInstanceOf(ReadTimeoutError)
})

test("a queue's own reads, and its pause, are over after `admitTimeoutMs` where Redis is silent", async () => {
  const id = await filled('own')
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const quick = { ...quickConnection(proxy.url), connectionName: prefix }
  const queue = new ShapedQueue('own', { connection: quick, prefix, admitTimeoutMs: 4000 })
  queue.on('error', () => {})
  onTestFinished(() => queue.close())
  await queue.waitUntilReady()
  expect((await queue.getJob(id))?.id).toBe(id)
  expect(await queue.getWaitingCount()).toBe(2)
  proxy.blackhole()
  onTestFinished(() => proxy.restore())
  const errors = [
    ...[queue.getJob(id), queue.getJobs('waiting'), queue.getJobCounts(), queue.getWaitingCount(), queue.count()],
    ...[queue.getJobState(id), queue.getJobLogs(id), queue.isPaused(), queue.getMeta(), queue.getMetrics('failed')],
    ...[queue.getGroup('a'), queue.getGroupsCountByStatus(), queue.getJobSchedulers(), queue.getWorkers()],
    ...[queue.meter(), queue.pause(), queue.resume()],
  ].map(rejection)
  for (const error of await Promise.all(errors)) expect(error).toBeInstanceOf(QueueUnavailableError)
})

test('a read may take longer than that while Redis answers', async () => {
  const client = { status: 'ready', llen: async () => 0 }
  const timeout = new AdmitTimeout({ client: Promise.resolve(client), on: () => {} } as never, 20)
  const later = () => new Promise<string>((resolve) => setTimeout(resolve, 100, 'long'))
  expect(await timeout.read('mail', later, () => client.llen())).toBe('long')
})

test("where replicas are read, the clock of the master with the keys counts, and a replica's where that is silent", async () => {
  await filled('timed')
  const asked: string[] = []
  const node = (port: number, time: () => Promise<unknown>) => ({
    options: { host: 'h', port },
    call: (name: string) => {
      asked.push(`${name} ${port}`)
      return time()
    },
  })
  const master = { time: async (): Promise<unknown> => ['2000000000', '0'] }
  const nodes = [
    node(1, async () => ['1', '0']),
    node(2, async () => ['1900000000', '0']),
    node(3, () => master.time()),
  ]
  const { client, slots } = fakeCluster(redis.client(), new Set(), { scaleReads: 'slave', nodes })
  slots[slotOfKey(`${prefix}:timed:`)] = ['h:3', 'h:2']
  const inspector = new Inspector({ connection: client, prefix })
  expect((await inspector.status(['timed']))[0]?.at).toEqual(new Date(2_000_000_000_000))
  master.time = () => new Promise(() => {})
  expect((await inspector.status(['timed']))[0]?.at).toEqual(new Date(1_900_000_000_000))
  expect(asked).toEqual(['time 3', 'time 3', 'time 2'])
})
