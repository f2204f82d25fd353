import { once } from 'node:events'
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises'
import { DelayedError, type Job } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import { RunTimeoutError, type ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { wakeChannel } from '../../src/redis/keys.ts'
import { lettersOf } from '../failures/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, Record as Seen, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const WHY = { reason: 'wrong recipients', by: 'ops' }
const FAILURE = 'cancelled by ops: wrong recipients'

/** Ends as fetch and most others do that take a signal. */
function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(new DOMException('This operation was aborted', 'AbortError'))
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
  })
}

/** A worker whose jobs run until they are aborted, and what it says. */
function listeningWorker(queue: ShapedQueue, options: object = {}) {
  const begun = new Seen<{ job: Job; signal: AbortSignal | undefined }>()
  const worker = shop.worker(
    queue,
    (job, _token, signal) => {
      begun.add({ job, signal })
      return aborted(signal)
    },
    options,
  )
  return { worker, begun, failed: eventsOf<Job>('failed', worker) }
}

test.each([
  ['without a shape', undefined, {}],
  ['at a rate', { rate: '100/s' }, {}],
  ['in a group', { groups: { concurrency: 1 } }, { group: { id: 'a' } }],
  [
    'with places by key',
    { limits: [{ name: 'host', algorithm: 'concurrency', by: 'host', concurrency: 1 }] } as never,
    { keys: { host: 'x' } },
  ],
  ['under a concurrency', { concurrency: 1 }, {}],
])(
  '%s, a running job is aborted, fails for good despite its attempts, and the next one goes',
  async (_, shape, opts) => {
    const queue = shop.queue(shape)
    const { begun, failed } = listeningWorker(queue, { allowUnshaped: true })
    const job = await queue.add('job', {}, { ...opts, attempts: 5, backoff: 1 })
    const [first] = await begun.reach(1)
    const next = await queue.add('next', {}, opts)

    expect(await queue.cancelJob(job.id as string, WHY)).toBe('aborting')

    expect(await failed.reach(1)).toMatchObject([{ id: job.id, failedReason: FAILURE, attemptsMade: 1 }])
    expect(first?.signal).toMatchObject({ aborted: true, reason: FAILURE })
    expect(await job.getState()).toBe('failed')
    expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')
    expect((await begun.reach(2)).at(-1)?.job).toMatchObject({ id: next.id })
    expect(await queue.cancelJob(next.id as string, WHY)).toBe('aborting')
    await failed.reach(2)
  },
)

test('in another process, in which no shape is known', async () => {
  const queue = shop.queue()
  const script = new URL('./programs/waiting-worker.ts', import.meta.url)
  const worker = processes.fork(script, { args: [redis.url, redis.prefix, queue.name] })
  const job = await queue.add('job', {}, { attempts: 3 })
  expect(await worker.waitFor('begun')).toMatchObject({ id: job.id })
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('aborting')
  expect(await worker.waitFor('failed')).toMatchObject({ id: job.id, message: FAILURE })
  expect(await job.getState()).toBe('failed')
  await worker.kill()
})

test('a worker that dies after it was told: the job does not start again, and is no dead letter', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const letters = lettersOf(shop)
  const script = new URL('./programs/waiting-worker.ts', import.meta.url)
  const worker = processes.fork(script, { args: [redis.url, redis.prefix, queue.name] })
  const job = await queue.add('job', {}, { attempts: 3 })
  await worker.waitFor('begun')
  process.kill(worker.pid, 'SIGSTOP')
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('aborting')
  await worker.kill()

  const other = listeningWorker(queue, { stalledInterval: 200, deadLetter: letters.name })
  expect(await other.failed.reach(1)).toMatchObject([{ id: job.id, failedReason: FAILURE }])
  expect(other.begun.all).toEqual([])
  expect(await letters.all()).toEqual([])
})

test('a job whose lock is gone is stalled: it fails instead of running again', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const lost = new ShapedWorker(queue.name, null, { connection: shop.connection, prefix: shop.prefix })
  const added = await queue.add('job', {})
  await lost.getNextJob('token')
  await redis.client().del(queue.toKey(`${added.id}:lock`))
  await lost.close()
  expect(await queue.cancelJob(added.id as string, WHY)).toBe('stalled')

  const { begun, failed } = listeningWorker(queue, { stalledInterval: 200 })
  expect(await failed.reach(1)).toMatchObject([{ id: added.id, failedReason: FAILURE }])
  expect(begun.all).toEqual([])
})

