import { setTimeout as sleep } from 'node:timers/promises'
import { DelayedError, type Job } from 'bullmq'
import fc from 'fast-check'
import { expect, onTestFinished, test, vi } from 'vitest'
import { ShapedQueue, type ShapedQueueOptions, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)

/** How a call of a worker's loop goes wrong. It runs, unless it is refused. */
type Fault = 'none' | 'sent twice' | 'unanswered' | 'answered late' | 'refused'
/** What happens to the queue after such a call has run, and before it is sent again or answered. */
type Change =
  | 'nothing'
  | 'a rate comes'
  | 'rate and limits go'
  | 'the meter pauses'
  | 'the queue pauses'
  | 'the worker pauses'
/** How a job ends. */
type Course =
  | 'completes'
  | 'returns much'
  | 'is not kept'
  | 'is kept by none'
  | 'is retried'
  | 'is retried later'
  | 'puts itself off'
  | 'fails'

const SHAPES: Readonly<Record<string, ShapedQueueOptions['shape'] | null>> = {
  'no shape': null,
  'nothing that holds': { capacity: 1000 },
  'a rate': { rate: '1000/s', burst: 4 },
  'an open rate': { rate: '100000/s', burst: 1000 },
  'a limit': { limits: [{ name: 'window', rate: '1000/s', burst: 5 }] },
  'a limit on running jobs': { limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 3 }] },
  groups: { groups: {} },
  'groups under limits': { groups: { concurrency: 2, rate: '500/s' } },
}

const faultOf = fc.constantFrom<Fault>('none', 'none', 'none', 'sent twice', 'unanswered', 'answered late', 'refused')
const changeOf = fc.constantFrom<Change>(
  'nothing',
  'nothing',
  'nothing',
  'a rate comes',
  'rate and limits go',
  'the meter pauses',
  'the queue pauses',
  'the worker pauses',
)
const courses: Course[] = [
  'completes',
  'returns much',
  'is not kept',
  'is kept by none',
  'is retried',
  'is retried later',
  'puts itself off',
  'fails',
]
const storyOf = fc.record({
  shape: fc.constantFrom(...Object.keys(SHAPES)),
  concurrency: fc.constantFrom(1, 3, 12),
  jobs: fc.array(fc.record({ course: fc.constantFrom(...courses), priority: fc.constantFrom(0, 0, 1) }), {
    minLength: 1,
    maxLength: 25,
  }),
  faults: fc.array(faultOf, { minLength: 5, maxLength: 40 }),
  changes: fc.array(changeOf, { maxLength: 5 }),
  functions: fc.constantFrom(undefined, undefined, 'never' as const),
})
type Story = typeof storyOf extends fc.Arbitrary<infer S> ? S : never

const OPTIONS: Readonly<Record<Course, object>> = {
  completes: {},
  'returns much': {},
  'is not kept': { removeOnComplete: true },
  'is kept by none': { removeOnComplete: { count: 0 } },
  'is retried': { attempts: 2 },
  'is retried later': { attempts: 2, backoff: 1 },
  'puts itself off': {},
  fails: { attempts: 1 },
}
const RUNS: Readonly<Record<Course, number>> = {
  completes: 1,
  'returns much': 1,
  'is not kept': 1,
  'is kept by none': 1,
  'is retried': 2,
  'is retried later': 2,
  'puts itself off': 2,
  fails: 1,
}
/** Some of these are more than one call ends together. */
const MUCH = 'x'.repeat(60_000)
const LOST = 'Command timed out'
/** More in a row only make a worker wait longer between two sendings. */
const MOST_FAILURES = 4
/** s. How long a worker waits for a marker. */
const LONGEST_WAIT_S = 10
/** Without a number, the same few stories each time. */
const { UNANSWERED_STORIES: MORE_STORIES } = process.env

let stories = 0

const BY = { by: 'test', reason: 'between two sendings' }

/** A pause ends by itself. */
async function change(
  queue: ShapedQueue,
  worker: ShapedWorker,
  what: Change | undefined,
  ends: Promise<unknown>[],
): Promise<void> {
  switch (what) {
    case 'a rate comes':
      return queue.setShape({ rate: '2000/s' }, BY)
    case 'rate and limits go':
      return queue.setShape({ rate: null, limits: null }, BY)
    case 'the meter pauses':
      return queue.pauseUntil(Date.now() + 20, BY)
    case 'the queue pauses':
      await queue.pause()
      ends.push(sleep(20).then(() => queue.resume()))
      return
    case 'the worker pauses':
      ends.push(worker.pause(true).then(() => worker.resume()))
  }
}

