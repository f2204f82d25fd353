import type { Redis } from 'ioredis'
import { QueueUnavailableError, type Shape, ShapedQueue, type ShapedQueueOptions } from '../../src/index.ts'
import { installedScripts } from '../../src/redis/scripts.ts'
import { expect, onTestFinished, test, useConcurrentTests } from '../support/concurrent.ts'
import { startProxy } from '../support/proxy.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { librariesOn, runs } from './support/functions.ts'
import { OwnCluster } from './support/own-cluster.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'
import { startReplica } from './support/replica.ts'

useConcurrentTests()

const own = installedScripts().library
const SHAPE: Shape = { rate: '500/s', burst: 5, capacity: 1000, maxLatenessMs: 60_000 }
const BUCKET = { intervalUs: 2000, burst: 5 }
const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

// Fault table, row 41.
test('a full Redis that has not loaded the functions of this version: jobs start and end, adds are refused', async () => {
  const service = await startOwnRedis()
  const admin = adminOf(service.url)
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const old = fleet.queue('mail', { connection, shape: SHAPE, functions: 'never' })
  const ids = idsOf(await old.addBulk(jobs(60)))
  expect(await librariesOn(admin)).toEqual([])
  await admin.config('SET', 'maxmemory', '1')
  await admin.config('RESETSTAT')
  const queue = fleet.queue('mail', { connection, shape: SHAPE })
  fleet.worker('mail', { connection, shape: SHAPE, concurrency: 10, removeOnComplete: { count: 0 } })
  await fleet.until(() => fleet.completed.length === ids.length)
  expect(new Set(fleet.completed)).toEqual(new Set(ids))
  expect({ failed: fleet.failed, others: fleet.errors.filter(({ error }) => !/^OOM/.test(error.message)) }).toEqual({
    failed: [],
    others: [],
  })
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  const error = await queue.add('job', {}).catch((reason: unknown) => reason)
  expect(error).toBeInstanceOf(QueueUnavailableError)
  expect(error).toMatchObject({ mayBeStored: false, message: expect.stringContaining('OOM') })
  const { functions, texts } = await runs(admin)
  expect({ functions, texts: texts > 0 }).toEqual({ functions: 0, texts: true })
  await admin.config('SET', 'maxmemory', '0')
  const { id } = await queue.add('job', {})
  await fleet.until(() => fleet.completed.includes(id as string))
})

test('Redis killed and restarted without persistence: the functions are loaded again', async () => {
  const service = await startOwnRedis({ persistence: 'none' })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 20_000 })
  await queue.addBulk(jobs(20))
  fleet.worker('mail', { connection, concurrency: 5 })
  await fleet.until(() => fleet.completed.length === 20)
  await service.kill()
  await service.restart()
  const admin = adminOf(service.url)
  const ids = idsOf(await queue.addBulk(jobs(20)))
  await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))
  expect(await librariesOn(admin)).toEqual([own.name])
  expect(await runs(admin)).toMatchObject({ texts: 0 })
  expect(fleet.failed).toEqual([])
})

test('a replica that takes over has the functions', async () => {
  const master = await startOwnRedis({ args: ['--repl-diskless-sync-delay', '0'] })
  const replica = await startReplica(master)
  const front = await startProxy(master.url)
  onTestFinished(() => front.stop())
  const connection = quickConnection(front.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 20_000 })
  await queue.addBulk(jobs(20))
  fleet.worker('mail', { connection, concurrency: 5 })
  await fleet.until(() => fleet.completed.length === 20)
  const admin = adminOf(replica.url)
  await expect.poll(() => adminOf(master.url).wait(1, 1000)).toBe(1)
  expect(await librariesOn(admin)).toEqual([own.name])
  await admin.config('RESETSTAT')
  await master.kill()
  await replica.promote()
  front.redirect(replica.url)
  const ids = idsOf(await queue.addBulk(jobs(20)))
  await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))
  const { functions, ...others } = await runs(admin)
  expect(functions).toBeGreaterThan(0)
  expect(others).toEqual({ texts: 0, loads: 0 })
  expect(fleet.failed).toEqual([])
})