test('a job that is held for its slot fails instead of starting', async () => {
  const queue = shop.queue({ rate: { limit: 1, period: 2000 }, horizonMs: 2000 })
  const { worker, begun, failed } = listeningWorker(queue, { lockDuration: 60_000, concurrency: 10 })
  await queue.add('first', {})
  await begun.reach(1)
  const second = await queue.add('second', {})
  const active = shop.queueEvents(queue)
  const actives = eventsOf<{ jobId: string }>('active', active)
  await actives.until((all) => all.some(({ jobId }) => jobId === second.id))
  expect(await queue.cancelJob(second.id as string, WHY)).toBe('aborting')
  expect(await failed.reach(1)).toMatchObject([{ id: second.id, failedReason: FAILURE }])
  expect(begun.all).toHaveLength(1)
  worker.cancelAllJobs()
})

test('a job that is cancelled while its grant is on its way fails instead of starting', async () => {
  const queue = shop.queue({ rate: '100/s', maxLatenessMs: 60_000 })
  await queue.getShape()
  const { worker, begun, failed } = listeningWorker(queue, { autorun: false })
  const hearing = redis.client().duplicate()
  onTestFinished(() => hearing.disconnect())
  await hearing.subscribe(wakeChannel(queue.toKey('')))
  const calls = callsOf(worker)
  void worker.run()
  await settled(queue, redis.client(), calls)
  const exchange = worker.getBackend().exchange as unknown as { ask: (...args: unknown[]) => Promise<unknown> }
  const ask = exchange.ask.bind(exchange)
  exchange.ask = async (...args) => {
    const reply = (await ask(...args)) as { grants: { id: string }[] }
    for (const { id } of reply.grants) {
      const heard = once(hearing, 'message')
      expect(await queue.cancelJob(id, WHY)).toBe('aborting')
      await heard
      // The worker's own connection gets it before or after this one.
      await delay(100)
    }
    return reply
  }
  const job = await queue.add('job', {})
  expect(await failed.reach(1)).toMatchObject([{ id: job.id, failedReason: FAILURE }])
  expect(begun.all).toEqual([])
})

test('a message that was missed is made up for once the worker listens again', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.getShape()
  const { begun, failed } = listeningWorker(queue)
  const job = await queue.add('job', {})
  await begun.reach(1)
  await redis.client().hset(queue.toKey(job.id as string), 'defa', FAILURE)
  // As if the connection had been lost.
  await redis.client().publish(wakeChannel(queue.toKey('')), '')
  expect(await failed.reach(1)).toMatchObject([{ id: job.id, failedReason: FAILURE }])
})

test('a job whose processor returns all the same has completed, and may be retried', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const begun = new Seen<Job>()
  const worker = shop.worker(queue, async (job, _token, signal) => {
    begun.add(job)
    if (begun.all.length > 1) return 'again'
    await aborted(signal).catch(() => {})
    return 'done'
  })
  const completed = eventsOf<Job>('completed', worker)
  const job = await queue.add('job', {})
  await begun.reach(1)
  await queue.cancelJob(job.id as string, WHY)
  expect(await completed.reach(1)).toMatchObject([{ id: job.id, returnvalue: 'done' }])
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('ended')
  const stored = await queue.getJob(job.id as string)
  while ((await redis.client().hexists(queue.toKey(job.id as string), 'defa')) === 1) await nextTurn()
  await stored?.retry('completed')
  expect(await completed.reach(2)).toMatchObject([{}, { id: job.id, returnvalue: 'again' }])
})

test('a processor that takes no signal runs to its end, and its failure is final', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const begun = new Seen<Job>()
  let fail = (_: Error) => {}
  const worker = shop.worker(queue, async (job) => {
    begun.add(job)
    await new Promise((_, reject) => {
      fail = reject
    })
  })
  const failed = eventsOf<Job>('failed', worker)
  const job = await queue.add('job', {}, { attempts: 5 })
  await begun.reach(1)
  await queue.cancelJob(job.id as string, WHY)
  fail(new Error('ECONNRESET'))
  // Where it fails before its worker has heard, it goes back, and fails when it comes again.
  await failed.until((all) => all.some(({ failedReason }) => failedReason === FAILURE))
  expect(await job.getState()).toBe('failed')
  expect(begun.all).toHaveLength(1)
})

