import type { Job, JobsOptions } from 'bullmq'
import { describe, test as testAlone } from 'vitest'
import { PauseQueueError, type ShapedWorker, type ShapedWorkerOptions } from '../../src/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { isRefusal, type Refusal, refusals } from './support/refusals.ts'

useConcurrentTests()

const JOBS = 20
const BURST = { rate: '1000/s', burst: JOBS }

/** How jobs end while Redis refuses. */
interface Ends {
  readonly shape?: object
  readonly jobs?: number
  readonly options?: JobsOptions
  readonly worker?: Partial<ShapedWorkerOptions>
  /** What the first run of each job does; the next one returns. */
  first?(job: Job, token?: string): Promise<unknown>
}

/** Jobs that run while Redis begins to refuse, and end before it is over. */
async function endWhileRefused(name: string, { args = [], begin, end }: Refusal, ends: Ends) {
  const { shape = BURST, jobs = JOBS, options = {}, worker = {}, first = async () => {} } = ends
  const service = await startOwnRedis({ args })
  const admin = adminOf(service.url)
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape })
  const all = Array.from({ length: jobs }, () => ({ name: 'job', data: {}, opts: options }))
  const ids = idsOf(await queue.addBulk(all))
  const runs = new Map(ids.map((id) => [id, 0]))
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  const process = async (job: Job, token?: string) => {
    const id = job.id as string
    runs.set(id, (runs.get(id) ?? 0) + 1)
    await opened
    if (runs.get(id) === 1) await first(job, token)
  }
  fleet.worker('mail', { connection, concurrency: jobs, stalledInterval: 200, ...worker }, process as never)
  await fleet.until(() => fleet.departures.length === jobs)
  await begin(admin)
  open()
  // Ten jobs end together.
  await fleet.until(() => fleet.errors.filter(({ error }) => isRefusal(error, name)).length >= jobs / 10)
  const counts = () => queue.getJobCounts('completed', 'failed', 'active')
  return { admin, fleet, queue, runs: () => [...runs.values()], ids, counts, over: () => end(admin) }
}

/** With one attempt, so that nothing may use it up. */
const comesBack: Readonly<Record<string, Ends>> = {
  'a failure that is to be tried again': {
    options: { attempts: 2, backoff: 10 },
    first: () => Promise.reject(new Error('once')),
  },
  'a job that was throttled': {
    first: () => Promise.reject(new PauseQueueError({ retryAfterMs: 1, reason: '429' })),
  },
  'a job that puts itself off': {
    first: async (job, token) => {
      await job.moveToDelayed(Date.now() + 1, token)
      throw Object.assign(new Error('later'), { name: 'DelayedError' })
    },
  },
}

describe.each(Object.entries(refusals))('Redis answers %s to jobs that end', (name, refusal) => {
  test.each([
    ['many under a rate', {}],
    ['many without one', { shape: { capacity: 1000 } }],
    ['one', { jobs: 1 }],
  ])('each end is stored once Redis serves again, and no job runs twice (%s)', async (_what, ends: Ends) => {
    const { fleet, runs, ids, counts, over } = await endWhileRefused(name, refusal, ends)
    await over()
    await fleet.until(() => fleet.completed.length === ids.length)
    expect(fleet.failed).toEqual([])
    expect(runs()).toEqual(ids.map(() => 1))
    expect(await counts()).toEqual({ completed: ids.length, failed: 0, active: 0 })
  })

  test('also where the locks are over by then, as long as nobody else has the jobs', async () => {
    // Who looks for stalled jobs would have them.
    const ends = { worker: { stalledInterval: 60_000 } }
    const { admin, fleet, queue, runs, ids, over } = await endWhileRefused(name, refusal, ends)
    await over()
    await Promise.all(ids.map((id) => admin.del(`${queue.toKey(id)}:lock`)))
    await fleet.until(() => fleet.completed.length === JOBS)
    expect(runs()).toEqual(ids.map(() => 1))
  })

  test.each(Object.entries(comesBack))('%s comes back', async (_what, ends) => {
    const { fleet, runs, ids, counts, over } = await endWhileRefused(name, refusal, ends)
    await over()
    await fleet.until(() => fleet.completed.length === JOBS)
    expect(runs()).toEqual(ids.map(() => 2))
    expect(await counts()).toEqual({ completed: JOBS, failed: 0, active: 0 })
  })

  test('the last failure of a job leaves its dead letter', async () => {
    const ends = { worker: { deadLetter: 'dead' }, first: () => Promise.reject(new Error('for good')) }
    const { admin, fleet, runs, ids, counts, over } = await endWhileRefused(name, refusal, ends)
    await over()
    await fleet.until(() => fleet.failed.length === JOBS)
    expect(runs()).toEqual(ids.map(() => 1))
    expect(await counts()).toEqual({ completed: 0, failed: JOBS, active: 0 })
    expect(await admin.llen('bull:dead:wait')).toBe(JOBS)
  })
})

