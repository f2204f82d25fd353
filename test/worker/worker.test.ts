import { pathToFileURL } from 'node:url'
import { type Job, UnrecoverableError } from 'bullmq'
import { expect, test } from 'vitest'
import { NoShapeError, ShapedWorker, UnsupportedOptionError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const FAST = { rate: '1000/s', burst: 10 }

/** A queue whose jobs start, however late a busy machine is for their slots. */
async function readyQueue(shape: object = FAST) {
  const queue = shop.queue({ maxLatenessMs: 60_000, ...shape })
  await queue.waitUntilReady()
  return queue
}

const aborted = (signal: AbortSignal | undefined) =>
  new Promise<never>((_resolve, reject) => {
    const fail = () => reject(new Error(String(signal!.reason)))
    if (signal!.aborted) fail()
    signal!.addEventListener('abort', fail)
  })

test('a running job is cancelled by its signal', async () => {
  const queue = await readyQueue()
  const worker = shop.worker(queue, async (_job, _token, signal) => aborted(signal))
  const [departed, failed] = [departuresOf(worker), eventsOf<Job>('failed', worker)]
  const job = await queue.add('a', {})
  await departed.reach(1)
  // The signal exists from the moment that the processor is called.
  await new Promise((resolve) => setImmediate(resolve))
  expect(worker.cancelJob(job.id!, 'no longer wanted')).toBe(true)
  await failed.reach(1)
  expect(failed.all[0]!.failedReason).toContain('no longer wanted')
  expect(worker.cancelJob('unknown')).toBe(false)
})

test('a job that is held for its slot can be cancelled too', async () => {
  const queue = await readyQueue({ rate: '4/s', horizonMs: 5000 })
  const started: string[] = []
  const worker = shop.worker(
    queue,
    async (job, _token, signal) => {
      started.push(job.name)
      if (job.name === 'job1') await aborted(signal)
    },
    { concurrency: 3 },
  )
  const [calls, failed, completed] = [callsOf(worker), eventsOf<Job>('failed', worker), eventsOf('completed', worker)]
  await calls.reach(1)
  const added = await queue.addBulk(jobs(3))
  await calls.until((all) => all.some(({ reply }) => reply.grants.length === 3))
  expect(started).not.toContain('job1')
  expect(worker.cancelJob(added[1]!.id!, 'while it waited')).toBe(true)
  await failed.reach(1)
  await completed.reach(2)
  expect(failed.all.map(({ name, failedReason }) => [name, failedReason])).toEqual([['job1', 'while it waited']])
})

test.each<[string, (worker: ShapedWorker, job: Job) => void]>([
  ['in its active event', (worker, { id }) => void worker.cancelJob(id as string, 'too early')],
  ['with all others', (worker) => worker.cancelAllJobs('too early')],
])('a job that is cancelled before its processor is called hears of it by an event: %s', async (_how, cancel) => {
  const queue = await readyQueue({ rate: '20/s', horizonMs: 1000 })
  const signals: boolean[] = []
  const worker = shop.worker(
    queue,
    async (_job, _token, signal) => {
      signals.push(signal?.aborted ?? true)
      // As most processors do, without looking whether it has come already.
      await new Promise((_resolve, reject) =>
        signal?.addEventListener('abort', () => reject(new Error(String(signal.reason)))),
      )
    },
    { concurrency: 3 },
  )
  worker.on('active', (job) => cancel(worker, job))
  const failed = eventsOf<Job>('failed', worker)
  await queue.addBulk(jobs(3))
  await failed.reach(3)
  expect(failed.all.map(({ failedReason }) => failedReason)).toEqual(Array(3).fill('too early'))
  expect(signals).toEqual([false, false, false])
})

test('all jobs are cancelled: those that run, those about to start and those that are held', async () => {
  const queue = await readyQueue({ rate: '4/s', burst: 2, horizonMs: 5000 })
  const worker = shop.worker(
    queue,
    async (job, _token, signal) => {
      if (job.name === 'job0') worker.cancelAllJobs('all of them')
      await aborted(signal)
    },
    { concurrency: 3 },
  )
  const failed = eventsOf<Job>('failed', worker)
  const calls = callsOf(worker)
  await calls.reach(1)
  await queue.addBulk(jobs(3))
  await failed.reach(3)
  expect(failed.all.map(({ name, failedReason }) => [name, failedReason])).toEqual(
    jobs(3).map(({ name }) => [name, 'all of them']),
  )
})

test.each([
  [1000, 250_000],
  [40_000, 8_000_000],
  [undefined, 7_500_000],
])('with a lock that lasts %s ms, jobs are asked for %i µs ahead of their slots', async (lockDuration, horizonUs) => {
  const queue = await readyQueue({ rate: '1/s', horizonMs: 8000 })
  const worker = shop.worker(queue, async () => {}, lockDuration ? { lockDuration } : {})
  const calls = callsOf(worker)
  // The first answer tells the shape.
  await calls.reach(1)
  await queue.add('a', {})
  await calls.reach(2)
  expect(calls.all[1]!.request.horizonUs).toBe(horizonUs)
})

test('a job that was cancelled while held and went back starts afresh', async () => {
  const queue = await readyQueue({ rate: '4/s', horizonMs: 5000 })
  const worker = shop.worker(
    queue,
    async (_job, _token, signal) => {
      await new Promise((resolve) => setImmediate(resolve))
      signal?.throwIfAborted()
    },
    { concurrency: 3 },
  )
  const [calls, completed, failed] = [callsOf(worker), eventsOf('completed', worker), eventsOf('failed', worker)]
  await calls.reach(1)
  const added = await queue.addBulk(jobs(3))
  await calls.until((all) => all.some(({ reply }) => reply.grants.length === 3))
  expect(worker.cancelJob(added[1]!.id!)).toBe(true)
  await worker.pause()
  await worker.resume()
  await completed.reach(3)
  expect(failed.all).toEqual([])
})

test('the lock of a long job is renewed', async () => {
  const queue = await readyQueue()
  const released = gate()
  const worker = shop.worker(queue, () => released.opened, {
    // A busy machine may be late to renew it.
    lockDuration: 5000,
    lockRenewTime: 500,
    stalledInterval: 200,
  })
  const [renewed, stalled] = [eventsOf<{ jobIds: string[] }>('locksRenewed', worker), eventsOf('stalled', worker)]
  const completed = eventsOf<Job>('completed', worker)
  const job = await queue.add('long', {})
  // The first lock would be over, and have been seen as stalled.
  const overMs = performance.now() + 6000
  await renewed.until(() => performance.now() > overMs)
  expect(renewed.all[0]!.jobIds).toEqual([job.id])
  released.open()
  await completed.reach(1)
  expect(stalled.all).toEqual([])
})

test('processors in files of their own run at the rate', async () => {
  for (const [file, threads] of [
    ['double.cjs', false],
    ['double.mjs', true],
  ] as const) {
    const queue = await readyQueue({ rate: '50/s' })
    const processor = new URL(`./fixtures/${file}`, import.meta.url)
    const worker = shop.worker(queue, threads ? pathToFileURL(processor.pathname) : processor.pathname, {
      concurrency: 2,
      useWorkerThreads: threads,
    })
    const [departed, completed] = [departuresOf(worker), eventsOf<Job>('completed', worker)]
    await queue.addBulk([1, 2, 3].map((n) => ({ name: 'double', data: { n } })))
    await completed.reach(3)
    expect(completed.all.map(({ returnvalue }) => returnvalue).sort()).toEqual([2, 4, 6])
    const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
    expect(slots[2]! - slots[0]!).toBeGreaterThanOrEqual(39_999)
    await worker.close()
  }
})

test('a sandboxed job that fails does so with its message', async () => {
  const queue = await readyQueue()
  const worker = shop.worker(queue, new URL('./fixtures/double.cjs', import.meta.url).pathname)
  const failed = eventsOf<Job>('failed', worker)
  await queue.add('fails', { n: 1 })
  await failed.reach(1)
  expect(failed.all[0]!.failedReason).toBe('as told')
  await worker.close()
})

test('concurrency is obeyed, and can be changed while it runs', async () => {
  const queue = await readyQueue()
  let running = 0
  let most = 0
  const releases: (() => void)[] = []
  const worker = shop.worker(
    queue,
    async () => {
      running += 1
      most = Math.max(most, running)
      await new Promise<void>((resolve) => releases.push(resolve))
      running -= 1
    },
    { concurrency: 2 },
  )
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(12))
  await departed.reach(2)
  worker.concurrency = 5
  expect(worker.concurrency).toBe(5)
  await departed.reach(5)
  expect(most).toBe(5)
  worker.concurrency = 1
  most = 0
  const completed = eventsOf('completed', worker)
  for (const release of releases.splice(0)) release()
  await completed.reach(5)
  await departed.reach(6)
  expect(() => {
    worker.concurrency = 0
  }).toThrow('concurrency must be a finite number greater than 0')
  // From here on one at a time.
  for (let n = 6; n <= 12; n++) {
    await departed.reach(n)
    expect(running).toBe(1)
    for (const release of releases.splice(0)) release()
  }
  await completed.reach(12)
  expect(most).toBe(1)
})

