import { UnrecoverableError, Worker } from 'bullmq'
import { expect, onTestFinished, test, vi } from 'vitest'
import {
  createShapedBackend,
  type Shape,
  ShapedFlowProducer,
  type ShapedQueue,
  type ShapedWorker,
} from '../../src/index.ts'
import { unreportedClients } from '../../src/reports/queue-clients.ts'
import { byReason, RecentEnds } from '../../src/reports/recent-ends.ts'
import { BypassWatch } from '../../src/worker/bypass-watch.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis
const LIMITS = [{ name: 'hour', rate: '1000/h', algorithm: 'fixed-window' as const }]

/** A worker that asks for jobs only when it is told to. */
function asking(queue: ShapedQueue): ShapedWorker {
  return shop.worker(queue, null, { autorun: false, report: false })
}

/** Reports as a program does that only adds jobs, and reads the status. */
async function reported(queue: ShapedQueue, worker: ShapedWorker) {
  await client.del(queue.toKey('meta:series:2'))
  await worker.backend.store.run('report', ['', '', '{}', 0, '', 0])
  return statusOf(inspectorOf(redis, shop), queue.name)
}

/** Lets BullMQ's own worker run the jobs that wait. */
async function runStock(queue: ShapedQueue, count: number, options: object = {}): Promise<void> {
  const stock = new Worker(queue.name, async () => {}, { connection, prefix, ...options })
  await eventsOf('completed', stock).reach(count)
  await stock.close()
}

test('ends are counted: completed, failed for good, and attempts that failed; and why', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 20 })
  const worker = shop.worker(queue, async (job) => {
    if (job.data.fails === 'always') throw new UnrecoverableError(`no user ${job.id} here`)
    if (job.data.fails === 'once' && job.attemptsStarted === 1) throw new Error('status code 503')
  })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await queue.addBulk([
    ...jobs(6),
    ...Array.from({ length: 2 }, () => ({ name: 'job', data: { fails: 'once' }, opts: { attempts: 2 } })),
    ...Array.from({ length: 4 }, () => ({ name: 'job', data: { fails: 'always' }, opts: { removeOnFail: true } })),
  ])
  await Promise.all([completed.reach(8), failed.reach(6)])
  const inspector = inspectorOf(redis, shop)
  const failing = { attempts: 14, failedAttempts: 6, failed: 4, share: 6 / 14 }
  await expect.poll(async () => (await statusOf(inspector, queue.name)).failing).toMatchObject(failing)
  const status = await statusOf(inspector, queue.name)
  expect(status).toMatchObject({ completedTotal: 8, failedTotal: 4, failedAttemptsTotal: 6 })
  expect(status).toMatchObject({ completedKept: 8, failedKept: 0 })
  expect(status.failing?.reasons).toEqual([
    [expect.stringMatching(/^no user .* here$/), 4],
    ['status code 503', 2],
  ])
  // A worker reports when it leaves, and that a sample is due is not left to chance.
  await client.del(queue.toKey('meta:series:2'))
  await worker.close()
  const [sample] = (await inspector.series(queue.name)).slice(-1)
  expect(sample).toMatchObject({ completed: 8, failed: 4, failedAttempts: 6, bypassed: 0 })
})

test('recent ends are forgotten after five minutes; reasons that differ in numbers are one, those in codes are not', () => {
  let nowMs = 0
  const recent = new RecentEnds(() => nowMs)
  expect(recent.report()).toBeUndefined()
  recent.failed('timeout of 5012 ms\n  at x', true)
  nowMs = 40_000
  recent.failed('timeout of 17 ms', false)
  recent.failed('status code 500', false)
  recent.failed('status code 404', false)
  recent.completed()
  expect(recent.report()).toEqual({
    ends: { completed: 1, failed: 1, failedAttempts: 4 },
    reasons: [
      ['timeout of 5012 ms', 2],
      ['status code 500', 1],
      ['status code 404', 1],
    ],
  })
  nowMs = 300_000
  expect(recent.report()?.ends).toEqual({ completed: 1, failed: 0, failedAttempts: 3 })
  nowMs = 340_000
  expect(recent.report()).toBeUndefined()
  for (let i = 0; i < 50; i++) recent.failed(`reason ${'abcdefghijklmnopqrstuvwxyz'[i % 26]}${'x'.repeat(i)}`, true)
  expect(recent.report()).toMatchObject({ ends: { failed: 50 }, reasons: { length: 3 } })
  expect(byReason([['x'.repeat(500), 1]])[0]?.[0]).toHaveLength(500)
})

