import { type Job, Queue } from 'bullmq'
import { expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { type QueueLimit, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { changeFailed } from '../../src/queue/failed-jobs.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, Record as Seen, Workshop } from '../worker/support.ts'

// A limit of one place by key says what becomes of a job whose key has another one: it is refused, or takes the place of that.
const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const one = (onConflict: QueueLimit['onConflict'], more: Partial<QueueLimit> = {}) =>
  ({
    ...{ name: 'sync', by: 'account', algorithm: 'concurrency', concurrency: 1, onConflict },
    ...more,
  }) as QueueLimit
const of = (account: string, more: ShapedJobsOptions = {}): ShapedJobsOptions => ({ keys: { account }, ...more })
const inUse = (account: string, jobId: string | undefined) => ({
  ...{ name: 'KeyInUseError', limitName: 'sync', keys: { account }, jobId },
})
const failure = (by: Job) => `cancelled by limit "sync": job ${by.id} replaces it`

/** A second program that adds to the queue. */
function producer(queue: ShapedQueue): ShapedQueue {
  return shop.queueNamed(queue.name)
}

/** Runs until it is aborted. */
function untilAborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
}

test('cancel-newest refuses a job while another one of its key waits, is delayed, runs or is retried', async () => {
  const queue = shop.queue({ limits: [one('cancel-newest')] })
  const first = await queue.add('job', {}, of('a', { delay: 60_000, attempts: 2, backoff: 60_000 }))
  const refused = () => expect(queue.add('job', {}, of('a'))).rejects.toMatchObject(inUse('a', first.id))
  await refused()
  await queue.add('job', {}, of('b'))
  for (let i = 0; i < 2; i++) await queue.add('job', {}, {})
  await first.promote()
  await refused()
  const [begun, open] = [gate(), gate()]
  const worker = shop.worker(queue, async (job) => {
    if (job.id !== first.id) return
    begun.open()
    await open.opened
    throw new Error('told to')
  })
  const failed = eventsOf<Job>('failed', worker)
  await begun.opened
  await refused()
  open.open()
  await failed.reach(1)
  expect(await first.getState()).toBe('delayed')
  await refused()
  await first.promote()
  await failed.reach(2)
  const completed = eventsOf('completed', worker)
  await queue.add('job', {}, of('a'))
  await completed.reach(1)
})

test('of the adds of several programs at once one is let in, whatever else comes', async () => {
  const queue = shop.queue({ limits: [one('cancel-newest')], capacity: 100 })
  // What the others add before the shape is stored is let in.
  await queue.waitUntilReady()
  const others = [queue, producer(queue), producer(queue)]
  const adds = Array.from({ length: 60 }, (_, i) => others[i % 3]?.add('job', {}, of(`a${i % 5}`)))
  const ends = await Promise.allSettled(adds)
  expect(ends.filter(({ status }) => status === 'fulfilled')).toHaveLength(5)
  expect(await queue.getJobCountByTypes('prioritized')).toBe(5)
})

test('cancel-running replaces what waits, aborts what runs, and the new job starts once that has ended', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')] })
  const events = shop.queueEvents(queue)
  const cancelled = eventsOf<object>('cancelled', events)
  const [begun, order, held] = [new Seen<Job>(), [] as string[], gate()]
  const worker = shop.worker(
    queue,
    async (job, _token, signal) => {
      begun.add(job)
      if (job.name === 'last') return
      await untilAborted(signal).catch(() => held.opened)
      order.push(`ended ${job.name}`)
      throw new Error('aborted')
    },
    { concurrency: 5 },
  )
  const [failed, completed] = [eventsOf<Job>('failed', worker), eventsOf<Job>('completed', worker)]
  worker.on('departed', ({ name }) => order.push(`departed ${name}`))
  const first = await queue.add('first', {}, of('a', { attempts: 5 }))
  await begun.reach(1)
  const second = await queue.add('second', {}, of('a', { delay: 60_000 }))
  const third = await queue.add('third', {}, of('a'))
  await queue.add('last', {}, of('b'))
  await completed.reach(1)
  expect(await second.getState()).toBe('failed')
  const last = await queue.add('last', {}, of('a'))
  expect(await third.getState()).toBe('failed')
  expect((await queue.getJob(third.id as string))?.failedReason).toBe(failure(last))
  held.open()
  await Promise.all([completed.reach(2), failed.reach(1)])
  expect(failed.all.map(({ id, failedReason }) => [id, failedReason])).toEqual([[first.id, failure(second)]])
  expect(order).toEqual(['departed first', 'departed last', 'ended first', 'departed last'])
  await cancelled.reach(3)
  expect(cancelled.all[0]).toMatchObject({
    ...{ jobId: first.id, by: 'limit "sync"', reason: `job ${second.id} replaces it` },
  })
})

