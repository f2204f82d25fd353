import { setTimeout as delay } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { expect, onTestFinished, test, vi } from 'vitest'
import { JobsInHand } from '../../src/worker/jobs-in-hand.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, jobs, Workshop } from '../worker/support.ts'
import { recording } from './support.ts'

const shop = new Workshop(useRedis(import.meta.url))
const WHY = { reason: 'wrong recipients', by: 'ops' }
const FAILURE = 'cancelled by ops: wrong recipients'

/** @returns resolves once the worker has heard that so many jobs are cancelled */
function heard(): (count: number) => Promise<void> {
  const spy = vi.spyOn(JobsInHand.prototype, 'cancelRun')
  onTestFinished(() => spy.mockRestore())
  const ids = () => new Set(spy.mock.calls.map(([id]) => id))
  return (count) => expect.poll(() => ids().size, { timeout: 10_000, interval: 5 }).toBe(count)
}

/** A worker whose batches run until `open`, or until their signal is aborted; then they end as `end` does. */
function holding(queue: Parameters<Workshop['worker']>[0], batch: object, end: () => void = () => {}, concurrency = 1) {
  const open = gate()
  const signals: AbortSignal[] = []
  const { batches, processor } = recording()
  const run = async (job: Job, _token?: string, signal?: AbortSignal) => {
    signals.push(signal as AbortSignal)
    await processor(job)
    await new Promise<void>((resolve, reject) => {
      signal?.addEventListener('abort', () => reject(new Error('aborted')))
      void open.opened.then(() => resolve())
    })
    end()
  }
  const worker = shop.worker(queue, run, { batch: { size: 3, ...batch } as never, concurrency })
  return {
    ...{ worker, open, signals, batches },
    failed: eventsOf<Job>('failed', worker),
    completed: eventsOf<Job>('completed', worker),
  }
}

test('a job of a running batch that is cancelled fails for good where the processor throws, the others by themselves', async () => {
  const queue = shop.queue({})
  const [, one] = await queue.addBulk(jobs(3, { attempts: 2, backoff: 3_600_000 }))
  const { open, signals, batches, failed } = holding(queue, {}, () => {
    throw new Error('told to')
  })
  await batches.reach(1)
  const cancelled = heard()
  expect(await queue.cancelJob(one?.id as string, WHY)).toBe('aborting')
  await cancelled(1)
  expect(signals[0]?.aborted).toBe(false)
  open.open()
  await failed.reach(3)
  const reasons = failed.all.map(({ name, failedReason }) => [name, failedReason])
  expect(Object.fromEntries(reasons)).toEqual({ job0: 'told to', job1: FAILURE, job2: 'told to' })
  expect(await queue.getJobCounts('failed', 'delayed')).toEqual({ failed: 1, delayed: 2 })
})

test('where the processor returns, it has completed', async () => {
  const queue = shop.queue({})
  const [one] = await queue.addBulk(jobs(3))
  const { open, batches, completed } = holding(queue, {})
  await batches.reach(1)
  const cancelled = heard()
  expect(await queue.cancelJob(one?.id as string, WHY)).toBe('aborting')
  await cancelled(1)
  open.open()
  await completed.reach(3)
  expect(await queue.getJobCounts('completed', 'failed')).toEqual({ completed: 3, failed: 0 })
})

test('the jobs of a group that are a whole batch abort its signal, and the batch of another group goes on', async () => {
  const queue = shop.queue({ groups: {} })
  const added = ['a', 'b'].flatMap((id) => jobs(3, { group: { id }, attempts: 3 }))
  await queue.addBulk(added)
  const { open, signals, batches, failed, completed } = holding(queue, { groupAffinity: true }, undefined, 2)
  await batches.reach(2)
  expect(await queue.cancelJobs({ group: 'a' }, WHY)).toMatchObject({ aborting: 3, failed: 0 })
  await failed.reach(3)
  expect(signals.map(({ aborted }) => aborted).sort()).toEqual([false, true])
  expect(signals.find(({ aborted }) => aborted)?.reason).toBe(FAILURE)
  expect(failed.all.map(({ failedReason }) => failedReason)).toEqual([FAILURE, FAILURE, FAILURE])
  open.open()
  await completed.reach(3)
})

test('of a batch of several groups, the jobs of one are cancelled and the signal is not aborted', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk(['a', 'b', 'a'].flatMap((id) => jobs(1, { group: { id } })))
  const { open, signals, batches, failed } = holding(queue, {}, () => {
    throw new Error('told to')
  })
  await batches.reach(1)
  const cancelled = heard()
  expect(await queue.cancelJobs({ group: 'a' }, WHY)).toMatchObject({ aborting: 2 })
  await cancelled(2)
  expect(signals[0]?.aborted).toBe(false)
  open.open()
  await failed.reach(3)
  expect(failed.all.map(({ failedReason }) => failedReason).sort()).toEqual([FAILURE, FAILURE, 'told to'])
})

test('runTimeoutMs is that of a job: the batch goes on until all have taken too long', async () => {
  const queue = shop.queue({})
  const long = jobs(2, { runTimeoutMs: 20 })
  await queue.addBulk([...long, { name: 'other', data: {} }])
  const { open, signals, batches, failed } = holding(queue, {}, () => {
    throw new Error('told to')
  })
  await batches.reach(1)
  await delay(60)
  expect(signals[0]?.aborted).toBe(false)
  open.open()
  await failed.reach(3)
  const reasons = failed.all.map(({ name, failedReason }) => [name, /runTimeoutMs|20 ms/.test(failedReason)])
  expect(Object.fromEntries(reasons)).toEqual({ job0: true, job1: true, other: false })

  const all = shop.queue({})
  await all.addBulk(jobs(3, { runTimeoutMs: 20 }))
  const second = holding(all, {})
  await second.failed.reach(3)
  expect(second.signals.map(({ aborted }) => aborted)).toEqual([true])
})

test('one that is cancelled while its batch is gathered never starts, and the others do', async () => {
  const queue = shop.queue({})
  const added = await queue.addBulk(jobs(2))
  const active = eventsOf('active', shop.queueEvents(queue))
  const { open, batches, failed, completed } = holding(queue, { minSize: 3, timeoutMs: 600_000 })
  await active.reach(2)
  const cancelled = heard()
  expect(await queue.cancelJob(added[0]?.id as string, WHY)).toBe('aborting')
  await cancelled(1)
  await queue.add('job2', {})
  await failed.reach(1)
  open.open()
  await completed.reach(2)
  expect(batches.all).toEqual([['job1', 'job2']])
  expect(failed.all).toMatchObject([{ name: 'job0', failedReason: FAILURE }])
})

test('one that expires while its batch waits fails, and the others start without it', async () => {
  const queue = shop.queue({})
  const active = eventsOf('active', shop.queueEvents(queue))
  const { open, batches, failed, completed } = holding(queue, { minSize: 3, timeoutMs: 600_000 })
  await queue.add('job0', {}, { mustStartBefore: new Date(Date.now() + 300) })
  await queue.add('job1', {})
  await active.reach(2)
  await delay(350)
  await queue.add('job2', {})
  await failed.reach(1)
  open.open()
  await completed.reach(2)
  expect(batches.all).toEqual([['job1', 'job2']])
  expect(failed.all.map(({ name }) => name)).toEqual(['job0'])
})