test('failed jobs are grouped by reasons that differ only in numbers and ids, with what finds them', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 20 })
  const worker = shop.worker(queue, async ({ data }) => Promise.reject(new Error(data)))
  const reasons = ['no user 17 on b7', 'status code 500', 'no user 4 on c9\n  at x', 'status code 404']
  const ends = eventsOf('failed', worker)
  await queue.addBulk(reasons.map((data) => ({ name: 'job', data })))
  await ends.reach(4)
  const inspector = inspectorOf(redis, shop)
  const { reasons: found, searched } = await inspector.failedReasons(queue.name)
  expect([searched, found[0]]).toEqual([
    4,
    { reason: expect.stringMatching(/^no user/), count: 2, contains: 'no user' },
  ])
  expect(
    found
      .slice(1)
      .map(({ contains }) => contains)
      .toSorted(),
  ).toEqual(['status code 404', 'status code 500'])
  for (const { contains, count } of found) {
    expect(await inspector.failedJobs(queue.name, { failedReason: contains })).toMatchObject({ found: count })
  }
  expect(await inspector.failedReasons('nothing')).toEqual({ reasons: [], searched: 0 })
})

test.each<[string, Shape]>([
  ['a rate', { rate: '1000/s', burst: 20 }],
  ['limits alone', { limits: LIMITS }],
  ['groups alone', { groups: {} }],
])('starts past the meter are counted, whether their jobs still run or not: %s', async (_what, shape) => {
  const queue = shop.queue(shape)
  await queue.waitUntilReady()
  const worker = asking(queue)
  await worker.waitUntilReady()
  expect(await reported(queue, worker)).toMatchObject({ bypassedTotal: 0, bypass: undefined })
  await queue.addBulk(jobs(5))
  await runStock(queue, 5)
  const found = await reported(queue, worker)
  expect(found).toMatchObject({ bypassedTotal: 5, bypass: { clients: [], perSecond: undefined } })
  expect(await queue.getJob(found.bypass?.jobId as string)).toBeDefined()
  // Each is counted once; while some are found, more events are looked at.
  expect(await reported(queue, worker)).toMatchObject({ bypassedTotal: 5 })
  await queue.addBulk(jobs(90))
  await runStock(queue, 90, { concurrency: 9 })
  expect(await reported(queue, worker)).toMatchObject({ bypassedTotal: 95 })
})

type NoBypass = [string, object, (queue: ShapedQueue, worker: ShapedWorker) => Promise<unknown>]

test.each<NoBypass>([
  [
    'retries, and the jobs that getNextJob hands out',
    {},
    async (queue, worker) => {
      const job = await worker.getNextJob('token')
      await job?.moveToFailed(new Error('no'), 'token')
      await queue.retryJobs()
      const again = await worker.getNextJob('token')
      await again?.moveToCompleted('done', 'token', false)
    },
  ],
  [
    'a stalled job',
    {},
    async (queue, worker) => {
      const job = await worker.getNextJob('token')
      await client.del(`${queue.toKey(job?.id as string)}:lock`)
      const checking = shop.worker(queue, async () => {}, { stalledInterval: 50, report: false })
      await eventsOf('completed', checking).reach(3)
    },
  ],
  [
    'a stock worker with our backend',
    {},
    async (queue) => {
      const stock = shop.keep(new Worker(queue.name, async () => {}, { connection, prefix }, createShapedBackend))
      await eventsOf('completed', stock).reach(3)
    },
  ],
  [
    'flows, and jobs that are removed',
    {},
    async (queue, worker) => {
      const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
      await flows.add({ name: 'parent', queueName: queue.name, children: [{ name: 'child', queueName: queue.name }] })
      const running = shop.worker(queue, async () => {}, { report: false, removeOnComplete: { count: 1 } })
      await eventsOf('completed', running).reach(5)
      await worker.getNextJob('token')
    },
  ],
  [
    'what ran before there was a rate',
    { rate: undefined, burst: undefined, capacity: 9 },
    async (queue) => {
      await runStock(queue, 3)
      await queue.setShape({ rate: '1000/s' }, { by: 'test', reason: 'now' })
    },
  ],
  [
    'what ran before there were limits',
    { rate: undefined, burst: undefined, capacity: 9 },
    async (queue) => {
      await runStock(queue, 3)
      await queue.setShape({ limits: LIMITS }, { by: 'test', reason: 'now' })
    },
  ],
  [
    'what ran before there were groups',
    { rate: undefined, burst: undefined, capacity: 9 },
    async (queue) => {
      await runStock(queue, 3)
      await queue.setShape({ groups: {} }, { by: 'test', reason: 'now' })
    },
  ],
  ...[{ limits: LIMITS }, { limits: LIMITS, mode: 'shadow' }, { groups: {} }].map(
    (shape): NoBypass => [
      `workers with Sluice under ${JSON.stringify(shape)}`,
      { rate: undefined, burst: undefined, ...shape },
      async (queue) => {
        const running = shop.worker(queue, async () => {}, { report: false, concurrency: 2 })
        const completed = eventsOf('completed', running)
        await queue.addBulk(jobs(30))
        await completed.reach(33)
      },
    ],
  ),
  [
    'a concurrency alone, which is that of BullMQ, and which its workers obey',
    { rate: undefined, burst: undefined, concurrency: 1 },
    (queue) => runStock(queue, 3),
  ],
  [
    'what ran in mode off',
    { mode: 'off' },
    async (queue) => {
      const running = shop.worker(queue, async () => {}, { report: false })
      await eventsOf('completed', running).reach(3)
      await queue.setShape({ mode: 'enforce' }, { by: 'test', reason: 'now' })
    },
  ],
])('no bypass: %s', async (_what, shape, run) => {
  const queue = shop.queue({ rate: '1000/s', burst: 20, ...shape } as never)
  await queue.waitUntilReady()
  const worker = asking(queue)
  await worker.waitUntilReady()
  await queue.addBulk(jobs(3))
  await run(queue, worker)
  expect(await reported(queue, worker)).toMatchObject({ bypassedTotal: 0, bypass: undefined })
})