test('a duplicate that names another key cancels no job of that key', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')] })
  const a = await queue.add('job', {}, of('a', { jobId: 'same', deduplication: { id: 'same' } }))
  const b = await queue.add('job', {}, of('b'))
  await queue.add('job', {}, of('b', { jobId: 'same' }))
  await queue.add('job', {}, of('b', { deduplication: { id: 'same' } }))
  await queue.addBulk([{ name: 'job', data: {}, opts: of('b', { jobId: 'same' }) }])
  expect(await Promise.all([a, b].map((job) => job.getState()))).toEqual(['prioritized', 'prioritized'])
})

test('under many producers and workers at most one of a key runs, and the newest completes', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')], rate: '2000/s', burst: 20 })
  await queue.waitUntilReady()
  const others = [queue, producer(queue), producer(queue)]
  const running = new Map<string, number>()
  let most = 0
  const processor = async (job: Job, _token?: string, signal?: AbortSignal) => {
    const account = (job.opts as ShapedJobsOptions).keys?.account as string
    running.set(account, (running.get(account) ?? 0) + 1)
    most = Math.max(most, running.get(account) as number)
    const { ms } = job.data
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      // Some do not listen.
      if (ms % 2 === 0)
        signal?.addEventListener('abort', () => {
          clearTimeout(timer)
          resolve()
        })
    })
    running.set(account, (running.get(account) as number) - 1)
    if (signal?.aborted || (ms === 3 && job.attemptsMade === 0)) throw new Error('told to')
  }
  for (let i = 0; i < 2; i++) shop.worker(queue, processor, { concurrency: 8 })
  for (let round = 0; round < 30; round++) {
    const adds = Array.from({ length: 12 }, (_, i) =>
      others[i % 3]?.add('job', { ms: (round + i) % 7 }, of(`a${i % 4}`, { attempts: 3, backoff: 3 })),
    )
    await Promise.all(adds)
  }
  await expect.poll(() => queue.getJobCountByTypes('prioritized', 'delayed', 'active'), { timeout: 20_000 }).toBe(0)
  expect(most).toBe(1)
  const newest = new Map<string, Job>()
  for (const [, fields] of await client.xrange(queue.toKey('events'), '-', '+')) {
    const job = fields[1] === 'added' ? ((await queue.getJob(fields[3] as string)) as Job) : undefined
    if (job) newest.set((job.opts as ShapedJobsOptions).keys?.account as string, job)
  }
  const states = await Promise.all([...newest.values()].map((job) => job.getState()))
  expect(states).toEqual(Array(4).fill('completed'))
  const wrong = (await queue.getFailed()).filter(({ failedReason }) => !/replaces it$/.test(failedReason))
  expect(wrong.map(({ id, failedReason }) => [id, failedReason])).toEqual([])
})

test('the job of a worker that was killed is replaced once its lock has ended, and does not run again', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')] })
  const script = new URL('../cancel/programs/waiting-worker.ts', import.meta.url)
  const program = processes.fork(script, { args: [redis.url, prefix, queue.name] })
  const first = await queue.add('job', {}, of('a', { attempts: 5 }))
  await program.waitFor('begun')
  await program.kill('SIGKILL')
  const next = await queue.add('job', {}, of('a'))
  const begun = new Seen<string>()
  const worker = shop.worker(queue, async (job) => begun.add(job.id as string), { stalledInterval: 200 })
  const [failed, completed] = [eventsOf<Job>('failed', worker), eventsOf('completed', worker)]
  await Promise.all([completed.reach(1), failed.reach(1)])
  expect(begun.all).toEqual([next.id])
  expect(failed.all).toMatchObject([{ id: first.id, failedReason: failure(next) }])
})

test.each(['cancel-newest', 'cancel-running'] as const)(
  '%s: two of a key in one bulk are refused, and jobs of one flow leave each other alone',
  async (onConflict) => {
    const queue = shop.queue({ groups: {}, limits: [one(onConflict, { by: 'group' })] })
    const group = { group: { id: 'g' } }
    const bulk = ['a', 'b', 'a'].map((id) => ({ name: 'job', data: {}, opts: { group: { id } } }))
    await expect(queue.addBulk(bulk)).rejects.toMatchObject({
      name: 'KeyInUseError',
      keys: { group: 'a' },
      jobId: undefined,
    })
    expect(await queue.getJobCountByTypes('prioritized')).toBe(0)
    const long = Array.from({ length: 400 }, (_, i) => ({ ...bulk[0], opts: { group: { id: `g${i % 399}` } } }))
    await expect(queue.addBulk(long as never)).rejects.toMatchObject({ name: 'KeyInUseError', keys: { group: 'g0' } })
    expect(await queue.getJobCountByTypes('prioritized')).toBe(0)
    await queue.addBulk(bulk.slice(1))
    const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
    const child = { name: 'child', queueName: queue.name, opts: group }
    const flow = { name: 'parent', queueName: queue.name, opts: group, children: [child, child] }
    const { job, children } = await flows.add(flow as never)
    expect(await queue.getJobCounts('prioritized', 'waiting-children', 'failed')).toEqual({
      ...{ prioritized: 4, 'waiting-children': 1, failed: 0 },
    })
    const again = flows.add(flow as never)
    if (onConflict === 'cancel-newest') await expect(again).rejects.toMatchObject({ name: 'KeyInUseError' })
    else await again
    const replaced = onConflict === 'cancel-running'
    for (const each of [job, ...(children ?? []).map((node) => node.job)]) expect(await each.isFailed()).toBe(replaced)
  },
)

