import { once } from 'node:events'
import { QueueEvents, UnrecoverableError } from 'bullmq'
import { afterEach, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { runHere } from '../../packages/cli/test/run-here.ts'
import { ModeSwitch, rateLimit } from '../../packages/gateway/src/index.ts'
import { post, startGateway, told, workerOf } from '../../packages/gateway/test/jobs/support.ts'
import {
  type FeedbackSource,
  ShapedFlowProducer,
  type ShapedJob,
  ShapedQueue,
  type ShapedQueueOptions,
  ShapedWorker,
} from '../../src/index.ts'
import { Inspector } from '../../src/inspect/inspector.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { moveShardedQueue, ShardedQueue } from '../../src/sharding/index.ts'
import { runs } from '../faults/support/functions.ts'
import { PATIENT } from '../limits/support/limiters.ts'
import type { TestRedis } from '../support/redis.ts'
import { eventsOf, jobs } from '../worker/support.ts'
import { useAclRedis } from './support.ts'

const redis = useAclRedis()
const { prefix, limits } = redis

const SHAPE: NonNullable<ShapedQueueOptions['shape']> = {
  ...{
    rate: '500/s',
    burst: 5,
    capacity: 400,
    concurrency: 9,
    maxWaitMs: 3_600_000,
    reservedPlaces: { 1: 5 },
    priorityAgeingMs: 60_000,
  },
  limits: [
    { name: 'day', algorithm: 'fixed-window', rate: '10000/day' },
    { name: 'running', algorithm: 'concurrency', concurrency: 9, shared: true, prefix: limits },
  ],
}
/** A rule that counts, and acts at once. */
const feedback: FeedbackSource = {
  name: 'test',
  listen: (outcome) => {
    if (!('threw' in outcome) || !(outcome.threw instanceof Error) || outcome.threw.message !== 'refused') return []
    const pause = { kind: 'pause', forMs: 1, hard: true, scope: 'queue', source: 'rule', reason: 'refused' } as const
    return [{ feedback: pause, rule: { id: 'counted', trigger: { count: 1, periodMs: 60_000 } } }]
  },
}

// Who may not load functions would be denied that, once a minute.
beforeAll(() => redis.loadFunctions())
// Whatever a client swallows, Redis has noted it.
afterEach(async () => expect(await redis.denials()).toEqual([]))

function queueAs(role: 'producer' | 'worker' | 'operator', name: string, shape = SHAPE): ShapedQueue {
  const queue = new ShapedQueue(name, { connection: redis.connection(role), prefix, shape })
  onTestFinished(() => queue.close())
  return queue
}

test('a producer adds jobs of every kind, asks for them, and keeps schedulers', async () => {
  const queue = queueAs('producer', 'produced')
  const job = await queue.add('plain', {})
  await queue.add('given', {}, { jobId: 'mine', priority: 2 })
  await queue.add('given', {}, { jobId: 'mine' })
  await queue.add('later', {}, { delay: 60_000, attempts: 3 })
  await queue.add('once', {}, { deduplication: { id: 'd', ttl: 60_000 } })
  await queue.addBulk(jobs(250))
  await queue.addOnce(jobs(3), { key: 'k', fingerprint: 'f' })
  await queue.addOnce(jobs(3), { key: 'k', fingerprint: 'f' })
  await expect(queue.offer('offered', {})).resolves.toMatchObject({ accepted: true })
  await expect(queue.addBulk(jobs(390))).rejects.toThrow('full')
  await queue.upsertJobScheduler('hourly', { every: 3_600_000 }, { name: 'hourly' })
  await queue.getJobScheduler('hourly')
  await queue.removeJobScheduler('hourly')
  await queue.removeDeduplicationKey('d')
  expect(await job.getState()).toBe('waiting')
  expect((await queue.getJob('mine'))?.name).toBe('given')
  expect(await queue.getJobCounts('waiting', 'delayed')).toMatchObject({ waiting: 257, delayed: 1 })
  expect(await queue.getJobs(['waiting'], 0, 1)).toHaveLength(2)
  expect(await queue.meter()).toMatchObject({ cause: 'declared' })
  const dropping = queueAs('producer', 'dropping', { capacity: 1, overflow: 'drop-oldest', overflowTo: 'dropped' })
  await dropping.add('old', {})
  await dropping.add('new', {})
  expect((await dropping.meter()).droppedTotal).toBe(1)
})

test.each(['producer', 'worker'] as const)('a %s asks whether replicas have what it adds', async (role) => {
  const queue = queueAs(role, `durable-${role}`, { durability: { replicas: 1, timeoutMs: 1 } })
  await expect(queue.add('job', {})).rejects.toThrow('0 of 1 replicas')
})

test('a producer adds flows', async () => {
  const flows = new ShapedFlowProducer({ connection: redis.connection('producer'), prefix })
  onTestFinished(() => flows.close())
  const children = [
    { name: 'a', queueName: 'flow-children' },
    { name: 'b', queueName: 'flow-children' },
  ]
  const { job } = await flows.add({ name: 'parent', queueName: 'flow-parents', children })
  expect(await job.getState()).toBe('waiting-children')
  await flows.addBulk([{ name: 'alone', queueName: 'flow-parents' }])
})

test('a worker runs jobs of every kind', async () => {
  const queue = queueAs('producer', 'worked')
  const flows = new ShapedFlowProducer({ connection: redis.connection('producer'), prefix })
  onTestFinished(() => flows.close())
  const child = { name: 'child', queueName: 'worked' }
  await flows.add({ name: 'parent', queueName: 'worked', children: [child], opts: { removeOnComplete: true } })
  await queue.addBulk(jobs(30, { removeOnComplete: true }))
  await queue.add('delayed', {}, { delay: 5, priority: 3 })
  await queue.add('fails once', {}, { attempts: 2, backoff: 1 })
  await queue.add('fails at once again', {}, { attempts: 2 })
  await queue.add('refused', {}, { attempts: 2, backoff: 1 })
  await queue.add('dies', {})
  await queue.upsertJobScheduler('soon', { every: 60_000 }, { name: 'scheduled' })
  const events = new QueueEvents('worked', { connection: redis.connection('producer'), prefix })
  onTestFinished(() => events.close())
  await events.waitUntilReady()

  const connection = redis.connection('worker')
  const errors: Error[] = []
  const process = async (job: ShapedJob) => {
    if (job.name.startsWith('fails') && job.attemptsMade === 0) throw new Error('once')
    if (job.name === 'refused' && job.attemptsMade === 0) throw new Error('refused')
    if (job.name === 'dies') throw new UnrecoverableError('for good')
    await job.updateProgress(50)
    await job.log('half of it')
    await job.updateData({ seen: true })
    await job.settleCost(0.5)
  }
  const options = {
    connection,
    prefix,
    concurrency: 3,
    deadLetter: 'dead',
    feedback,
    lockDuration: 20_000,
    lockRenewTime: 500,
  }
  const workers = [1, 2].map(() => new ShapedWorker('worked', process, options))
  for (const worker of workers) worker.on('error', (error) => errors.push(error))
  const completed = eventsOf('completed', ...workers)
  await completed.reach(37)
  await workers[0]?.rateLimit(1)
  await workers[0]?.pause()
  workers[0]?.resume()
  await Promise.all(workers.map((worker) => worker.close()))
  expect(errors).toEqual([])
  expect(await queue.getJobCounts('failed', 'active', 'waiting')).toEqual({ failed: 1, active: 0, waiting: 0 })
  expect(await redis.admin.llen(`${prefix}:dead:wait`)).toBe(1)
})

test('a worker that has died is recovered from', async () => {
  const queue = queueAs('worker', 'stalled', { rate: '100/s' })
  await queue.add('job', {})
  const options = { connection: redis.connection('worker'), prefix }
  const dying = { lockDuration: 200, skipStalledCheck: true, skipLockRenewal: true }
  const died = new ShapedWorker('stalled', null, { ...options, ...dying })
  await died.getNextJob('token')
  await died.close(true)
  const worker = new ShapedWorker('stalled', async () => {}, { ...options, stalledInterval: 100 })
  onTestFinished(() => worker.close())
  const errors: Error[] = []
  worker.on('error', (error) => errors.push(error))
  await once(worker, 'completed')
  expect(errors).toEqual([])
})

test('a gateway takes jobs, tells of them, takes them back and waits for results, behind a limit and a mode', async () => {
  const { maxRetriesPerRequest: _, ...connection } = redis.connection('gateway')
  const place = { connection, prefix }
  const rule = { schema: true, results: true, maxWaitMs: 20_000 } as const
  const { url, gateway, errors } = await startGateway(place, { mails: rule, slow: rule })
  const first = await told(post(`${url}/queues/slow/jobs`, { data: 1 }, { 'idempotency-key': 'k' }))
  expect(first).toMatchObject({ status: 202 })
  const job = `${url}/queues/slow/jobs/${first.id}`
  expect(await told(fetch(job))).toMatchObject({ status: 200, state: 'waiting' })
  expect((await fetch(job, { method: 'DELETE' })).status).toBe(204)
  expect(await gateway.meter('slow')).toMatchObject({ depth: 0 })
  const many = await told(post(`${url}/queues/slow/jobs`, [{ data: 1 }, { data: 2 }]))
  expect(many.status).toBeLessThan(300)

  workerOf({ connection: redis.connection('worker'), prefix }, 'mails', async ({ data }) => data)
  const answered = await told(post(`${url}/queues/mails/jobs`, { data: 7 }, { prefer: 'wait=10' }))
  expect(answered).toMatchObject({ status: 200, result: 7 })
  expect(errors).toEqual([])

  const client = redis.client('gateway')
  const limiter = createLimiter(client, {
    name: 'callers',
    algorithm: 'gcra',
    rate: '100/s',
    prefix: limits,
    ...PATIENT,
  })
  expect((await limiter.take('somebody')).allowed).toBe(true)
  expect(await new ModeSwitch(client, { prefix: limits }).settings()).toEqual(new Map())
  expect(rateLimit({ limit: limiter, key: () => 'all' })).toBeDefined()
})

test.each([
  'gcra',
  'token-bucket',
  'leaky-bucket',
  'fixed-window',
  'sliding-window-counter',
  'sliding-window-log',
] as const)('a limiter decides by %s', async (algorithm) => {
  const client = redis.client('limiter')
  const limiter = createLimiter(client, {
    name: algorithm,
    algorithm,
    rate: '20/s',
    prefix: limits,
    maxKeys: 10,
    ...PATIENT,
  })
  for (let i = 0; i < 3; i++) await limiter.take('k')
  await limiter.peek('k')
  await limiter.block('k', 5)
  await limiter.wait('other', { timeoutMs: 10_000 })
  await limiter.setMode('shadow')
  await limiter.setMode(null)
  await limiter.reset('k')
  expect(await new ModeSwitch(client, { prefix: limits }).settings()).toEqual(new Map())
})

test('a limiter hands out places', async () => {
  const limiter = createLimiter(redis.client('limiter'), {
    ...{ name: 'places', algorithm: 'concurrency', concurrency: 1, prefix: limits, leaseMs: 5000, ...PATIENT },
  })
  const { lease } = await limiter.take()
  const waiting = limiter.wait(undefined, { timeoutMs: 10_000 })
  expect(await lease?.extend()).toBe(true)
  await lease?.release()
  await (await waiting).lease?.release()
})

test('a limiter shares rates and places with queues, by key and as a whole, and wakes their workers', async () => {
  const queue = queueAs('worker', 'sharing', {
    limits: [
      { name: 'one', algorithm: 'concurrency', concurrency: 1, shared: true, prefix: limits },
      { name: 'each', by: 'model', algorithm: 'concurrency', concurrency: 1, shared: true, prefix: limits },
      { name: 'rpm', by: 'model', rate: '9/s', burst: 9, shared: true, prefix: limits },
    ],
  })
  const client = redis.client('limiter')
  const options = { algorithm: 'concurrency', concurrency: 1, prefix: limits, ...PATIENT } as const
  const [one, each] = ['one', 'each'].map((name) => createLimiter(client, { name, ...options }))
  const rpm = createLimiter(client, { name: 'rpm', rate: '9/s', burst: 9, prefix: limits, ...PATIENT })
  const worker = new ShapedWorker('sharing', async () => {}, { connection: redis.connection('worker'), prefix })
  onTestFinished(() => worker.close())
  const done = eventsOf('completed', worker)
  for (const hold of [() => one?.take(), () => each?.take('a')]) {
    const held = await hold()
    await queue.add('job', {}, { keys: { model: 'a' } })
    // Its worker sleeps until a place is free.
    await vi.waitFor(async () => expect((await queue.getJobCounts('active', 'prioritized')).prioritized).toBe(1))
    await held?.lease?.release()
    await done.reach(1)
  }
  await rpm.take('a', { cost: 9 })
  await queue.add('job', {}, { keys: { model: 'a' } })
  await rpm.reset('a')
  await done.reach(1)
  await each?.setMode('shadow')
  await each?.setMode(null)
  const lease = await one?.wait(undefined, { timeoutMs: 10_000 })
  await lease?.lease?.release()
})

test('an operator changes, pauses, redrives, repairs and removes', async () => {
  const queue = queueAs('operator', 'operated', { rate: '500/s', capacity: 100 })
  await queue.setShape({ rate: '100/s' }, { by: 'ops', reason: 'to try', ttlMs: 60_000 })
  await queue.clearShape({ fields: ['rate'] })
  await queue.pauseUntil(Date.now() + 60_000, { reason: 'to try' })
  await queue.clearPause()
  await queue.pause()
  await queue.resume()
  await queue.setGlobalConcurrency(3)
  await queue.addBulk(jobs(5, { attempts: 1 }))
  const options = { connection: redis.connection('operator'), prefix, deadLetter: 'operated-dead' }
  const worker = new ShapedWorker('operated', () => Promise.reject(new Error('no')), options)
  await eventsOf('failed', worker).reach(5)
  await worker.close()
  const letters = new ShapedQueue('operated-dead', { connection: redis.connection('operator'), prefix })
  onTestFinished(() => letters.close())
  expect(await letters.getJobs(['waiting'])).toHaveLength(5)
  expect(await queue.redrive({ from: 'operated-dead' })).toMatchObject({ redriven: 5 })
  const [one, two] = await queue.getJobs(['waiting'])
  await one?.changePriority({ priority: 1 })
  await two?.remove()
  await queue.add('later', {}, { delay: 60_000 })
  await queue.promoteJobs()
  await queue.retryJobs({ state: 'failed' })
  await queue.clean(0, 10, 'failed')
  await queue.drain(true)
  await queue.obliterate({ force: true })
  const modes = new ModeSwitch(redis.client('operator'), { prefix: limits })
  await modes.setMode('load', 'shadow', { by: 'ops', reason: 'to try' })
  await modes.setMode('load', null, { by: 'ops', reason: 'to try' })
})

test('an operator moves a sharded queue to another number of shards', async () => {
  await redis.setUser(`${redis.fileOf('operator')} ~{${prefix}:* &{${prefix}:*:meta:wake`)
  onTestFinished(() => redis.setUser(redis.fileOf('operator')))
  const open = (name: string, shards: number) => {
    const shape = { rate: '500/s', burst: 5, groups: {} } as const
    const queue = new ShardedQueue(name, { connection: redis.connection('operator'), prefix, shards, shape })
    onTestFinished(() => queue.close())
    return queue
  }
  const [from, to] = [open('narrow', 2), open('wide', 3)]
  await Promise.all([from.waitUntilReady(), to.waitUntilReady()])
  const why = { by: 'ops', reason: 'to try' }
  await from.setShape({ rate: '100/s' }, why)
  await (await from.queueOfGroup('a')).setGroup('a', { weight: 2 }, why)
  await from.each[0]?.upsertJobScheduler('yearly', { pattern: '0 0 1 1 *' }, { name: 'yearly' })
  const moved = await moveShardedQueue(from, to, { ...why, obliterate: true })
  expect(moved).toMatchObject({ overrides: 1, groups: 1, schedulers: 1, resumed: true, obliterated: true })
  await to.each[0]?.removeJobScheduler('yearly')
  await to.obliterate({ force: true })
})

test('an observer inspects', async () => {
  const log = { name: 'log', algorithm: 'sliding-window-log', rate: '100/s' } as const
  const queue = queueAs('producer', 'observed', { ...SHAPE, groups: {}, limits: [...(SHAPE.limits ?? []), log] })
  const { id } = await queue.add('job', {})
  const inspector = new Inspector({ connection: redis.connection('observer'), prefix })
  onTestFinished(() => inspector.close())
  await inspector.queues()
  expect(await inspector.status(['observed', 'missing'])).toMatchObject([{ name: 'observed', depth: 1 }, undefined])
  expect(await inspector.redisState()).toMatchObject({ role: 'master' })
  await inspector.series('observed')
  await inspector.history('observed')
  expect(await inspector.jobs('observed', 'waiting')).toHaveLength(1)
  await inspector.explain('observed', id as string)
  const grouped = await queue.add('job', {}, { group: { id: 'a' } })
  expect(await inspector.groups('observed')).toMatchObject({ waiting: 1, largest: [{ id: 'a' }] })
  expect(await inspector.group('observed', 'a')).toMatchObject({ waiting: 1, jobs: [{ id: grouped.id }] })
  expect(await inspector.explain('observed', grouped.id as string)).toMatchObject({ group: { id: 'a', ahead: 0 } })
  await inspector.audit('observed')
})

// Fault table, row 42.
test('a worker that may not load functions sends texts, and calls functions a minute after an operator has loaded them', async () => {
  await redis.admin.call('FUNCTION', 'FLUSH')
  const connection = redis.client('worker')
  const runJob = async () => {
    await redis.admin.config('RESETSTAT')
    const queue = new ShapedQueue('carried', { connection, prefix, shape: { capacity: 10 } })
    const worker = new ShapedWorker('carried', async () => {}, { connection, prefix })
    const completed = once(worker, 'completed')
    await queue.add('job', {})
    await completed
    await worker.close()
    await queue.close()
    return runs(redis.admin)
  }
  expect(await runJob()).toMatchObject({ functions: 0, texts: expect.toSatisfy((texts: number) => texts >= 3) })
  const denials = await redis.denials()
  expect(denials).toMatchObject([{ object: 'function|load', username: 'sluice-worker' }])
  const { host, port, username, password } = redis.connection('operator')
  const url = `redis://${username}:${encodeURIComponent(password)}@${host}:${port}`
  const loaded = await runHere({ url, prefix } as TestRedis, ['functions', 'load'])
  expect(loaded).toMatchObject({ code: 0, stdout: expect.stringContaining('is loaded') })
  expect((await runJob()).functions).toBe(0)
  const now = performance.now.bind(performance)
  const later = vi.spyOn(performance, 'now').mockImplementation(() => now() + 60_000)
  onTestFinished(() => later.mockRestore())
  expect(await runJob()).toMatchObject({ functions: expect.toSatisfy((functions: number) => functions >= 3), texts: 0 })
})