test('jobs can be fetched by hand, no sooner than their slots', async () => {
  const queue = await readyQueue({ rate: '2/s' })
  const worker = shop.worker(queue, null, { autorun: false })
  await queue.addBulk(jobs(3))
  const first = (await worker.getNextJob('t')) as Job
  expect(first.name).toBe('job0')
  expect(await worker.getNextJob('t')).toBeUndefined()
  const slot = async (job: Job) => Number(await client.hget(queue.toKey(job.id!), 'departure'))
  // A finish that fetches the next job hands out none ahead of its slot either.
  const next = (await first.moveToCompleted('done', 't', true)) as unknown[] | undefined
  expect(next?.[0] ?? undefined).toBeUndefined()
  let second: Job | undefined
  while (!second) second = (await worker.getNextJob('t', { block: false })) as Job | undefined
  expect((await slot(second)) - (await slot(first))).toBeGreaterThanOrEqual(499_999)
  expect((Date.now() + 1) * 1000).toBeGreaterThanOrEqual(await slot(second))
  await second.moveToCompleted('done', 't', false)
  expect(await second.getState()).toBe('completed')
})

test('a finish by hand hands out the next job only when its slot has come', async () => {
  const queue = await readyQueue({ rate: '1/s', horizonMs: 2000 })
  await queue.addBulk(jobs(2))
  const worker = shop.worker(queue, null, { autorun: false })
  const first = (await worker.getNextJob('t')) as Job
  // The next slot is within the horizon, but no one would hold the job until then.
  expect(await first.moveToCompleted('done', 't', true)).toBeUndefined()
  expect(await queue.getJobCounts('wait', 'active')).toEqual({ wait: 1, active: 0 })
})