/** Each call of the worker's loop goes wrong as the story says, in turn. */
async function disturb(worker: ShapedWorker, faults: readonly Fault[], between: () => Promise<void>): Promise<void> {
  const client = (await worker.getBackend().client) as unknown as Record<
    'runCommand',
    (name: string, args: unknown[]) => Promise<unknown>
  >
  const run = client.runCommand.bind(client)
  let [calls, failures] = [0, 0]
  client.runCommand = async (name, args) => {
    if (!/:(exchange|retryJob)$/.test(name)) return run(name, args)
    const next = faults[calls++]
    failures = next === 'unanswered' || next === 'refused' ? failures + 1 : 0
    const fault = failures > MOST_FAILURES ? 'none' : next
    if (fault === 'refused') throw new Error('READONLY You cannot write against a read only replica.')
    const reply = await run(name, args)
    if (fault === 'none' || fault === undefined) return reply
    // A job that puts itself off could run again, and end, before its processor hears of it.
    if (!args.includes('delayed 1 0 0')) await between()
    if (fault === 'answered late') return reply
    if (fault === 'unanswered') throw new Error(LOST)
    return run(name, args)
  }
}

/** @returns how often the worker waited for a marker in vain, and asked only then */
function countMissed({ backend }: ShapedWorker): () => number {
  const wait = backend.waitForJob.bind(backend)
  let missed = 0
  backend.waitForJob = async (timeoutS) => {
    const marker = await wait(timeoutS)
    if (!marker && timeoutS === LONGEST_WAIT_S) missed += 1
    return marker
  }
  return () => missed
}

async function expectOneRunEach({ shape, concurrency, jobs, faults, changes, functions }: Story): Promise<void> {
  const { connection, prefix } = redis
  const name = `story${stories++}`
  const shapeOf = SHAPES[shape]
  const queue = new ShapedQueue(name, { connection, prefix, ...(shapeOf ? { shape: shapeOf } : {}) })
  const isGrouped = shape.startsWith('groups')
  const added = await queue.addBulk(
    jobs.map(({ course, priority }, i) => ({
      name: 'job',
      data: { course },
      opts: { ...OPTIONS[course], ...(isGrouped ? { group: { id: `g${i % 3}` } } : { priority }) },
    })),
  )
  const runs = new Map(added.map(({ id }) => [id, 0]))
  const process = async (job: Job, token?: string) => {
    const run = (runs.get(job.id) ?? 0) + 1
    runs.set(job.id, run)
    const { course } = job.data as { course: Course }
    if (course === 'fails' || (run === 1 && course.startsWith('is retried'))) throw new Error('failed')
    if (course === 'puts itself off' && run === 1) {
      await job.moveToDelayed(Date.now() + 1, token)
      throw new DelayedError()
    }
    return course === 'returns much' ? MUCH : undefined
  }
  const worker = new ShapedWorker(name, process, {
    connection,
    prefix,
    concurrency,
    ...(functions ? { functions } : {}),
    autorun: false,
    allowUnshaped: true,
    report: false,
    drainDelay: 2 * LONGEST_WAIT_S,
  })
  const missed = countMissed(worker)
  const errors: string[] = []
  worker.on('error', ({ message }) => errors.push(message))
  await worker.waitUntilReady()
  const pauses: Promise<unknown>[] = []
  const next = [...changes]
  await disturb(worker, faults, () => change(queue, worker, next.shift(), pauses))
  worker.run()
  const counts = () => queue.getJobCounts('wait', 'prioritized', 'active', 'delayed', 'completed', 'failed')
  const ends = (...of: Course[]) => jobs.filter(({ course }) => of.includes(course)).length
  const failed = ends('fails')
  try {
    await expect.poll(counts, { timeout: 60_000, interval: 20 }).toEqual({
      wait: 0,
      prioritized: 0,
      active: 0,
      delayed: 0,
      completed: jobs.length - failed - ends('is not kept', 'is kept by none'),
      failed,
    })
    expect(missed()).toBe(0)
    expect([...runs.values()]).toEqual(jobs.map(({ course }) => RUNS[course]))
    expect(errors.filter((message) => message !== LOST && !message.startsWith('READONLY'))).toEqual([])
  } finally {
    await worker.close()
    await Promise.all(pauses)
    await queue.close()
  }
}

test('whatever becomes of the calls of a worker, each of its jobs runs as often as it is to', {
  timeout: MORE_STORIES ? 3_600_000 : 600_000,
}, async () => {
  // Without a shape at first.
  const early: Story = {
    shape: 'no shape',
    concurrency: 1,
    jobs: [{ course: 'completes', priority: 0 }],
    faults: ['sent twice'],
    changes: ['a rate comes'],
    functions: undefined,
  }
  const chosen = MORE_STORIES ? { numRuns: Number(MORE_STORIES) } : { numRuns: 40, seed: 7 }
  const property = fc.asyncProperty(storyOf, expectOneRunEach)
  await fc.assert(property, { ...chosen, endOnFailure: true, examples: [[early]] })
})