test('a job that its processor has moved meanwhile waits, and does not start again', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const begun = new Seen<Job>()
  const worker = shop.worker(queue, async (job, token, signal) => {
    begun.add(job)
    await aborted(signal).catch(() => {})
    await job.moveToDelayed(Date.now() + 100, token)
    throw new DelayedError()
  })
  const failed = eventsOf<Job>('failed', worker)
  const job = await queue.add('job', {})
  await begun.reach(1)
  await queue.cancelJob(job.id as string, WHY)
  expect(await failed.reach(1)).toMatchObject([{ id: job.id, failedReason: FAILURE }])
  expect(begun.all).toHaveLength(1)
})

test('cancelling races with the end: the job fails or completes, once, and the answer agrees', async () => {
  const queue = shop.queue({})
  const ends = shop.queueEvents(queue)
  const completed = eventsOf<{ jobId: string }>('completed', ends)
  const failed = eventsOf<{ jobId: string }>('failed', ends)
  const departed = departuresOf(shop.worker(queue, async (_job, _token, _signal) => nextTurn(), { concurrency: 5 }))
  const count = 100
  const jobs = await Promise.all(
    Array.from({ length: count }, async () => {
      const job = await queue.add('job', {})
      return [job.id as string, await queue.cancelJob(job.id as string, WHY)] as const
    }),
  )
  const all = () => [...completed.all, ...failed.all].map(({ jobId }) => jobId)
  while (all().length < count) await Promise.race([completed, failed].map((seen) => seen.reach(seen.all.length + 1)))
  expect(new Set(all()).size).toBe(count)
  const failedIds = new Set(failed.all.map(({ jobId }) => jobId))
  for (const [id, outcome] of jobs) {
    if (outcome === 'failed') expect(failedIds).toContain(id)
    else if (outcome === 'ended') expect(failedIds).not.toContain(id)
    else expect(outcome).toBe('aborting')
  }
  const startedIds = new Set(departed.all.map(({ id }) => id))
  for (const [id, outcome] of jobs) if (outcome === 'failed') expect(startedIds).not.toContain(id)
})

test('an aborted job does not hold its strict group, nor count as a throttled one', async () => {
  const queue = shop.queue({ groups: { order: 'strict' } })
  const { begun, failed } = listeningWorker(queue)
  const [one, two] = await queue.addBulk(
    ['one', 'two'].map((name) => ({ name, data: {}, opts: { group: { id: 'a' }, attempts: 3 } })),
  )
  await begun.reach(1)
  await queue.cancelJob(one?.id as string, WHY)
  await failed.reach(1)
  expect((await begun.reach(2)).at(-1)?.job).toMatchObject({ id: two?.id })
  await queue.cancelJob(two?.id as string, WHY)
})

test('a run that takes longer than runTimeoutMs is aborted, and the job is retried by its attempts', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const { worker, begun } = listeningWorker(queue)
  const errors = new Seen<Error>()
  worker.on('failed', (_, error) => errors.add(error))
  const job = await queue.add('job', {}, { runTimeoutMs: 50, attempts: 2 })
  await errors.reach(2)
  const message = `job ${job.id} did not end within its runTimeoutMs of 50 ms`
  for (const error of errors.all) {
    expect(error).toBeInstanceOf(RunTimeoutError)
    expect(error).toMatchObject({ message, jobId: job.id, runTimeoutMs: 50, cause: { name: 'AbortError' } })
  }
  expect(begun.all[0]?.signal?.reason).toBe(message)
  expect(await queue.getJob(job.id as string)).toMatchObject({ failedReason: message, attemptsMade: 2 })
})

test('a run that ends in time is not touched, nor is one that returns after its time', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const worker = shop.worker(queue, async ({ name }, _token, signal) => {
    if (name === 'late') await aborted(signal).catch(() => {})
    return signal?.aborted ? 'aborted' : 'in time'
  })
  const completed = eventsOf<Job>('completed', worker)
  await queue.add('soon', {}, { runTimeoutMs: 60_000 })
  await queue.add('late', {}, { runTimeoutMs: 20 })
  expect(await completed.reach(2)).toMatchObject([
    { name: 'soon', returnvalue: 'in time' },
    { name: 'late', returnvalue: 'aborted' },
  ])
})

test.each([0, -1, 1.5, Number.NaN, '50', 2 ** 31])('runTimeoutMs: %j is refused', async (runTimeoutMs) => {
  await expect(shop.queue({}).add('job', {}, { runTimeoutMs: runTimeoutMs as number })).rejects.toThrow(/runTimeoutMs/)
})