test('without autorun nothing runs until run() is called, and run() twice is refused', async () => {
  const queue = await readyQueue()
  const worker = shop.worker(queue, async () => {}, { autorun: false })
  const departed = departuresOf(worker)
  await queue.add('a', {})
  await worker.waitUntilReady()
  expect(worker.isRunning()).toBe(false)
  expect(await queue.getWaitingCount()).toBe(1)
  const ran = worker.run()
  await departed.reach(1)
  expect(worker.isRunning()).toBe(true)
  await expect(worker.run()).rejects.toThrow('already running')
  await worker.close()
  await ran
  expect(worker.isRunning()).toBe(false)
  const without = shop.worker(queue, null)
  await expect(without.run()).rejects.toThrow('No process function is defined')
})

test('events tell of each job once, in BullMQ’s order, and active at the departure', async () => {
  const queue = await readyQueue({ rate: '10/s', horizonMs: 2000 })
  const worker = shop.worker(queue, async (job) => {
    if (job.name === 'job1') throw new UnrecoverableError('for good')
    return 'fine'
  })
  worker.concurrency = 5
  const told: string[] = []
  const activeAt = new Map<string, number>()
  worker.on('active', (job, previous) => {
    told.push(`active ${job.name} ${previous}`)
    activeAt.set(job.name, Date.now())
  })
  worker.on('departed', (job) => told.push(`departed ${job.name}`))
  worker.on('completed', (job, result) => told.push(`completed ${job.name} ${result}`))
  worker.on('failed', (job, error) => told.push(`failed ${job?.name} ${error.message}`))
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  const drained = eventsOf<undefined>('drained', worker)
  await calls.reach(1)
  await drained.reach(1)
  const added = await queue.addBulk(jobs(3, { attempts: 3 }))
  await drained.reach(2)
  const toldOf = (name: string) => told.filter((line) => line.split(' ')[1] === name)
  expect(toldOf('job0')).toEqual(['active job0 waiting', 'departed job0', 'completed job0 fine'])
  expect(toldOf('job1')).toEqual(['active job1 waiting', 'departed job1', 'failed job1 for good'])
  expect(toldOf('job2')).toEqual(['active job2 waiting', 'departed job2', 'completed job2 fine'])
  expect(told.length).toBe(9)
  // On a busy machine they may start together.
  const order = (event: string) => told.map((line) => line.split(' ')).flatMap(([e, job]) => (e === event ? [job] : []))
  for (const event of ['active', 'departed']) expect(order(event)).toEqual(['job0', 'job1', 'job2'])
  expect(drained.all.length).toBe(2)
  // All three were granted together; each became active at its own slot.
  expect(calls.all.some(({ reply }) => reply.grants.length === 3)).toBe(true)
  for (const { name, departureTimeUs, departedAtUs, latenessUs } of departed.all) {
    expect((activeAt.get(name)! + 1) * 1000).toBeGreaterThanOrEqual(departureTimeUs)
    expect(departedAtUs - departureTimeUs).toBe(latenessUs)
    const job = added.find((one) => one.name === name)!
    const { processedOn } = (await queue.getJob(job.id!))!
    expect(processedOn).toBe(Math.ceil(departureTimeUs / 1000))
  }
})

