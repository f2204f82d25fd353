import { Queue, Worker } from 'bullmq'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ShapedQueue, type ShapedQueueOptions, ShapedWorker, type ShapedWorkerOptions } from '../../../../src/index.ts'
import { Inspector } from '../../../../src/inspect/inspector.ts'
import type { QueueStatus } from '../../../../src/inspect/queue-status.ts'
import { eventsOf, jobs } from '../../../../test/worker/support.ts'
import type { Finding } from '../../src/doctor/check.ts'
import { levelsOf, troubles, Ward } from './support.ts'

const ward = new Ward()

/** A queue, closed and removed with the test. */
function queueOf(name: string, shape: NonNullable<ShapedQueueOptions['shape']>): ShapedQueue {
  const queue = new ShapedQueue(name, { connection: ward.redis.connection('operator'), prefix: ward.prefix, shape })
  onTestFinished(async () => {
    await queue.obliterate({ force: true })
    await ward.admin.srem(`${ward.prefix}:shaped-queues`, name)
    await queue.close()
  })
  return queue
}

function workerOf(name: string, run: () => Promise<void>, options: Partial<ShapedWorkerOptions> = {}): ShapedWorker {
  const { prefix } = ward
  const worker = new ShapedWorker(name, run, { connection: ward.redis.connection('worker'), prefix, ...options })
  onTestFinished(() => worker.close())
  return worker
}

/** Resolves once so many workers have reported themselves. */
async function reported(name: string, count: number): Promise<QueueStatus> {
  const inspector = new Inspector({ connection: ward.admin, prefix: ward.prefix })
  return vi.waitFor(async () => {
    const [status] = await inspector.status([name])
    expect(status?.workers).toHaveLength(count)
    return status as QueueStatus
  }, 60_000)
}

function of(findings: readonly Finding[], check: string): Finding | undefined {
  return findings.find((finding) => finding.check === check)
}

test('a queue that works as it should', async () => {
  const queue = queueOf('healthy', { rate: '20/s', burst: 5, capacity: 100 })
  await queue.addBulk(jobs(6))
  const worker = workerOf('healthy', async () => {}, { concurrency: 50 })
  await eventsOf('completed', worker).reach(6)
  await reported('healthy', 1)
  const found = await ward.examine({ queues: ['healthy'] })
  expect(troubles(found)).toEqual([])
  expect(of(found, 'concurrency')?.message).toMatch(/needs \d+ at once, and there are 50$/)
  expect(of(found, 'foreign-workers')).toMatchObject({ level: 'ok', queue: 'healthy' })
  // All that have a shape, where none is named.
  expect((await ward.examine()).some(({ queue }) => queue === 'healthy')).toBe(true)
})

test('a paused group without a bound that goes on to grow', async () => {
  const queue = queueOf('pausing', { rate: '20/s', groups: {} })
  const add = (id: string) => queue.add('job', {}, { group: { id } })
  const by = { by: 'ops', reason: 'test' }
  await queue.setGroup('bounded', { capacity: 10 }, by)
  for (const id of ['grows', 'still', 'bounded']) await add(id)
  for (const id of ['grows', 'still', 'bounded']) await queue.pauseGroup(id, by)
  await vi.waitFor(async () =>
    expect(Date.now()).toBeGreaterThan(+(await queue.getGroup('grows')).overrides.paused!.setAt),
  )
  for (const id of ['grows', 'bounded']) await add(id)
  const found = (await ward.examine({ queues: ['pausing'] })).filter(({ check }) => check === 'paused-groups')
  expect(found).toMatchObject([
    { level: 'warning', message: 'group grows is paused and grows without a bound: 2 jobs', queue: 'pausing' },
  ])
})

test('the canary of another doctor is not examined', async () => {
  queueOf('sluice-doctor-other', { rate: '20/s', capacity: 100 })
  const queue = queueOf('own', { rate: '20/s', capacity: 100 })
  await queue.meter()
  expect((await ward.examine()).flatMap(({ queue }) => queue ?? [])).toEqual(
    expect.not.arrayContaining(['sluice-doctor-other']),
  )
})

