import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { UnrecoverableError } from 'bullmq'
import { beforeEach, expect, test } from 'vitest'
import { type FeedbackSource, PauseQueueError, type ShapedJob, type ShapedWorkerOptions } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, Workshop } from '../worker/support.ts'
import { HeldLoop, ok, pause, slow } from './support/held-loop.ts'
import { ears, said, Told } from './support/told.ts'

// What a review of the loop looked for: each of these went wrong once.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const loop = new HeldLoop(redis, 'review')
const SHAPE = { rate: '1000/s' } as const

beforeEach(() => loop.queue.reset({ rate: '200/s' }))

/** A queue of one job, and a worker whose processor ends as it is told, call by call. */
async function run(
  ends: readonly ((job: ShapedJob) => unknown)[],
  options: Partial<ShapedWorkerOptions> = {},
  jobOptions = {},
) {
  const queue = shop.queue(SHAPE)
  let calls = 0
  await queue.add('job', {}, jobOptions)
  const worker = shop.worker(queue, async (job) => ends[calls++]?.(job as ShapedJob), options)
  const [completed, failed, errors] = [
    eventsOf('completed', worker),
    eventsOf('failed', worker),
    eventsOf<Error>('error', worker),
  ]
  return { queue, worker, completed, failed, errors, calls: () => calls }
}

const throwing = (error: unknown) => () => {
  throw error
}

test('what ends in the middle of a millisecond ends', async () => {
  await loop.tell(slow({ rate: { limit: 50, period: 1000 }, ttlMs: 100.5 }))
  expect(loop.rate).toBe(50)
  await loop.pass(101)
  expect(loop.rate).toBe(200)
})

test('an override too', async () => {
  const { store } = loop.queue.backend
  await store.override({ rate: [50, 1000] }, 'test', 'test', 100.5)
  expect(loop.rate).toBe(50)
  await loop.pass(101)
  expect(loop.rate).toBe(200)
})

test('calls that go well are told also where there is no profile', async () => {
  const { queue, worker, completed } = await run([throwing(new PauseQueueError({ hard: true }))])
  const changes = eventsOf<{ kind: string }>('feedback', worker)
  await completed.reach(1)
  await changes.reach(2)
  expect(changes.all.map(({ kind }) => kind)).toEqual(['pause', 'resumed'])
  expect((await queue.meter()).feedback).toMatchObject({ probing: false })
  expect(worker.getBackend().store.memory.stored?.feedback.pauses).toBeUndefined()
})

const hostile = (listen: () => unknown): FeedbackSource => ({ name: 'hostile', listen: listen as never })

test.each([
  ['throws', throwing(new Error('mine'))],
  ['finds nonsense', () => 'nonsense'],
  ['finds null', () => [null, { feedback: null }, {}]],
  ['finds unknown kinds', () => [{ feedback: { kind: 'stop' } }]],
])('a source that %s changes nothing of what became of the job', async (_, listen) => {
  const { completed, failed, errors, calls } = await run(
    [throwing(new Error('own')), () => 'sent'],
    { feedback: hostile(listen) },
    { attempts: 2 },
  )
  await completed.reach(1)
  expect([calls(), failed.all.map(({ failedReason }) => failedReason)]).toEqual([2, ['own']])
  expect(errors.all.length).toBeGreaterThan(0)
})

const NO_NUMBERS = [
  { kind: 'pause', forMs: Number.NaN, hard: false },
  { kind: 'slow', factor: Number.POSITIVE_INFINITY },
  { kind: 'slow', factor: 1e-320, ttlMs: 1000 },
  { kind: 'slow', factor: 0.5, ttlMs: Number.NaN },
  { kind: 'slow', rate: { limit: 0, period: 1000 } },
  { kind: 'slow', rate: { limit: 1, period: 1e308 }, ttlMs: 1000 },
  { kind: 'slow' },
  { kind: 'concurrency', limit: Number.NaN },
  { kind: 'concurrency', limit: 3, ttlMs: Number.POSITIVE_INFINITY },
]

test('numbers that are none still throttle the job that was refused', async () => {
  // Each queue waits for a second: all do so at once.
  const runs = NO_NUMBERS.map(async (numbers) => {
    const { completed, failed } = await run([throwing(new Told({ ...numbers, ...said } as never)), () => 'sent'], {
      feedback: ears,
      adapt: true,
    })
    const ends = () => [completed.all.length, failed.all]
    await expect.poll(ends, { message: inspect(numbers) }).toEqual([1, []])
  })
  await Promise.all(runs)
})

test('a refusal that was returned is not taken for the work where Redis may not be told of it', async () => {
  const { worker, failed, completed, calls } = await run(
    [() => new Told({ ...pause(1000), reason: '429' }), () => 'sent'],
    { feedback: ears },
    { attempts: 2 },
  )
  const { store } = worker.getBackend()
  store.change = () => Promise.reject(new Error('NOPERM this user has no permissions'))
  await completed.reach(1)
  expect([calls(), completed.all[0]!.returnvalue]).toEqual([2, 'sent'])
  expect(failed.all.map(({ failedReason }) => failedReason)).toEqual(['the processor returned a failure: 429'])
})

test('half a character in a reason is a reason all the same', async () => {
  const { changes } = await loop.tell({ ...pause(1000), reason: 'x\ud83d' }, { adapt: false })
  expect(changes).toMatchObject([{ kind: 'pause' }])
})

test('reasons are short, whoever gives them', async () => {
  const reason = 'x'.repeat(100_000)
  const ends = [new PauseQueueError({ retryAfterMs: 1, reason }), new Told({ ...pause(1), reason })].map(throwing)
  const { worker, completed } = await run(ends, { feedback: ears })
  const changes = eventsOf<{ reason: string }>('feedback', worker)
  await completed.reach(1)
  expect(changes.all.map((change) => change.reason.length)).toEqual([200, 200])
})