test('drained comes once for each time that the queue runs empty', async () => {
  const queue = await readyQueue()
  const worker = shop.worker(queue, async () => {}, { concurrency: 4 })
  const [drained, completed] = [eventsOf<undefined>('drained', worker), eventsOf('completed', worker)]
  await drained.reach(1)
  for (let n = 1; n <= 5; n++) {
    await queue.add('a', {})
    await completed.reach(n)
    await drained.reach(n + 1)
  }
  expect(drained.all.length).toBe(6)
})

test('an error of a listener or of Redis reaches error, not the process', async () => {
  const queue = await readyQueue()
  const worker = shop.worker(queue, async () => {})
  const errors = eventsOf<Error>('error', worker)
  const boom = new Error('a listener failed')
  worker.on('completed', () => {
    throw boom
  })
  await queue.add('a', {})
  await errors.reach(1)
  expect(errors.all[0]).toBe(boom)
})

test('limiter is refused, naming the shape that does the same', () => {
  const options = { connection: redis.connection, limiter: { max: 100, duration: 60_000 } }
  expect(() => new ShapedWorker('q', async () => {}, options as never)).toThrow(UnsupportedOptionError)
  expect(() => new ShapedWorker('q', async () => {}, options as never)).toThrow(
    /shape: \{ rate: \{ limit: 100, period: 60000 \} \}/,
  )
})

test('a stalled job is given up after the third time; the number can be set', async () => {
  const queue = await readyQueue()
  expect(shop.worker(queue, null).opts.maxStalledCount).toBe(2)
  expect(shop.worker(queue, null, { maxStalledCount: 7 }).opts.maxStalledCount).toBe(7)
})

test('without a shape a worker waits, says so once, and starts when one is set', async () => {
  const queue = shop.queue()
  await queue.add('a', {})
  const worker = shop.worker(queue, async () => {})
  const [calls, errors, departed] = [callsOf(worker), eventsOf<Error>('error', worker), departuresOf(worker)]
  await asksUntil(calls, 'unshaped')
  await calls.reach(2)
  expect(errors.all.map((error) => error instanceof NoShapeError)).toEqual([true])
  expect(errors.all[0]!.message).toContain("shape: { rate: '50/s' }")
  expect(await queue.getWaitingCount()).toBe(1)
  await queue.setShape({ rate: '50/s' }, { by: 'test', reason: 'it was missing' })
  await departed.reach(1)
  expect(errors.all.length).toBe(1)
})

test('with allowUnshaped a queue without a shape is drained unpaced', async () => {
  const queue = shop.queue()
  await queue.addBulk(jobs(20))
  const worker = shop.worker(queue, async () => {}, { allowUnshaped: true, concurrency: 5 })
  const [completed, errors] = [eventsOf<Job>('completed', worker), eventsOf<Error>('error', worker)]
  await completed.reach(20)
  expect(errors.all).toEqual([])
  expect(await queue.getShape()).toBeUndefined()
})