test('a master of a cluster that lost the functions gets them again', async () => {
  const cluster = await OwnCluster.start()
  const connection = cluster.connect()
  const fleet = new Fleet()
  const options: ShapedQueueOptions = { connection, prefix: '{b}', shape: SHAPE }
  const queue = fleet.queue('mail', options)
  await queue.waitUntilReady()
  fleet.worker('mail', { connection: cluster.connect(), prefix: '{b}', concurrency: 10 })
  const producer = new Producer(queue)
  await fleet.until(() => fleet.completed.length >= 50)
  const masters = connection.nodes('master')
  const { slot } = await cluster.placeOf('{b}')
  const keys = await Promise.all(masters.map((one) => one.call('CLUSTER', 'COUNTKEYSINSLOT', slot)))
  const master = masters[keys.findIndex((count) => count !== 0)] as Redis
  await master.config('RESETSTAT')
  for (let flushes = 0; flushes < 3; flushes++) {
    await master.call('FUNCTION', 'FLUSH')
    const before = fleet.completed.length
    await fleet.until(() => fleet.completed.length >= before + 50)
  }
  await producer.stop()
  await fleet.until(() => producer.accepted.every((id) => fleet.completed.includes(id)))
  expect(await librariesOn(master)).toEqual([own.name])
  expect(await runs(master)).toMatchObject({ texts: 0, loads: 3 })
  expect({ refused: producer.refused, failed: fleet.failed, errors: fleet.errors }).toEqual({
    refused: [],
    failed: [],
    errors: [],
  })
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})

/** A cluster with a queue, the master that has it, and another one. */
async function startQueueOnCluster() {
  const cluster = await OwnCluster.start()
  const connection = cluster.connect()
  const queue = new Fleet().queue('mail', { connection, prefix: '{b}', shape: SHAPE, admitTimeoutMs: 60_000 })
  await queue.add('job', {})
  const masters = connection.nodes('master')
  const { slot } = await cluster.placeOf('{b}')
  const keys = await Promise.all(masters.map((one) => one.call('CLUSTER', 'COUNTKEYSINSLOT', slot)))
  const at = keys.findIndex((count) => count !== 0)
  return { queue, master: masters[at] as Redis, other: masters[(at + 1) % 3] as Redis }
}

test('functions are loaded on a master of a cluster while another one stands still', async () => {
  const { queue, master, other } = await startQueueOnCluster()
  await master.call('FUNCTION', 'FLUSH')
  await other.call('CLIENT', 'PAUSE', 60_000, 'ALL')
  const woken = other.ping()
  await queue.add('job', {})
  expect(await librariesOn(master)).toEqual([own.name])
  expect(await Promise.race([woken, Promise.resolve('still')])).toBe('still')
})

test('a full master of a cluster is asked once to load functions, and no other is', async () => {
  const { queue, master, other } = await startQueueOnCluster()
  await master.call('FUNCTION', 'FLUSH')
  await master.config('SET', 'maxmemory', '1')
  for (const one of [master, other]) await one.config('RESETSTAT')
  await queue.meter()
  const [asked, others] = await Promise.all([master, other].map((one) => one.info('commandstats')))
  expect(asked).toMatch(/cmdstat_function\|load:calls=0,.*rejected_calls=1,/)
  expect(others).not.toContain('cmdstat_function|load')
  await master.config('SET', 'maxmemory', '0')
})

test.each([1, 20])(
  '%i adds that are not awaited before the close, and find no functions, are stored',
  async (count) => {
    const service = await startOwnRedis()
    const admin = adminOf(service.url)
    const queue = new ShapedQueue('mail', { connection: quickConnection(service.url), shape: { capacity: 1000 } })
    await queue.add('job', {})
    await admin.call('FUNCTION', 'FLUSH')
    const adding = Promise.allSettled(Array.from({ length: count }, () => queue.add('job', {})))
    await queue.close()
    expect((await adding).filter(({ status }) => status === 'rejected')).toEqual([])
    expect(await admin.llen('bull:mail:wait')).toBe(count + 1)
  },
)
