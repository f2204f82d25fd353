import { setTimeout as delay } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { ShapedBackend } from '../../src/backend/backend.ts'
import { effectId } from '../../src/effect-id.ts'
import { InvalidInputError, type ShapedQueue, type ShapedWorkerOptions } from '../../src/index.ts'
import { useProcesses } from '../support/processes.ts'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, jobs, rounding, Workshop } from '../worker/support.ts'
import { type Letters, lettersOf } from './support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const COUNT = 150

/** Jobs of a queue that have failed for good, and their letters; nothing works on the queue any more. */
async function failed(queue: ShapedQueue, letters: Letters, list: Parameters<ShapedQueue['addBulk']>[0]) {
  const worker = shop.worker(queue, () => Promise.reject(new Error('no')), {
    ...{ concurrency: 20, deadLetter: letters.name, allowUnshaped: true },
  })
  const failures = eventsOf('failed', worker)
  const added = await queue.addBulk(list)
  await failures.reach(list.length)
  await worker.close()
  return added
}

/** A worker that notes what it runs. */
function runs(queue: ShapedQueue, options: Partial<ShapedWorkerOptions> = {}) {
  const seen: Pick<Job, 'id' | 'timestamp' | 'data' | 'attemptsStarted' | 'progress'>[] = []
  const worker = shop.worker(
    queue,
    async ({ id, timestamp, data, attemptsStarted, progress }) => {
      seen.push({ id: id as string, timestamp, data, attemptsStarted, progress })
    },
    { concurrency: 20, allowUnshaped: true, ...options },
  )
  return { worker, seen, completed: eventsOf('completed', worker), departures: departuresOf(worker) }
}

test.each([{ removeOnFail: true }, { removeOnFail: false }])(
  'jobs come back once with id, time, data and all their attempts, and the letters go: %o',
  async (kept) => {
    const queue = shop.queue({ rate: '500/s', burst: 5 })
    const letters = lettersOf(shop)
    const added = await failed(queue, letters, jobs(5, { attempts: 1, ...kept }))
    expect(await queue.redrive({ from: letters.name })).toEqual({ redriven: 5, back: 0, taken: 0, skipped: 0 })
    expect(await letters.all()).toEqual([])
    expect(await queue.getJobCounts('failed', 'waiting')).toEqual({ failed: 0, waiting: 5 })
    const { seen, completed } = runs(queue)
    await completed.reach(5)
    const identity = ({ id, timestamp }: { id?: string; timestamp: number }) =>
      effectId({ prefix: redis.prefix, queueName: queue.name, jobId: id as string, timestamp })
    expect(seen.map(identity)).toEqual(added.map(identity))
    expect(seen.map(({ data }) => data)).toEqual(added.map(({ data }) => data))
    expect(seen.every(({ attemptsStarted }) => attemptsStarted === 1)).toBe(true)
    expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 0, back: 0 })
  },
)

test('a job comes back with what its processor stored, whether it failed or was dropped', async () => {
  const letters = lettersOf(shop)
  const queue = shop.queue({ rate: '500/s', capacity: 2, overflow: 'drop-oldest', overflowTo: letters.name })
  const failing = shop.worker(
    queue,
    async (job) => {
      await job.updateProgress({ pending: [job.name] })
      throw new Error('no')
    },
    { deadLetter: letters.name },
  )
  const failures = eventsOf('failed', failing)
  await queue.add('fails', {})
  await failures.reach(1)
  await failing.close()
  const dropped = await queue.add('dropped', {})
  await dropped.updateProgress({ pending: ['dropped'] })
  await queue.addBulk(jobs(2))
  expect((await letters.all()).map(({ progress }) => progress)).toEqual([
    { pending: ['fails'] },
    { pending: ['dropped'] },
  ])
  await queue.drain()
  await queue.redrive({ from: letters.name })
  const { seen, completed } = runs(queue)
  await completed.reach(2)
  expect(seen.map(({ progress }) => progress)).toEqual([{ pending: ['fails'] }, { pending: ['dropped'] }])
})

test('a redrive waits for places and jobs leave at the rate', async () => {
  const queue = shop.queue({ rate: '100/s', capacity: 3 })
  const letters = lettersOf(shop)
  await queue.setShape({ capacity: 50, rate: null }, { by: 'test', reason: 'to fail them' })
  await failed(queue, letters, jobs(30, { removeOnFail: true }))
  await queue.clearShape()
  const refused = eventsOf('refused', queue)
  const redriving = queue.redrive({ from: letters.name })
  await refused.reach(1)
  expect(await queue.count()).toBe(3)
  const { completed, departures } = runs(queue)
  expect(await redriving).toMatchObject({ redriven: 30 })
  await completed.reach(30)
  const slotsUs = departures.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slotsUs, 10_000)).toBeLessThanOrEqual(rounding(10_000))
})

