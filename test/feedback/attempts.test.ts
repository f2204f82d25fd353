import { Queue } from 'bullmq'
import { describe, expect, test } from 'vitest'
import { profiles } from '../../src/egress/index.ts'
import { checkFeedbackOptions } from '../../src/feedback/options.ts'
import {
  type FeedbackChange,
  InvalidInputError,
  type JobVerdict,
  ShapedJob,
  type ShapedWorkerOptions,
} from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, Workshop } from '../worker/support.ts'
import { ears, said, Told } from './support/told.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const SHAPE = { rate: '1000/s' } as const

/** A queue of one job, and a worker whose processor meets the given ends, one for each call. */
async function run(ends: readonly unknown[], options: Partial<ShapedWorkerOptions> = {}, jobOptions = {}) {
  const queue = shop.queue(SHAPE)
  let calls = 0
  const job = await queue.add('job', {}, jobOptions)
  const worker = shop.worker(
    queue,
    async () => {
      const end = ends[calls]
      calls += 1
      if (end instanceof Error) throw end
      return end
    },
    { feedback: ears, ...options },
  )
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  const departed = departuresOf(worker)
  return { queue, job, worker, completed, failed, departed, calls: () => calls }
}

const pause = (forMs: number) => new Told({ kind: 'pause', forMs, hard: false, ...said })

test('throttled attempts use up none of the attempts', async () => {
  const { completed, failed, calls } = await run([pause(1), pause(1), pause(1), 'sent'])
  await completed.reach(1)
  expect(calls()).toBe(4)
  expect(completed.all[0]).toMatchObject({ attemptsMade: 1, attemptsStarted: 1, returnvalue: 'sent' })
  expect(failed.all).toEqual([])
})

test('what is said of one job alone is told once each time, and explain has the reason', async () => {
  const retry = (reason: string, afterMs?: number) => {
    const time = afterMs === undefined ? {} : { afterMs }
    return new Told({ kind: 'retryJob', ...said, reason, ...time })
  }
  const fatal = new Told({ kind: 'fatal', ...said, reason: '550' })
  const options = { attempts: 3, backoff: { type: 'fixed', delay: 1 } }
  const { failed, queue, job, worker } = await run([retry('grey', 20), retry('busy'), pause(1), fatal], {}, options)
  const verdicts: JobVerdict[] = []
  const inspector = shop.keep(new Inspector({ connection: redis.connection, prefix: redis.prefix }))
  worker.on('verdict', (_, verdict) => verdicts.push(verdict))
  await failed.reach(2)
  const found = await inspector.explain(queue.name, job.id as string)
  expect(found).toMatchObject({ throttledFor: '429', failedReason: 'told (550)' })
  expect(verdicts).toEqual([
    { kind: 'retryJob', reason: 'grey', afterMs: 20 },
    { kind: 'retryJob', reason: 'busy' },
    { kind: 'fatal', reason: '550' },
  ])
})

test('throttled for giveUpAfterMs since it first started, the job fails, and says why', async () => {
  const { failed, calls, queue, departed } = await run(
    Array(99).fill(pause(20)),
    { giveUpAfterMs: 1000 },
    { attempts: 1 },
  )
  await failed.reach(1)
  const [first, last] = [departed.all[0]!, departed.all.at(-1)!]
  expect(calls()).toBeGreaterThan(1)
  expect(failed.all[0]!.failedReason).toBe(
    `told (given up after 1s: throttled ${calls()} times, most recently for 429)`,
  )
  expect(failed.all[0]!.finishedOn! - first.departedAtUs / 1000).toBeGreaterThanOrEqual(999)
  // The one before was within the time.
  const before = departed.all.at(-2)!
  expect(before.departedAtUs).toBeLessThan(last.departedAtUs)
  expect(await queue.getJobCounts('failed', 'wait', 'active', 'delayed')).toMatchObject({
    failed: 1,
    wait: 0,
    active: 0,
  })
})