test('a queue that is removed while the doctor looks is no error, unless it was asked for', async () => {
  const inspector = new Inspector({ connection: ward.admin, prefix: ward.prefix })
  onTestFinished(() => inspector.close())
  vi.spyOn(inspector, 'queues').mockResolvedValue(['removed'])
  expect(levelsOf(await ward.examineWith(ward.admin, { inspector }), 'queues')).toEqual([])
  const asked = await ward.examineWith(ward.admin, { inspector, queues: ['removed'] })
  expect(levelsOf(asked, 'queues')).toEqual(['error'])
})

test.each([
  ['bypassed', { rate: '100/s', capacity: 100 }],
  ['bypassed-limits', { limits: [{ name: 'minute', rate: '600/min' }] }],
] as const)('a stock worker is found by its connection and by its job: %s', async (name, shape) => {
  const queue = queueOf(name, shape)
  let finish = () => {}
  const end = new Promise<void>((resolve) => {
    finish = resolve
  })
  await queue.addBulk(jobs(2))
  const { prefix } = ward
  const stock = new Worker(name, () => end, {
    connection: ward.redis.connection('worker'),
    prefix,
    concurrency: 2,
  })
  onTestFinished(() => stock.close())
  await eventsOf('active', stock as never).reach(2)
  const found = await ward.examine({ queues: [name], newWorkerS: 0 })
  expect(levelsOf(found, 'foreign-workers')).toEqual(['error', 'warning'])
  const [running, connected] = found.filter(({ check }) => check === 'foreign-workers')
  expect(running?.message).toContain('jobs are running that the meter did not release')
  expect(connected?.message).toMatch(/^1 worker connected, 0 reported: the meter may be bypassed by 127\.0\.0\.1:\d+$/)
  expect(running?.remedy).toContain('ShapedWorker')
  expect(levelsOf(await ward.examine({ queues: [name] }), 'foreign-workers')).toEqual(['error'])
  finish()
})

test('who may not list connections is told so, and jobs are looked at nevertheless', async () => {
  queueOf('unlisted', { rate: '100/s' })
  await expect.poll(() => ward.admin.exists(`${ward.prefix}:unlisted:meta:shape`)).toBe(1)
  const found = await ward.examine({ user: 'observer', queues: ['unlisted'] })
  expect(of(found, 'foreign-workers')).toMatchObject({
    level: 'skipped',
    remedy: expect.stringContaining('+client|list'),
  })
})

test('too little concurrency, of workers and of the shape', async () => {
  const queue = queueOf('narrow', { rate: '500/s', capacity: 100 })
  await queue.addBulk(jobs(12))
  const worker = workerOf('narrow', () => new Promise((resolve) => setTimeout(resolve, 30)), { concurrency: 4 })
  await eventsOf('completed', worker).reach(12)
  await reported('narrow', 1)
  const few = of(await ward.examine({ queues: ['narrow'] }), 'concurrency')
  expect(few).toMatchObject({ level: 'warning', remedy: expect.stringContaining('start more workers') })
  expect(few?.message).toMatch(/needs \d{2,} at once, and there are only 4:/)
  await queue.setShape({ concurrency: 1 }, { by: 'test', reason: 'to see it' })
  const bound = of(await ward.examine({ queues: ['narrow'] }), 'concurrency')
  expect(bound).toMatchObject({ level: 'warning', remedy: expect.stringContaining('raise shape.concurrency') })
  await queue.setShape({ rate: '1/s', concurrency: 10 }, { by: 'test', reason: 'to see it' })
  expect(of(await ward.examine({ queues: ['narrow'] }), 'concurrency')?.level).toBe('ok')
})

test('jobs wait and nobody takes them', async () => {
  const queue = queueOf('deserted', { rate: '10/s' })
  await queue.add('job', {})
  const found = await ward.examine({ queues: ['deserted'] })
  expect(of(found, 'no-worker')).toMatchObject({
    level: 'error',
    message: '1 job waits, and no worker has reported',
    remedy: expect.stringContaining('ShapedWorker'),
  })
  expect(of(found, 'concurrency')?.level).toBe('skipped')
})