/** A queue, and a worker of it whose jobs named `first` run until `end`. */
function scene(name: string, shape: NonNullable<ShapedQueueOptions['shape']>) {
  const { connection, prefix } = redis
  const queue = new ShapedQueue(name, { connection, prefix, shape })
  const completed: string[] = []
  let release = () => {}
  const end = () => release()
  const process = (job: Job) =>
    job.name === 'first' ? new Promise<void>((resolve) => (release = resolve)) : Promise.resolve()
  const work = (options: { concurrency: number; drainDelay?: number }) => {
    const worker = new ShapedWorker(name, process, { connection, prefix, report: false, ...options })
    worker.on('completed', (job) => completed.push(job.name))
    onTestFinished(async () => {
      end()
      await worker.close()
      await queue.close()
    })
    return worker
  }
  return { queue, completed, end, work }
}

test('a request without an answer is sent again although a job ends before, whose reply says that none waits', async () => {
  const { queue, completed, end, work } = scene('ends-before', { capacity: 10 })
  const worker = work({ concurrency: 3 })
  worker.on('error', end)
  await queue.add('first', {})
  await expect.poll(() => queue.getActiveCount()).toBe(1)
  await disturb(worker, ['unanswered'], async () => {})
  await queue.add('second', {})
  await expect.poll(() => completed, { timeout: 4000 }).toEqual(['first', 'second'])
})

test('a delayed job starts when it is due although the grant before was sent again', async () => {
  const { queue, completed, work } = scene('due', { capacity: 10 })
  const worker = work({ concurrency: 3, drainDelay: 60 })
  worker.on('error', () => {})
  await queue.add('delayed', {}, { delay: 1500 })
  // The worker alone knows when that is due.
  await expect.poll(() => redis.client().exists(queue.toKey('marker'))).toBe(0)
  await disturb(worker, ['unanswered'], async () => {})
  await queue.add('first', {})
  // Its wait for a marker lasts 10 s.
  await expect.poll(() => completed, { timeout: 8000 }).toEqual(['delayed'])
})

test('a delayed job starts when it is due although a reply from before it was added comes later', async () => {
  const { queue, completed, end, work } = scene('older-reply', { capacity: 10 })
  await queue.add('first', {})
  const worker = work({ concurrency: 3, drainDelay: 60 })
  const waits = vi.spyOn(worker.backend, 'waitForJob')
  await expect.poll(() => waits.mock.calls).toHaveLength(1)
  let calls = 0
  // The reply to an end that was sent twice says nothing of other jobs: the worker asks, and still waits for a marker.
  await disturb(worker, ['sent twice', 'answered late'], async () => {
    calls += 1
    if (calls === 1) return
    await queue.add('delayed', {}, { delay: 1500 })
    // The worker has it, and knows alone when the job is due.
    await expect.poll(() => redis.client().exists(queue.toKey('marker'))).toBe(0)
    await sleep(50)
  })
  end()
  // Its wait for a marker lasts 10 s.
  await expect.poll(() => completed, { timeout: 8000 }).toEqual(['first', 'delayed'])
})

test('a grant is repeated however many jobs ended before it is asked for again', async () => {
  const { queue, completed, end, work } = scene('many-ends', { groups: {} })
  const opts = { group: { id: 'a' } }
  const worker = work({ concurrency: 2 })
  worker.on('error', () => {})
  await queue.add('first', {}, opts)
  await expect.poll(() => queue.getActiveCount()).toBe(1)
  // Each end fetches the next job, and so is remembered as well.
  await disturb(worker, ['unanswered'], async () => {
    end()
    await expect.poll(() => completed.length).toBeGreaterThan(80)
  })
  await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'next', data: {}, opts })))
  await expect.poll(() => completed.length, { timeout: 15_000 }).toBe(101)
})

test.each(['close', 'pause'] as const)('jobs of a lost reply go back at a %s', async (stop) => {
  const { connection, prefix } = redis
  const queue = new ShapedQueue(stop, { connection, prefix, shape: { rate: '100/s', burst: 2 } })
  const process = async () => {}
  const worker = new ShapedWorker(stop, process, { connection, prefix, concurrency: 3, report: false, autorun: false })
  worker.on('error', () => {})
  try {
    const added = await queue.addBulk(Array.from({ length: 4 }, () => ({ name: 'job', data: {} })))
    await worker.waitUntilReady()
    const stops: Promise<void>[] = []
    await disturb(worker, ['unanswered'], async () => {
      stops.push(worker[stop]())
    })
    await worker.run()
    await Promise.all(stops)
    expect(await queue.getJobCounts('wait', 'active', 'completed')).toEqual({ wait: 4, active: 0, completed: 0 })
    expect((await queue.getWaiting()).map(({ id }) => id)).toEqual(added.map(({ id }) => id))
  } finally {
    await worker.close()
    await queue.close()
  }
})
