import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { InvalidInputError, ShapedQueue } from '../../src/index.ts'
import { Inspector, type InspectorConnection } from '../../src/inspect/index.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import { fakeCluster } from '../support/fake-cluster.ts'
import { changeMeter } from '../support/meter.ts'
import { connectionOptions, FOLLOWED_AT_ONCE } from '../support/redis.ts'

const QUEUE = 'mails'
/** What a user needs who only looks, besides its keys. */
const READS = ['+@read', '-@dangerous', '+eval_ro', '+evalsha_ro']
let master: RedisService
let replica: RedisService
let admin: Redis
let jobId: string

beforeAll(async () => {
  master = await startRedis({ ignoreGiven: true, args: [...FOLLOWED_AT_ONCE] })
  replica = await startRedis({ ignoreGiven: true, args: ['--replicaof', master.host, String(master.port)] })
  admin = new Redis(master.url)
  const queue = new ShapedQueue(QUEUE, { connection: connectionOptions(master.url), shape: { rate: '1/h', burst: 3 } })
  const [, job] = await queue.addBulk([1, 2].map(() => ({ name: 'job', data: {}, opts: { cost: 2 } })))
  jobId = job?.id as string
  await queue.close()
  // From now on the replica is one that has caught up.
  await admin.set('followed', 1)
  await admin.wait(1, 0)
  await admin.del('followed')
})

afterAll(async () => {
  admin?.disconnect()
  await replica?.stop()
  await master?.stop()
})

function inspect(connection: InspectorConnection, prefix = 'bull'): Inspector {
  const inspector = new Inspector({ connection, prefix })
  onTestFinished(() => inspector.close())
  return inspector
}

/** What the whole of the inspector tells; all of it has to be allowed. */
async function tellAll(inspector: Inspector) {
  const [status] = await inspector.status([QUEUE])
  return {
    queues: await inspector.queues(),
    status,
    series: await inspector.series(QUEUE, { since: new Date(0) }),
    history: await inspector.history(QUEUE),
    jobs: await inspector.jobs(QUEUE, 'waiting', { data: true }),
    explanation: await inspector.explain(QUEUE, jobId),
    audit: await inspector.audit(QUEUE),
  }
}

function expectAll(told: Awaited<ReturnType<typeof tellAll>>): void {
  expect(told.queues).toEqual([QUEUE])
  expect(told.status).toMatchObject({ waiting: 2, rate: '1/h', level: 0, depth: 2, hold: { cause: 'workers' } })
  expect(told.status?.nextDepartureAt).toEqual(told.status?.at)
  expect(told.status?.headAgeMs).toBeGreaterThanOrEqual(0)
  expect(told.history).toMatchObject([{ kind: 'declared', change: { rate: [1, 3_600_000], burst: 3 } }])
  expect(told.jobs.map(({ cost, data }) => ({ cost, data }))).toEqual([1, 2].map(() => ({ cost: 2, data: {} })))
  expect(told.explanation).toMatchObject({ state: 'waiting', ahead: 1 })
}

async function user(name: string, ...rules: string[]): Promise<InspectorConnection> {
  await admin.acl('SETUSER', name, 'reset', 'on', '>secret', ...rules)
  return { ...connectionOptions(master.url), username: name, password: 'secret' }
}

test('a user who may only read is told everything, and on no other way', async () => {
  const warned = vi.spyOn(console, 'warn').mockImplementation(() => {})
  onTestFinished(() => warned.mockRestore())
  const inspector = inspect(await user('reader', '%R~*', ...READS))
  expectAll(await tellAll(inspector))
  // Neither may it ask for the role, nor for the time: this machine's is taken.
  expect(await inspector.redisState()).toEqual({ role: 'unknown' })
  const [status] = await inspector.status([QUEUE])
  expect(Math.abs(Date.now() - (status?.at.getTime() ?? 0))).toBeLessThan(5000)
  expect(warned).not.toHaveBeenCalled()
  expect(await inspector.queues()).toEqual([QUEUE])
})

test('a user who may read some keys is told the same, in one round trip', async () => {
  const connection = await user('few', '%R~bull:*', ...READS, '+time', '+info')
  const client = new Redis({ ...(connection as object), enableReadyCheck: false })
  onTestFinished(() => client.disconnect())
  await client.time()
  const inspector = inspect(client)
  await inspector.status([QUEUE])
  const written = vi.spyOn(client.stream, 'write')
  await inspector.status([QUEUE])
  expect(written).toHaveBeenCalledTimes(1)
  expectAll(await tellAll(inspector))
  expect(await inspector.redisState()).toMatchObject({ role: 'master', replicas: [{ state: 'online' }] })
})

const MANY = 40
/** What goes on while nothing happens. */
const MOVING = new Set(['at', 'conditions', 'headAgeMs', 'oldestAgeMs', 'nextDepartureAt', 'heldMs', 'hold'])