test('what the fleet page marks is found, with the next command, the worst queue first', async () => {
  const who = { by: 'ada', reason: 'a test' }
  queueOf('well', { rate: '10/s' })
  const [changed, paused, full] = ['changed', 'paused', 'full'].map((name) =>
    queueOf(name, { rate: '10/s', capacity: 1 }),
  )
  await changed?.setShape({ rate: '1/s' }, { ...who, ttlMs: 600_000 })
  await paused?.pause(who)
  await full?.add('job', {})
  const found = await ward.examine({ queues: ['well', 'changed', 'paused', 'full'] })
  expect([...new Set(found.flatMap(({ queue }) => queue ?? []))]).toEqual(['full', 'paused', 'changed', 'well'])
  expect(['no-worker', 'full', 'paused', 'override', 'state'].map((check) => of(found, check))).toMatchObject([
    { queue: 'full', level: 'error' },
    {
      queue: 'full',
      level: 'warning',
      message: 'new jobs are refused',
      remedy: expect.stringMatching(/^sluice top full /),
    },
    {
      queue: 'paused',
      level: 'warning',
      message: 'until it is resumed',
      remedy: expect.stringContaining('sluice resume paused'),
    },
    { queue: 'changed', level: 'note', message: expect.stringMatching(/^rate by ada .* ends in .*: a test$/) },
    { queue: 'well', level: 'ok', message: 'nothing is out of the ordinary' },
  ])
})

/** What a worker would say of itself. */
async function saysOfItself(name: string, facts: Readonly<Record<string, unknown>>): Promise<void> {
  const row = {
    ...{ host: 'h', pid: 1, seen: Date.now(), since: Date.now(), concurrency: 9, running: 0, held: 0, started: 0 },
    ...{ perSecond: 0, latenessMaxUs: 0, rttUs: 0, utilisation: 0, state: 'running', ...facts },
  }
  await ward.admin.hset(`${ward.prefix}:${name}:meta:workers`, 'w1', JSON.stringify(row))
}

test('how long jobs run is told by those that run, where none that ended is kept', async () => {
  const queue = queueOf('unkept', { rate: '10/s' })
  await queue.add('job', {})
  await saysOfItself('unkept', {})
  expect(of(await ward.examine({ queues: ['unkept'] }), 'concurrency')?.level).toBe('skipped')
  await saysOfItself('unkept', { running: 8, perSecond: 4 })
  expect(of(await ward.examine({ queues: ['unkept'] }), 'concurrency')).toMatchObject({
    level: 'warning',
    message: '10/s of jobs that run 2000 ms needs 21 at once, and there are only 9: the rate is not reached',
  })
})

test('a worker that does not know the clock, or less well than maxLatenessMs asks, is found', async () => {
  const queue = queueOf('unsure', { rate: '10/s', maxLatenessMs: 50 })
  await queue.waitUntilReady()
  const found = async () => of(await ward.examine({ queues: ['unsure'] }), 'worker-clocks')
  expect(await found()).toMatchObject({
    level: 'ok',
    message: 'no worker has reported how well it knows the clock of Redis',
  })
  await saysOfItself('unsure', { clockErrorUs: 1500 })
  expect(await found()).toMatchObject({ level: 'ok', message: 'workers know the clock of Redis to 1.5 ms' })
  await saysOfItself('unsure', { clockErrorUs: 60_000 })
  expect(await found()).toMatchObject({
    level: 'warning',
    message: 'workers know the clock of Redis to 60.0 ms, and maxLatenessMs is 50: h:1 give their jobs back',
  })
  await queue.setShape({ maxLatenessMs: null }, { by: 'ada', reason: 'a test' })
  await saysOfItself('unsure', { clockErrorUs: 361_000 })
  expect(await found()).toMatchObject({
    level: 'warning',
    message: 'workers know the clock of Redis to 361.0 ms: jobs of h:1 may start that much later than reported',
  })
})

test('a queue without a rate needs no concurrency', async () => {
  const unpaced = queueOf('unpaced', { capacity: 10 })
  await unpaced.add('job', {})
  expect(of(await ward.examine({ queues: ['unpaced'] }), 'concurrency')?.level).toBe('ok')
})

test('a queue that is not there is an error; a stock queue is no error', async () => {
  const stock = new Queue('stock', { connection: ward.redis.connection('operator'), prefix: ward.prefix })
  onTestFinished(async () => {
    await stock.obliterate({ force: true })
    await stock.close()
  })
  await stock.add('job', {})
  const found = await ward.examine({ queues: ['missing', 'stock'] })
  expect(troubles(found)).toMatchObject([{ check: 'queues', queue: 'missing', level: 'error' }])
})