test('a redrive that is stopped goes on with what is left, and each job runs once', async () => {
  const queue = shop.queue({ capacity: 50 })
  const letters = lettersOf(shop)
  await failed(queue, letters, jobs(10, { removeOnFail: true, removeOnComplete: true }))
  await queue.setShape({ capacity: 4 }, { by: 'test', reason: 'so that it waits' })
  const refused = eventsOf('refused', queue)
  const stop = new AbortController()
  const redriving = queue.redrive({ from: letters.name, signal: stop.signal })
  const reason = new Error('enough')
  await refused.reach(1)
  stop.abort(reason)
  await expect(redriving).rejects.toBe(reason)
  expect(await queue.getWaitingCount()).toBe(4)
  expect(await letters.all()).toHaveLength(6)
  const { seen, completed } = runs(queue)
  expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 6, back: 0 })
  await completed.reach(10)
  expect(new Set(seen.map(({ id }) => id)).size).toBe(10)
  expect(seen).toHaveLength(10)
})

test('cut short before a letter is gone, its job does not come twice, also when it is done and removed', async () => {
  const queue = shop.queue({ rate: '500/s', burst: 5 })
  const letters = lettersOf(shop)
  await failed(queue, letters, jobs(3, { removeOnFail: true, removeOnComplete: true }))
  const remove = vi.spyOn(ShapedBackend.prototype, 'remove').mockRejectedValueOnce(new Error('cut'))
  await expect(queue.redrive({ from: letters.name })).rejects.toThrow('cut')
  remove.mockRestore()
  const { seen, completed } = runs(queue)
  await completed.reach(1)
  expect(await queue.redrive({ from: letters.name })).toEqual({ redriven: 2, back: 1, taken: 0, skipped: 0 })
  await completed.reach(3)
  expect(new Set(seen.map(({ id }) => id)).size).toBe(3)
  expect(seen).toHaveLength(3)
  expect(await letters.all()).toEqual([])
})

test('a redrive that is killed brings no job back twice, and the next one brings the rest', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 10 })
  const letters = lettersOf(shop)
  await failed(queue, letters, jobs(COUNT, { removeOnFail: true, removeOnComplete: true }))
  const { seen, completed } = runs(queue)
  // Far from Redis, so that it is not done before it is killed.
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  proxy.latency(8)
  const args = [proxy.url, redis.prefix, queue.name, letters.name]
  const program = processes.fork(new URL('./programs/redrives.ts', import.meta.url), { args })
  await completed.reach(20)
  await program.kill()
  const left = (await letters.all()).length
  expect(left).toBeGreaterThan(0)
  const { redriven, back } = await queue.redrive({ from: letters.name })
  expect(redriven + back).toBe(left)
  await completed.reach(COUNT)
  expect(new Set(seen.map(({ id }) => id)).size).toBe(COUNT)
  expect(seen).toHaveLength(COUNT)
})

test('two redrives at once bring each job back once', async () => {
  const queue = shop.queue({ rate: '500/s', burst: 5 })
  const other = shop.queueNamed(queue.name)
  const letters = lettersOf(shop)
  await failed(queue, letters, jobs(150, { removeOnFail: true, removeOnComplete: true }))
  const both = await Promise.all([queue, other].map((one) => one.redrive({ from: letters.name })))
  expect(both.reduce((sum, { redriven }) => sum + redriven, 0)).toBe(150)
  expect(await letters.all()).toEqual([])
  expect(await queue.getWaitingCount()).toBe(150)
})

test('a job that fails again leaves a letter of its own, even before the first one is gone', async () => {
  const queue = shop.queue({ rate: '500/s' })
  const letters = lettersOf(shop)
  const [job] = await failed(queue, letters, jobs(1, { removeOnFail: true }))
  const original = ShapedBackend.prototype.remove
  const again = eventsOf(
    'failed',
    shop.worker(queue, () => Promise.reject(new Error('again')), { deadLetter: letters.name }),
  )
  const remove = vi.spyOn(ShapedBackend.prototype, 'remove').mockImplementationOnce(async function (
    this: ShapedBackend,
    ...args
  ) {
    await again.reach(1)
    return original.apply(this, args)
  })
  expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 1 })
  remove.mockRestore()
  const [letter, ...more] = await letters.all()
  expect(more).toEqual([])
  expect(letter).toMatchObject({ id: job!.id, timestamp: job!.timestamp, failedReason: 'again', redriven: 1 })
})