test('a policy that is told again and again is one change', async () => {
  const policyRate = { limit: 50, period: 1000 }
  const kinds = []
  for (let i = 0; i < 10; i++) {
    const { changes } = await loop.tell({ ...ok(), policyRate } as never)
    kinds.push(...changes.map(({ kind }) => kind))
    await loop.pass(2000)
  }
  expect(kinds).toEqual(['slow'])
  await loop.pass(570_000)
  expect(loop.rate).toBe(50)
})

test('a clock that goes back does not keep the rate down', async () => {
  await loop.tell(pause(1))
  expect(loop.rate).toBe(140)
  await loop.queue.advanceTo(loop.nowUs - 3_600_000_000)
  await loop.pass(0)
  await loop.tell(pause(), { sentUs: loop.nowUs - 1 })
  expect(loop.rate).toBe(98)
})

test('nor what it rises by', async () => {
  await loop.tell(slow({ factor: 0.7 }))
  await loop.queue.advanceTo(loop.nowUs - 3_600_000_000)
  await loop.tell(ok(), { oks: 1 })
  await loop.quiet(2000)
  expect(loop.rate).toBeCloseTo(142.8, 6)
})

test('a factor for a while does not lead to nothing, however often it is said', async () => {
  for (let i = 0; i < 30; i++) {
    await loop.pass(1000)
    await loop.tell(slow({ factor: 0.1, ttlMs: 600_000 }), { adapt: false })
  }
  expect(loop.rate).toBe(2)
})

test('a processor in a process of its own may pause the queue', async () => {
  const queue = shop.queue(SHAPE)
  await queue.add('job', {})
  const worker = shop.worker(queue, fileURLToPath(new URL('./support/pausing.cjs', import.meta.url)))
  const changes = eventsOf('feedback', worker)
  const [completed, failed] = [eventsOf('completed', worker), eventsOf('failed', worker)]
  await completed.reach(1)
  expect(failed.all).toEqual([])
  expect(changes.all).toMatchObject([{ kind: 'pause', reason: 'closed for lunch' }])
})

test('the lock of a job that went back is renewed when it runs here again', async () => {
  const queue = shop.queue({ concurrency: 10 })
  await queue.add('job', {})
  const [again, asked] = [gate(), gate()]
  let calls = 0
  const worker = shop.worker(
    queue,
    async () => {
      if (calls++ === 0) throw new Told({ kind: 'concurrency', limit: 5, ttlMs: 60_000, ...said })
      again.open()
      await asked.opened
    },
    { feedback: ears, concurrency: 2 },
  )
  // What BullMQ asks for after the first run is answered late.
  const inside = worker as unknown as {
    moveToActive(...args: unknown[]): Promise<unknown>
    lockManager: { trackedJobs: Map<string, unknown> }
    processJob(...args: unknown[]): Promise<unknown>
  }
  const { moveToActive, processJob } = inside
  inside.moveToActive = async (...args) => {
    await again.opened
    return moveToActive.apply(worker, args)
  }
  let ended: Promise<unknown> | undefined
  inside.processJob = (...args) => {
    const run = processJob.apply(worker, args)
    ended ??= run
    return run
  }
  await again.opened
  await ended
  expect(inside.lockManager.trackedJobs.size).toBe(1)
  asked.open()
  await eventsOf('completed', worker).reach(1)
})

test.each([
  ['throws', throwing(new Error('mine'))],
  ['is none', () => ({ limit: Number.NaN, sample: throwing(new Error('mine')), dropped() {} })],
])('a limit by latency that %s stops neither the worker nor its jobs', async (_, concurrencyLimit) => {
  const source = { ...ears, concurrencyLimit: concurrencyLimit as never }
  const { completed, errors, calls } = await run([() => 'sent'], { feedback: source, adapt: true }, { attempts: 2 })
  await completed.reach(1)
  expect(calls()).toBe(1)
  expect(errors.all.length).toBeGreaterThan(0)
})

test('a job that must not run again does not, whatever the other side said beside', async () => {
  const { queue, failed, calls } = await run([
    async (job) => {
      await job.feedback({ kind: 'pause', forMs: 60_000 })
      throw new UnrecoverableError('never again')
    },
  ])
  await failed.reach(1)
  expect([calls(), failed.all[0]!.failedReason]).toEqual([1, 'never again'])
  expect(await queue.meter()).toMatchObject({ cause: 'meter paused' })
})

test('a pause of one limit holds the jobs that meet it', async () => {
  const queue = shop.queue({ limits: [{ name: 'mine', algorithm: 'gcra', rate: '1000/s', burst: 10 }] })
  await queue.add('job', {})
  let calls = 0
  const worker = shop.worker(
    queue,
    async () => {
      if (calls++ === 0) throw new Told({ ...pause(300), scope: { limit: 'mine' } })
    },
    { feedback: ears },
  )
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  await completed.reach(1)
  expect(departed.all[1]!.departureTimeUs - departed.all[0]!.departureTimeUs).toBeGreaterThan(300_000)
  expect((await queue.meter()).pausedUntil).toBeUndefined()
})

test.each(['shadow', 'off'] as const)('a pause of one limit holds in mode %s', async (mode) => {
  await loop.queue.reset({ mode, limits: [{ name: 'mine', algorithm: 'gcra', rate: '1000/s', burst: 10 }] } as never)
  await loop.fill(1)
  await loop.tell({ ...pause(1000), scope: { limit: 'mine' } }, { adapt: false })
  expect(await loop.depart(1, 50_000)).toEqual([])
  await loop.pass(1000)
  expect(await loop.depart(1, 50_000)).toEqual([0])
})