/** A worker on a Redis that lists these clients, whose clock is moved by hand. */
function watched(list: () => string) {
  vi.useFakeTimers({ toFake: ['performance'] })
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  onTestFinished(() => void vi.useRealTimers())
  onTestFinished(() => warn.mockRestore())
  const foreign: string[] = []
  const name = `watched-${Math.random()}`
  const asked = { isCluster: false, hgetall: async () => ({ w: '{"clientId":7}' }), clientList: async () => list() }
  const watch = new BypassWatch({
    ...{ name, opts: { prefix: 'b' }, toKey: (type: string) => `b:${name}:${type}` },
    emit: (_event: string, { jobId }: { jobId: string }) => foreign.push(jobId),
    backend: { client: Promise.resolve(asked as never), waitingClient: undefined },
  } as never)
  const found = async (jobId: string) => {
    watch.found(jobId)
    await new Promise((resolve) => setImmediate(resolve))
  }
  const line = (id: number, age: number) =>
    `id=${id} addr=h:${id} name=b:${Buffer.from(name).toString('base64')}:w:old age=${age}\n`
  return { watch, found, foreign, line, warnings: () => warn.mock.calls.map(([text]) => text) }
}

test('who takes jobs past the meter is named in reports, and in one warning for each process', async () => {
  let clients = ''
  const { watch, found, foreign, line, warnings } = watched(() => clients)
  expect(watch.clients).toBeUndefined()
  clients = line(7, 60) + line(8, 2)
  await found('1')
  expect([watch.clients, warnings()]).toEqual([[], []])
  vi.advanceTimersByTime(8000)
  clients = line(7, 68) + line(8, 10)
  await found('2')
  await found('3')
  expect(watch.clients).toEqual([{ name: 'old', address: 'h:8' }])
  expect(warnings()).toEqual([
    expect.stringMatching(/: job 2 was started past the meter, by "old" at h:8: it obeyed neither/),
  ])
  expect(foreign).toEqual(['1', '2', '3'])
  vi.advanceTimersByTime(60_000)
  expect(watch.clients).toBeUndefined()
})

test('who may not list clients is warned without a name', async () => {
  const { watch, found, warnings } = watched(() => {
    throw new Error("NOPERM this user has no permissions to run the 'client|list' command")
  })
  await found('1')
  expect(warnings()).toEqual([])
  vi.advanceTimersByTime(15_000)
  await found('2')
  expect(watch.clients).toEqual([])
  expect(warnings()).toEqual([
    expect.stringContaining(': job 2 was started past the meter: it obeyed neither rate nor limits.'),
  ])
})

test('clients that are those of workers that report are not named, nor new ones', () => {
  const name = `b:${Buffer.from('mails').toString('base64')}`
  const line = (id: number, own: string, age = 60) =>
    `id=${id} addr=h:${id} laddr=x:1 fd=8 name=${own} age=${age} user=default`
  const list = [line(1, name), line(2, `${name}:w:ours`), line(3, `${name}:w:new`, 1), line(4, 'b:other'), line(5, '')]
  const found = (...reported: (number | undefined)[]) =>
    unreportedClients(list.join('\n'), { prefix: 'b', queue: 'mails', reported }).map(({ address }) => address)
  expect(found()).toEqual(['h:1', 'h:2'])
  expect(found(2)).toEqual(['h:1'])
  expect(found(2, 1)).toEqual([])
  // One of the two is the worker's that does not know its connection.
  expect(found(undefined)).toEqual(['h:1', 'h:2'])
  expect(found(undefined, 2)).toEqual([])
})