test('a filter chooses, a limit ends, the oldest come first, and letters of other queues stay', async () => {
  const queue = shop.queue({ rate: '500/s', burst: 5 })
  const other = shop.queue({ rate: '500/s', burst: 5 })
  const letters = lettersOf(shop)
  await failed(other, letters, jobs(120))
  for (const job of jobs(6)) await failed(queue, letters, [job])
  await letters.queue.add('no letter', { any: 'thing' } as never)
  const even = ({ name }: { name: string }) => Number(name.slice(3)) % 2 === 0
  expect(await queue.redrive({ from: letters.name, filter: even, limit: 2 })).toEqual({
    ...{ redriven: 2, back: 0, taken: 0, skipped: 1 },
  })
  expect((await queue.getWaiting()).map(({ name }) => name)).toEqual(['job0', 'job2'])
  expect(await queue.redrive({ from: letters.name, filter: async (letter) => even(letter) })).toMatchObject({
    ...{ redriven: 1, skipped: 3 },
  })
  expect(await letters.queue.getWaitingCount()).toBe(120 + 3 + 1)
})

describe('a job', () => {
  test('that was retried by hand is left alone, and its letter goes', async () => {
    const queue = shop.queue({ rate: '500/s' })
    const letters = lettersOf(shop)
    const [job] = await failed(queue, letters, jobs(1))
    await (await queue.getJob(job!.id!))!.retry()
    expect(await queue.redrive({ from: letters.name })).toEqual({ redriven: 0, back: 1, taken: 0, skipped: 0 })
    expect(await queue.getWaitingCount()).toBe(1)
    expect(await letters.all()).toEqual([])
  })

  test('whose id another one has now keeps its letter', async () => {
    const queue = shop.queue({ rate: '500/s' })
    const letters = lettersOf(shop)
    await failed(queue, letters, [{ name: 'mail', data: 1, opts: { jobId: 'one', removeOnFail: true, timestamp: 5 } }])
    await queue.add('mail', 2, { jobId: 'one' })
    expect(await queue.redrive({ from: letters.name })).toEqual({ redriven: 0, back: 0, taken: 1, skipped: 0 })
    expect(await letters.all()).toMatchObject([{ id: 'one', timestamp: 5, data: 1 }])
    expect((await queue.getJob('one'))?.data).toBe(2)
  })

  test('keeps priority, cost and attempts; a delay, a deduplication and a deadline that has passed are lifted', async () => {
    // Off, it takes a job whose deadline it can not meet.
    const queue = shop.queue({ rate: '500/s', burst: 5, mode: 'off' })
    const letters = lettersOf(shop)
    const mustStartBefore = Date.now() + 4000
    const opts = {
      ...{ priority: 7, cost: 2, attempts: 4, delay: 30, mustStartBefore, deduplication: { id: 'once' } },
      ...{ removeOnComplete: false },
    }
    await queue.pauseUntil(mustStartBefore + 10, { reason: 'so that it expires' })
    const [job] = await failed(queue, letters, [{ name: 'mail', data: {}, opts }])
    while (Date.now() <= mustStartBefore) await delay(mustStartBefore + 1 - Date.now())
    expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 1 })
    const back = (await queue.getJob(job!.id!))!
    expect(await back.getState()).toBe('prioritized')
    expect(back.opts).toMatchObject({ priority: 7, cost: 2, attempts: 4, redriven: 1 })
    for (const left of ['delay', 'mustStartBefore', 'deduplication']) expect(back.opts[left as 'delay'] ?? 0).toBe(0)
    const { completed } = runs(queue)
    await completed.reach(1)
  })
})

test('the shape that Redis has lost is put back first', async () => {
  const queue = shop.queue({ rate: '500/s', capacity: 10 })
  const letters = lettersOf(shop)
  await failed(queue, letters, jobs(1))
  await redis.client().del(queue.toKey('meta:shape'))
  expect(await queue.redrive({ from: letters.name })).toMatchObject({ redriven: 1 })
  expect((await queue.getShape())?.capacity).toBe(10)
})

test.each([
  [{}, /redrive needs \{ from \}/],
  [{ from: 'a:b' }, /got "a:b"/],
  [{ from: 'same' }, /a queue other than/],
  [{ from: 'dead', limit: 0 }, /limit must be a whole number >= 1; got 0/],
  [{ from: 'dead', limit: 1.5 }, /got 1.5/],
])('%o is refused', async (options, message) => {
  const queue = shop.queueNamed('same')
  await expect(queue.redrive(options as never)).rejects.toThrow(InvalidInputError)
  await expect(queue.redrive(options as never)).rejects.toThrow(message)
})