/** One worker holds a scheduler's job until its slot, and Redis refuses from before that slot. */
async function refusedBeforeStart(name: string, shape: object = {}) {
  const refusal = refusals[name] as Refusal
  const service = await startOwnRedis({ args: refusal.args ?? [] })
  const admin = adminOf(service.url)
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  // Granted well ahead, so that it begins while Redis refuses.
  const queue = fleet.queue('mail', { connection, shape: { rate: '30/min', horizonMs: 5000, ...shape } })
  await queue.add('first', {})
  await queue.upsertJobScheduler('tick', { every: 3_600_000 }, { name: 'tick' })
  // It asks for nothing while it holds the job.
  const worker = fleet.worker('mail', { connection, concurrency: 1, report: false })
  const late: (string | undefined)[] = []
  worker.on('late', ({ name }) => late.push(name))
  await fleet.until(() => fleet.completed.length === 1)
  await expect.poll(() => queue.getActiveCount()).toBe(1)
  await refusal.begin(admin)
  const untilReported = () => fleet.until(() => fleet.errors.some(({ error }) => isRefusal(error, name)))
  const untilEnded = async () => {
    await refusal.end(admin)
    await fleet.until(() => fleet.completed.length === 2)
    expect(fleet.departures).toHaveLength(2)
    expect(await queue.getDelayedCount()).toBe(1)
  }
  return { fleet, queue, worker, late, untilReported, serve: () => refusal.end(admin), untilEnded }
}

describe.each(['BUSY', 'READONLY'])('Redis answers %s to a job that is not running yet', (name) => {
  test('where a job of a scheduler begins, the next one is stored', async () => {
    // It may be late: a busy machine must not send it back instead.
    const { untilReported, untilEnded } = await refusedBeforeStart(name, { maxLatenessMs: 10_000 })
    await untilReported()
    await untilEnded()
  })

  // It holds the process up.
  testAlone('where a job is late, it goes back, and the worker reports what was refused', async () => {
    const { fleet, late, untilReported, untilEnded } = await refusedBeforeStart(name)
    // As a processor that computes past the slot, without its need of CPU time.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500)
    await untilReported()
    expect(late).toEqual(['tick'])
    expect(fleet.departures).toHaveLength(1)
    await untilEnded()
  })

  test.each<[string, (worker: ShapedWorker) => Promise<void>]>([
    ['pauses', (worker) => worker.pause()],
    ['closes', (worker) => worker.close()],
  ])('where its worker %s, it goes back, and the worker reports what was refused', async (_what, leave) => {
    // Its slot is five seconds ahead.
    const { fleet, queue, worker, untilReported, serve } = await refusedBeforeStart(name, { rate: '12/min' })
    const left = leave(worker)
    await untilReported()
    await serve()
    await left
    expect(await queue.getJobCounts('wait', 'active', 'delayed')).toEqual({ wait: 1, active: 0, delayed: 0 })
    expect(fleet.departures).toHaveLength(1)
  })
})