test('a job that is added again by its id replaces nothing', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')] })
  const begun = new Seen<Job>()
  const open = gate()
  const worker = shop.worker(queue, async (job) => {
    begun.add(job)
    await open.opened
  })
  await queue.add('job', {}, of('a', { jobId: 'first' }))
  await begun.reach(1)
  const next = await queue.add('job', {}, of('a'))
  await queue.add('job', {}, of('a', { jobId: 'first' }))
  expect(await next.getState()).toBe('prioritized')
  open.open()
  await eventsOf('completed', worker).reach(2)
})

test('the next iteration of a scheduler stays, and what stock producers add counts once it runs', async () => {
  const queue = shop.queue({ limits: [one('cancel-running')] })
  await queue.upsertJobScheduler('often', { every: 3_600_000 }, { name: 'job', opts: of('a') as never })
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  await stock.addBulk([1, 2].map(() => ({ name: 'job', data: {}, opts: of('a') as never })))
  const begun = new Seen<Job>()
  const worker = shop.worker(
    queue,
    (job, _token, signal) => {
      begun.add(job)
      return job.name === 'last' ? Promise.resolve() : untilAborted(signal)
    },
    { concurrency: 9 },
  )
  const [failed, completed] = [eventsOf<Job>('failed', worker), eventsOf<Job>('completed', worker)]
  // The iteration that is due, or one of those of the stock producer.
  const [running] = await begun.reach(1)
  await queue.add('last', {}, of('b'))
  await completed.reach(1)
  const next = await queue.add('next', {}, of('a'))
  expect(await failed.reach(1)).toMatchObject([{ id: running?.id, failedReason: failure(next) }])
  await begun.reach(3)
  expect(await queue.getJobCountByTypes('failed')).toBe(1)
  expect(await queue.getDelayedCount()).toBe(1)
  await queue.cancelJobs({}, { reason: 'test' })
  await expect.poll(() => queue.getJobCountByTypes('active', 'prioritized')).toBe(0)
})

test('a retry by the operator counts as a job that is there', async () => {
  const queue = shop.queue({ limits: [one('cancel-newest')] })
  const job = await queue.add('job', {}, of('a'))
  expect(await queue.cancelJob(job.id as string, { reason: 'test' })).toBe('failed')
  await changeFailed(queue, job.id as string, { kind: 'retry' })
  await expect(queue.add('job', {}, of('a'))).rejects.toMatchObject(inUse('a', job.id))
})

test('in shadow mode of the queue or the limit nothing is refused or cancelled', async () => {
  for (const shape of [
    { mode: 'shadow', limits: [one('cancel-newest')] },
    { mode: 'shadow', limits: [one('cancel-running')] },
    { limits: [one('cancel-running', { mode: 'shadow' })] },
  ] as const) {
    const queue = shop.queue(shape)
    for (let i = 0; i < 2; i++) await queue.add('job', {}, of('a'))
    expect(await queue.getJobCounts('prioritized', 'failed')).toEqual({ prioritized: 2, failed: 0 })
  }
})

test('what a value may have at once cannot be set', async () => {
  const queue = shop.queue({ limits: [one('cancel-newest')] })
  const set = queue.setLimit('sync', 'a', { concurrency: 2 }, { by: 'ops', reason: 'test' })
  await expect(set).rejects.toThrow('limit "sync" has onConflict, which needs')
})

test.each([
  [{ concurrency: 2 }, 'concurrency: 1 and by; got {"algorithm":"concurrency","concurrency":2,"by":"account"}'],
  [{ by: undefined }, 'and by; got'],
  [{ algorithm: 'gcra', concurrency: undefined, rate: '1/s' }, "needs algorithm: 'concurrency'"],
  [{ unit: 'tokens' }, 'leave unit out'],
  [{ shared: true }, 'leave shared out'],
  [{ onConflict: 'cancel' }, "onConflict must be 'wait', 'cancel-newest' or 'cancel-running'"],
])('onConflict with %j is refused', (more, text) => {
  expect(() => encodeQueueLimits([one('wait', more as never)])).toThrow(text)
})