/** Queues in states of many kinds, with names and reasons that have to be escaped. */
async function manyQueues(): Promise<string[]> {
  const connection = connectionOptions(master.url)
  const names = Array.from({ length: MANY }, (_, i) => `many "${i}" ü\u0001`)
  for (const [i, name] of names.entries()) {
    const shape = [{ rate: '1/h', burst: 3 }, { capacity: 9, concurrency: 2 }, {}][i % 3] ?? {}
    const queue = new ShapedQueue(name, { connection, prefix: 'many', shape })
    await queue.waitUntilReady()
    if (i % 4 === 0) await queue.add('job', {}, { cost: 2, priority: i })
    if (i % 4 === 1) await queue.add('job', {}, { delay: 3_600_000 })
    if (i % 4 === 2) await queue.addBulk([1, 2].map(() => ({ name: 'job', data: {}, opts: { lifo: true } })))
    if (i % 5 === 0) await queue.pauseUntil(Date.now() + 3_600_000, { reason: 'maintenance \u202e"now"' })
    if (i % 7 === 0) await queue.pause()
    if (i % 3 === 2) await changeMeter(admin, queue.toKey(''), { meanCost: 1 + i / 1024, mode: 'enforce' })
    await queue.close()
  }
  return names
}

test('of very many, whatever they are called, each is told the same as alone', async () => {
  const names = await manyQueues()
  const inspector = inspect(await user('plain', '%R~many:*', ...READS, '+time'), 'many')
  const stillOf = (status: object | undefined) => Object.entries(status ?? {}).filter(([field]) => !MOVING.has(field))
  const together = (await inspector.status([...names, 'nobody'])).map(stillOf)
  const alone: unknown[] = []
  for (const name of [...names, 'nobody']) alone.push(stillOf((await inspector.status([name]))[0]))
  expect(together).toEqual(alone)
  expect(together.filter((fields) => fields.length > 10)).toHaveLength(MANY)
  // What is stored as bytes.
  expect(new Set(together.map((fields) => Object.fromEntries(fields).meanCost)).size).toBeGreaterThan(10)
})

test.each([
  ['nothing', ['+@read']],
  ['no key', READS],
])('a user who may run or read %s is told so', async (_, rules) => {
  const inspector = inspect(await user('nobody', ...rules))
  await expect(inspector.status([QUEUE])).rejects.toThrow(/NOPERM|permission/i)
  await expect(inspector.explain(QUEUE, jobId)).rejects.toThrow(/NOPERM|permission/i)
})

test('of a cluster, a user who may not read a queue is told so, and not that its node did not answer', async () => {
  const connection = await user('outsider', '%R~bull:s*', ...READS, '+time')
  const real = new Redis({ ...(connection as object), enableReadyCheck: false })
  onTestFinished(() => real.disconnect())
  const inspector = inspect(fakeCluster(real, new Set()).client)
  await expect(inspector.status([QUEUE])).rejects.toThrow(/NOPERM|permission/i)
})

test('a replica tells the same, that it is one, and how old its answers may be', async () => {
  const synced = new Redis(replica.url)
  onTestFinished(() => synced.disconnect())
  await vi.waitFor(async () => expect(await synced.info('replication')).toContain('master_link_status:up'), 60_000)
  await admin.wait(1, 10_000)
  const inspector = inspect({ url: replica.url })
  expectAll(await tellAll(inspector))
  const state = await inspector.redisState()
  expect(state).toMatchObject({ role: 'replica', lagMs: expect.any(Number), version: expect.any(String) })
  expect(state.lagMs).toBeLessThan(60_000)
  await synced.replicaof('NO', 'ONE')
  expect(await inspector.redisState()).toMatchObject({ role: 'master', replicas: [] })
})

test('a replica that lost its master says since when', async () => {
  const lost = await startRedis({ ignoreGiven: true, args: [...FOLLOWED_AT_ONCE] })
  const orphan = await startRedis({ ignoreGiven: true, args: ['--replicaof', lost.host, String(lost.port)] })
  onTestFinished(() => orphan.stop())
  const inspector = inspect({ url: orphan.url })
  await vi.waitFor(async () => expect((await inspector.redisState()).lagMs).toBeGreaterThanOrEqual(0), 60_000)
  await lost.stop()
  await vi.waitFor(async () => expect((await inspector.redisState()).lagMs).toBeGreaterThanOrEqual(1000), 60_000)
})

test.each([
  ['nothing', undefined],
  ['text', 'redis://localhost'],
  ['a client of node-redis', { connect: () => {}, sendCommand: () => {}, isOpen: true, duplicate: () => {} }],
])('%s is no connection', (_, connection) => {
  expect(() => new Inspector({ connection: connection as never })).toThrow(InvalidInputError)
})

test('a Redis that is not there is said to be', async () => {
  const inspector = inspect({ host: '127.0.0.1', port: 1, maxRetriesPerRequest: 0, retryStrategy: () => null })
  await expect(inspector.status([QUEUE])).rejects.toThrow(/closed|ECONNREFUSED/i)
  await expect(inspector.queues()).rejects.toThrow(/closed|ECONNREFUSED/i)
})
