import { expect, onTestFinished, test } from 'vitest'
import { GroupFullError, QueueFullError, type Shape, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { changeFailed, changeMatching } from '../../src/queue/failed-jobs.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const WAIT = { timeout: 60_000, interval: 20 }
const wide: Shape = { rate: '1000/s', burst: 100, capacity: 100 }
const ids = (count: number) => Array.from({ length: count }, (_, i) => `job-${i}`)

async function opened(name: string, shape: Shape): Promise<ShapedQueue> {
  const queue = new ShapedQueue(name, { connection, prefix, shape })
  onTestFinished(() => queue.close())
  await queue.getShape()
  return queue
}

/** A queue in which these jobs have failed. */
async function queueOfFailed(name: string, jobs: readonly string[], opts: object = {}, shape: Shape = wide) {
  const queue = await opened(name, shape)
  const worker = new ShapedWorker(name, async () => Promise.reject(new Error('no')), { connection, prefix })
  for (const jobId of jobs) await queue.addWhenFree('job', { jobId }, { ...opts, jobId })
  await expect.poll(() => queue.getFailedCount(), WAIT).toBe(jobs.length)
  await worker.close()
  return queue
}

/** How calls at the same moment end: how often without an error, and the errors. */
async function settled(calls: readonly Promise<unknown>[]) {
  const ends = await Promise.allSettled(calls)
  const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as Error] : []))
  return { done: ends.length - errors.length, errors }
}

test('retries at the same moment take no more places than there are', async () => {
  const queue = await queueOfFailed('bounded', ids(8))
  await queue.setShape({ capacity: 3 }, { by: 'ada', reason: 'a test' })
  const { done, errors } = await settled(ids(8).map((id) => changeFailed(queue, id, { kind: 'retry' })))
  expect([done, errors.every((error) => error instanceof QueueFullError)]).toEqual([3, true])
  expect(errors[0]).toMatchObject({ depth: 3, capacity: 3, retryAfterMs: expect.any(Number) })
  expect([await queue.count(), await queue.getFailedCount()]).toEqual([3, 5])
})

test('a retry obeys the places that are reserved, and the bound of its group', async () => {
  const low = await queueOfFailed('reserved', ids(2), { priority: 5 }, { ...wide, reservedPlaces: { 1: 99 } })
  const reserved = await settled(ids(2).map((id) => changeFailed(low, id, { kind: 'retry' })))
  expect([reserved.done, await low.getPrioritizedCount()]).toEqual([1, 1])
  const grouped = await queueOfFailed(
    'grouped',
    ids(3),
    { group: { id: 'acme' } },
    { ...wide, groups: { capacity: 2 } },
  )
  const { done, errors } = await settled(ids(3).map((id) => changeFailed(grouped, id, { kind: 'retry' })))
  expect([done, errors[0]]).toEqual([2, expect.any(GroupFullError)])
  expect(await grouped.getGroup('acme')).toMatchObject({ status: 'waiting', waiting: 2 })
})

test('what has not failed is left alone', async () => {
  const queue = await opened('waiting', wide)
  await queue.add('job', {}, { jobId: 'waits' })
  for (const kind of ['retry', 'remove'] as const) {
    for (const id of ['waits', 'unknown', 'wait']) expect(await changeFailed(queue, id, { kind })).toBe('not failed')
  }
  expect(await changeFailed(queue, 'waits', { kind: 'deadLetter', to: 'waiting-dead' })).toBe('not failed')
  expect([await queue.getJobState('waits'), await queue.count()]).toEqual(['waiting', 1])
})

test('whatever is done with a job at the same moment, it is in one place afterwards', async () => {
  const jobs = ids(30)
  const queue = await queueOfFailed('raced', jobs)
  const dead = await opened('raced-dead', {})
  const calls = jobs.flatMap((id, i) => {
    const deadLetter = () => changeFailed(queue, id, { kind: 'deadLetter', to: dead.name })
    const retry = () => changeFailed(queue, id, { kind: 'retry' })
    return (i % 2 === 0 ? [deadLetter, retry, deadLetter] : [retry, deadLetter, retry]).map((call) => call())
  })
  const { errors } = await settled(calls)
  expect(errors).toEqual([])
  expect((await queue.count()) + (await dead.count())).toBe(jobs.length)
  expect(await queue.getFailedCount()).toBe(0)
  await queue.redrive({ from: dead.name })
  expect([await queue.count(), await dead.count()]).toEqual([jobs.length, 0])
})

test('all with a reason are changed but those that fail meanwhile, until it is stopped', async () => {
  const queue = await queueOfFailed('matching', ids(3))
  const stop = new AbortController()
  const changed: string[] = []
  const onChanged = (id: string) => {
    changed.push(id)
    if (changed.length === 2) stop.abort(new Error('enough'))
  }
  const all = { failedReason: 'no', onChanged, signal: stop.signal }
  await expect(changeMatching(queue, { kind: 'remove' }, all)).rejects.toThrow('enough')
  expect([changed, await queue.getFailedCount()]).toEqual([ids(2), 1])
  await changeMatching(queue, { kind: 'remove' }, { failedReason: 'another reason' })
  expect(await queue.getFailedCount()).toBe(1)
})
