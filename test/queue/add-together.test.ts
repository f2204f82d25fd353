import { expect, test, vi } from 'vitest'
import { POSITION } from '../../src/admission/add-call.ts'
import { QueueFullError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Adds jobs in one turn of the event loop, behind one that is under way. */
async function addTogether(add: (i: number) => Promise<unknown>, jobs: number) {
  const settled = await Promise.allSettled(Array.from({ length: jobs }, (_, i) => add(i)))
  return {
    added: settled.flatMap((result, i) => (result.status === 'fulfilled' ? [i] : [])),
    errors: settled.flatMap((result) => (result.status === 'rejected' ? [result.reason] : [])),
  }
}

test('jobs that are added beside each other are a few scripts', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await queue.waitUntilReady()
  const client = (await queue.getBackend().connection.client) as unknown as Record<string, () => unknown>
  const commands = Object.keys(client).filter((name) => /:add(-bulk)?$/.test(name))
  const spies = commands.map((name) => vi.spyOn(client, name))
  await addTogether(() => queue.add('job', {}), 100)
  const calls = spies.reduce((sum, spy) => sum + spy.mock.calls.length, 0)
  expect(calls).toBeGreaterThan(0)
  expect(calls).toBeLessThan(40)
  expect(await queue.getWaitingCount()).toBe(100)
})

test('the bound holds to the job, and each that did not fit is told when to come back', async () => {
  const queue = shop.queue({ capacity: 30, rate: '10/s' })
  const { added, errors } = await addTogether((i) => queue.add('job', {}, { jobId: `j${i}` }), 100)
  expect(added).toEqual(Array.from({ length: 30 }, (_, i) => i))
  expect(errors.every((error) => error instanceof QueueFullError)).toBe(true)
  expect(errors.every(({ depth, capacity, retryAfterMs }) => depth === 30 && capacity === 30 && retryAfterMs > 0)).toBe(
    true,
  )
  expect(await queue.getWaitingCount()).toBe(30)
})

test('their order is kept, whatever their kind', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await addTogether(
    (i) => (i % 7 === 3 ? queue.offer('job', {}, { jobId: `j${i}` }) : queue.add('job', {}, { jobId: `j${i}` })),
    50,
  )
  const ids = (await queue.getWaiting(0, -1)).map(({ id }) => id)
  expect(ids).toEqual(Array.from({ length: 50 }, (_, i) => `j${i}`))
})

test('each is told its own position', async () => {
  const queue = shop.queue({ capacity: 1000 })
  const positions: [i: number, position: number][] = []
  await addTogether((i) => {
    const told = { [POSITION]: (position: number) => positions.push([i, position]) }
    return queue.add('job', {}, { ...told, delay: i % 7 === 3 ? 60_000 : 0 })
  }, 50)
  const waiting = Array.from({ length: 50 }, (_, i) => i).filter((i) => i % 7 !== 3)
  expect(positions.toSorted(([one], [other]) => one - other)).toEqual(waiting.map((i, position) => [i, position]))
})

test('a bulk comes behind the jobs that were added before it', async () => {
  const queue = shop.queue({ capacity: 1000 })
  const bulk = (ids: readonly string[]) =>
    queue.addBulk(ids.map((jobId) => ({ name: 'job', data: {}, opts: { jobId } })))
  const one = (jobId: string) => queue.add('job', {}, { jobId })
  await queue.waitUntilReady()
  await Promise.all([one('a'), one('b'), one('c'), bulk(['d', 'e'])])
  expect((await queue.getWaiting(0, -1)).map(({ id }) => id)).toEqual([...'abcde'])
})

test('delayed and prioritized jobs are stored as what they are', async () => {
  const queue = shop.queue({ capacity: 1000 })
  const options = [{}, { priority: 3 }, { delay: 60_000 }]
  await addTogether((i) => queue.add('job', { i }, options[i % 3]), 30)
  expect(await queue.getJobCounts('wait', 'prioritized', 'delayed')).toEqual({ wait: 10, prioritized: 10, delayed: 10 })
})

test('a job that costs too much, and a full queue, are told to their own callers alone', async () => {
  const queue = shop.queue({ capacity: 1000, rate: '10/s', burst: 2 })
  const { added, errors } = await addTogether((i) => queue.add('job', {}, { cost: i === 20 ? 5 : 1 }), 40)
  expect(added).toHaveLength(39)
  expect(errors.map(({ name }) => name)).toEqual(['CostTooHighError'])
})

test('a job that costs more than a limit ever allows is refused among others as it is alone', async () => {
  const queue = shop.queue({ capacity: 1000, limits: [{ name: 'window', algorithm: 'fixed-window', rate: '7/h' }] })
  const { added, errors } = await addTogether((i) => queue.add('job', { i }, { cost: i % 10 === 0 ? 8 : 1 }), 40)
  expect(errors).toHaveLength(4)
  expect(errors[0]).toMatchObject({ name: 'CostTooHighError', cost: 8, burst: 7, limitName: 'window' })
  expect(added).toEqual(Array.from({ length: 40 }, (_, i) => i).filter((i) => i % 10 > 0))
  expect(await queue.getWaitingCount()).toBe(36)
})

test('duplicates pass where there is no place left', async () => {
  const queue = shop.queue({ capacity: 5 })
  for (const i of [0, 1, 2, 3, 4]) await queue.add('job', {}, { jobId: `j${i}` })
  const { added, errors } = await addTogether(
    (i) => queue.add('job', {}, { jobId: i % 2 ? `j${i % 5}` : `new${i}` }),
    20,
  )
  expect(added).toEqual([1, 3, 5, 7, 9, 11, 13, 15, 17, 19])
  expect(errors).toHaveLength(10)
})

test('one that fails inside the script fails alone', async () => {
  const queue = shop.queue({ capacity: 1000 })
  const { added, errors } = await addTogether((i) => {
    const parent = { id: 'missing', queue: `${queue.opts.prefix}:nowhere` }
    return queue.add('job', {}, i === 10 ? { parent } : {})
  }, 20)
  expect(added).toHaveLength(19)
  expect(String(errors[0])).toMatch(/[Mm]issing key for parent job/)
})

test('one that Redis refuses fails alone, and says why', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await redis.client().set(queue.toKey('taken'), 'by another program')
  const { added, errors } = await addTogether((i) => queue.add('job', {}, { jobId: i === 10 ? 'taken' : `j${i}` }), 20)
  expect(added).toHaveLength(19)
  expect(String(errors[0])).toMatch('WRONGTYPE')
})

test('what was added before the queue is closed is in it, though nobody waited', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await queue.add('job', {})
  const adding = addTogether(() => queue.add('job', {}), 20)
  await queue.close()
  expect(await adding).toMatchObject({ added: { length: 20 }, errors: [] })
})