test('a fatal answer fails the job at once, however many attempts are left', async () => {
  const { failed, calls } = await run([new Told({ kind: 'fatal', ...said, reason: '400' })], {}, { attempts: 5 })
  await failed.reach(1)
  expect(calls()).toBe(1)
  expect(failed.all[0]).toMatchObject({ failedReason: 'told (400)', attemptsMade: 1 })
})

test('a job that has to come again later does not start before', async () => {
  const { completed, departed, queue } = await run([new Told({ kind: 'retryJob', afterMs: 150, ...said }), 'sent'])
  await completed.reach(1)
  const [first, second] = departed.all
  expect(second!.departedAtUs - first!.departedAtUs).toBeGreaterThanOrEqual(149_000)
  expect(completed.all[0]!.attemptsMade).toBe(1)
  // Others were not held for it.
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('a failure without a time uses up an attempt, and backs off where the job does not say how', async () => {
  const fails = new Told({ kind: 'retryJob', ...said })
  const { failed, job, queue } = await run([fails], {}, { attempts: 2 })
  await failed.reach(1)
  expect(failed.all[0]).toMatchObject({ attemptsMade: 1 })
  expect(failed.all[0]!.opts.backoff).toEqual({ type: 'exponential', delay: 1000, jitter: 1 })
  const state = await queue.getJobState(job.id as string)
  expect(['delayed', 'waiting', 'active', 'failed']).toContain(state)
})

describe('an HTTP response that is returned', () => {
  const response = (status: number) => new Response('', { status, headers: { 'retry-after-ms': '5' } })
  const back = { attempts: 3, backoff: 1 }

  test.each([429, 503])('%i comes again, and uses up no attempt', async (status) => {
    const { completed, failed, calls } = await run([response(status), 'sent'], { feedback: profiles.http }, back)
    await completed.reach(1)
    expect(calls()).toBe(2)
    expect(completed.all[0]).toMatchObject({ attemptsMade: 1, returnvalue: 'sent' })
    expect(failed.all).toEqual([])
  })

  test.each([500, 502])('%i is an attempt that failed: the next comes after its backoff', async (status) => {
    const ends = [new Response('', { status }), 'sent']
    const { completed, failed, calls } = await run(ends, { feedback: profiles.http }, back)
    await completed.reach(1)
    expect(calls()).toBe(2)
    expect(completed.all[0]).toMatchObject({ attemptsMade: 2, returnvalue: 'sent' })
    expect(failed.all.map(({ failedReason }) => failedReason)).toEqual([`the processor returned a failure: ${status}`])
  })

  test.each([200, 400, 401, 404])('%i is the result of the job', async (status) => {
    const { completed, failed, calls } = await run([response(status)], { feedback: profiles.http }, back)
    await completed.reach(1)
    expect([calls(), failed.all, completed.all[0]!.attemptsMade]).toEqual([1, [], 1])
  })
})

test.each(['retry', 'retryJobs'])('a job that failed and is put back by %s begins to count anew', async (how) => {
  // Its second start comes after that time, however slow the machine is; after the retry, every start comes before.
  const { queue, job, completed, failed, calls } = await run([pause(2200), pause(1), pause(1)], { giveUpAfterMs: 2000 })
  await failed.reach(1)
  expect(calls()).toBe(2)
  const stock = shop.keep(new Queue(queue.name, { connection: redis.connection, prefix: redis.prefix }))
  if (how === 'retry') await (await stock.getJob(job.id as string))!.retry('failed')
  else await stock.retryJobs({ state: 'failed' })
  await completed.reach(1)
  expect([calls(), failed.all.length]).toEqual([4, 1])
})

test('errors that nothing is found in are as ever', async () => {
  const { completed, failed, calls, queue } = await run([new Error('own'), 'sent'], {}, { attempts: 2 })
  await completed.reach(1)
  expect([calls(), failed.all.length]).toEqual([2, 1])
  expect((await queue.meter()).feedback).toBeUndefined()
})

test('a processor speaks for itself: what it says is applied before it ends, and what it throws then is no failure', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk(jobs(2))
  let calls = 0
  const worker = shop.worker(queue, async (job) => {
    calls += 1
    if (calls > 1) return
    const said = job as ShapedJob
    await expect(said.feedback({ kind: 'pause', forMs: -1 })).rejects.toThrow('forMs must be a number >= 0; got -1')
    await said.feedback({ kind: 'pause', forMs: 200, reason: 'maintenance' })
    expect(await queue.meter()).toMatchObject({ cause: 'meter paused', pauseReason: 'maintenance' })
    throw new Error('not now')
  })
  const [completed, failed, departed] = [
    eventsOf('completed', worker),
    eventsOf('failed', worker),
    departuresOf(worker),
  ]
  await completed.reach(2)
  expect(failed.all).toEqual([])
  expect(departed.all.map(({ name }) => name)).toEqual(['job0', 'job0', 'job1'])
  expect(departed.all[1]!.departureTimeUs - departed.all[0]!.departureTimeUs).toBeGreaterThan(200_000)
})

test.each([
  ['at its own backoff', { kind: 'pause', forMs: undefined, hard: true, ...said }, { type: 'fixed', delay: 1 }],
  [
    'not before the time that was given',
    { kind: 'pause', forMs: 40, hard: true, ...said },
    { type: 'fixed', delay: 40 },
  ],
] as const)('a job that goes on being refused alone uses up its attempts, %s', async (_, feedback, backoff) => {
  const { worker, failed, calls } = await run(Array(5).fill(new Told(feedback)), {}, { attempts: 2, backoff: 1 })
  // As Redis answers after some refusals while others went well.
  const { store } = worker.getBackend()
  store.change = async () => [1, [], '[]', 3, -2]
  await failed.reach(2)
  expect([calls(), failed.all.map(({ attemptsMade }) => attemptsMade)]).toEqual([2, [1, 2]])
  expect(failed.all[0]!.opts.backoff).toMatchObject(backoff)
})

test('jobs that always meet the statement timeout hold no other', async () => {
  const queue = shop.queue(SHAPE)
  await queue.addBulk([...jobs(3).map((job) => ({ ...job, name: 'bad' })), ...jobs(30)])
  const slow = { kind: 'slow', factor: 0.7, ...said, reason: '57014' } as const
  const processor = async ({ name }: { name: string }) => {
    if (name === 'bad') throw new Told(slow, { kind: 'retryJob', ...said })
  }
  const worker = shop.worker(queue, processor, { feedback: ears, concurrency: 2 })
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await completed.reach(30)
  expect(failed.all).toEqual([])
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

const NO_SCOPES = [{ group: '' }, 'acme', { limits: 'x' }, { limit: 'x', group: 'acme' }, null]

test.each(NO_SCOPES)('feedback for an unknown scope is refused, and holds nothing: %j', async (scope) => {
  const group = { kind: 'pause', forMs: 60_000, hard: true, ...said, scope } as never
  const { completed, worker, calls } = await run(
    [new Told(group), 'sent'],
    { feedback: ears },
    { attempts: 2, backoff: 1 },
  )
  const [errors, changes] = [eventsOf<Error>('error', worker), eventsOf('feedback', worker)]
  await completed.reach(1)
  expect([calls(), changes.all]).toEqual([2, []])
  expect(errors.all.map(({ message }) => message)).toEqual([
    `scope must be 'queue', 'group', { limit: 'a name' } or { group: 'an id' }; got ${JSON.stringify(scope)}`,
  ])
})

const pauseOf = (scope: unknown) => ({ kind: 'pause', forMs: 60_000, scope })

test.each<[object, string]>([
  ...NO_SCOPES.map((scope): [object, string] => [pauseOf(scope), "scope must be 'queue', 'group',"]),
  [{ kind: 'pause', formMs: 60_000 }, "has no option 'formMs'; it has kind, scope, reason, forMs, until, hard"],
  [{ kind: 'slow', factor: 0.5, forMs: 60_000 }, "kind slow has no option 'forMs'"],
])('a processor that says %j is told so, and nothing is held', async (said, message) => {
  const queue = shop.queue(SHAPE)
  await queue.add('job', {})
  const worker = shop.worker(queue, (job) => (job as ShapedJob).feedback(said as never))
  const failed = eventsOf('failed', worker)
  await failed.reach(1)
  expect(failed.all[0]!.failedReason).toContain(message)
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test('outside a processor nobody listens to a job', async () => {
  const queue = shop.queue(SHAPE)
  const job = await queue.add('job', {})
  const outside = new ShapedJob(queue as never, 'job', {}, {}, job.id)
  await expect(outside.feedback({ kind: 'ok' })).rejects.toThrow(InvalidInputError)
})

test('every change is an event of the worker, of QueueEvents, and of the meter', async () => {
  const queue = shop.queue(SHAPE)
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  const heard = eventsOf<{ change: string }>('feedback', events as never)
  await queue.add('job', {})
  let calls = 0
  const worker = shop.worker(
    queue,
    async () => {
      if (calls++ === 0) throw new Told({ kind: 'concurrency', limit: 1, ttlMs: 60_000, ...said })
    },
    { feedback: ears },
  )
  const changes = eventsOf<FeedbackChange>('feedback', worker)
  await heard.reach(1)
  await changes.reach(1)
  expect(JSON.parse(heard.all[0]!.change)).toMatchObject({
    kind: 'concurrency',
    limit: 1,
    by: worker.id,
    reason: '429',
  })
  expect(changes.all[0]).toMatchObject({ kind: 'concurrency', limit: 1 })
  expect((await queue.meter()).feedback).toMatchObject({ concurrency: 1, last: { kind: 'concurrency' } })
  expect(await queue.getGlobalConcurrency()).toBe(1)
})

test('options at their ends are taken', () => {
  const adapt = { decrease: 0.001, increase: 1, quietMs: 1 }
  expect(checkFeedbackOptions({ adapt, giveUpAfterMs: 0 })).toEqual({
    ...{ source: undefined, scope: 'queue', adapt, giveUpAfterMs: 0 },
  })
  expect(checkFeedbackOptions({ adapt: { floor: '5/min' } }).adapt).toEqual({
    ...{ decrease: 0.7, increase: 0.01, quietMs: 10_000, floor: [5, 60_000] },
  })
  expect(checkFeedbackOptions({ adapt: false })).toMatchObject({ adapt: undefined, giveUpAfterMs: 259_200_000 })
})

test.each([
  [{ feedback: {} }, 'feedback must be a profile, such as profiles.http; got {}'],
  [{ adapt: 1 }, 'adapt must be true, false or an object of options; got 1'],
  [{ adapt: null }, 'adapt must be true, false or an object of options; got null'],
  [{ adapt: { decrese: 0.5 } }, "adapt has no option 'decrese'"],
  [{ adapt: { decrease: 0 } }, 'adapt.decrease must be a number > 0 and < 1; got 0'],
  [{ adapt: { increase: 1.01 } }, 'adapt.increase must be a number > 0 and at most 1; got 1.01'],
  [{ adapt: { increase: '1' } }, 'adapt.increase must be a number > 0 and at most 1; got "1"'],
  [{ adapt: { quietMs: Number.POSITIVE_INFINITY } }, 'adapt.quietMs must be a number >= 1 (ms); got Infinity'],
  [{ adapt: { quietMs: 0.9 } }, 'adapt.quietMs must be a number >= 1 (ms); got 0.9'],
  [{ giveUpAfterMs: 1.5 }, 'giveUpAfterMs must be a whole number >= 0 (ms); got 1.5'],
  [{ adapt: { decrease: 1 } }, 'adapt.decrease must be a number > 0 and < 1; got 1'],
  [{ adapt: { increase: 0 } }, 'adapt.increase must be a number > 0 and at most 1; got 0'],
  [{ adapt: { quietMs: 0 } }, 'adapt.quietMs must be a number >= 1 (ms); got 0'],
  [{ adapt: { floor: 'fast' } }, 'rate'],
  [{ giveUpAfterMs: -1 }, 'giveUpAfterMs must be a whole number >= 0 (ms); got -1'],
])('the options %o are refused before anything is made', (options, text) => {
  const queue = shop.queue(SHAPE)
  expect(() => shop.worker(queue, async () => {}, options as never)).toThrow(text)
})
