import type { Job } from 'bullmq'
import { expect, test, vi } from 'vitest'
import { CALLS_REMEMBERED, Departures } from '../../src/departure/exchange.ts'
import { StockDepartures } from '../../src/departure/stock.ts'
import { installedScripts } from '../../src/redis/scripts.ts'
import { changeMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, Workshop, watchScripts } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const BY = { by: 'test', reason: 'between two sendings' }

test.each([
  ['nothing changed', async () => {}],
  ['the capacity was overridden', (queue) => queue.setShape({ capacity: 50 }, BY)],
  ['a rate came', (queue) => queue.setShape({ rate: '1/min' }, BY)],
  ['the meter was paused', (queue) => queue.pauseUntil(Date.now() + 60_000, BY)],
] as [string, (queue: ReturnType<typeof shop.queue>) => Promise<void>][])(
  'an end that is sent again gets the job that it fetched, and no other: %s',
  async (_what, change) => {
    const queue = shop.queue({ capacity: 100 })
    await queue.addBulk(Array.from({ length: 5 }, (_, i) => ({ name: 'job', data: { i } })))
    const worker = shop.worker(queue, null, { autorun: false })
    await worker.waitUntilReady()
    const sent = vi.spyOn(StockDepartures.prototype, 'end')
    const job = await worker.getNextJob('token')
    const [, next] = (await job!.moveToCompleted('done', 'token', true)) as [unknown, string]
    await change(queue)
    const stock = sent.mock.contexts.at(-1) as StockDepartures
    const again = (await stock.end(...sent.mock.calls.at(-1)!)) as unknown[]
    expect(again[1]).toBe(next)
    expect(await queue.getJobCounts('active', 'completed', 'wait')).toEqual({ active: 1, completed: 1, wait: 3 })
  },
)

test('a batch of ends that is sent again under a rate takes no further jobs', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.addBulk(Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: { i } })))
  const open: (() => void)[] = []
  const worker = shop.worker(queue, () => new Promise<void>((resolve) => void open.push(resolve)), { concurrency: 20 })
  await worker.waitUntilReady()
  const sent = vi.spyOn(Departures.prototype, 'exchange')
  await vi.waitFor(() => expect(open).toHaveLength(20), 60_000)
  for (const end of open.splice(0, 10)) end()
  await vi.waitFor(() => expect(open).toHaveLength(20), 60_000)
  await queue.setShape({ rate: '1/min' }, BY)
  const departures = sent.mock.contexts.at(-1) as Departures
  const [, , results] = (await departures.exchange(...sent.mock.calls.at(-1)!)) as [unknown, unknown, unknown[]]
  expect(results).toHaveLength(10)
  expect(results.every((result) => typeof result === 'object')).toBe(true)
  expect(await queue.getJobCountByTypes('active')).toBe(20)
  await queue.clearShape()
  for (const end of open) end()
  await worker.close(true)
})

test('what a worker may send again takes as much of Redis however many jobs it ran', async () => {
  const queue = shop.queue({ rate: '10000/s', burst: 1000 })
  const jobs = Array.from({ length: 3 * CALLS_REMEMBERED }, () => ({ name: 'job', data: {} }))
  await queue.addBulk(jobs)
  await departuresOf(shop.worker(queue, async () => {})).reach(jobs.length)
  const remembered = await redis.client().keys(queue.toKey('meta:grants:*'))
  expect(remembered.length).toBeGreaterThan(1)
  expect(remembered.length).toBeLessThanOrEqual(CALLS_REMEMBERED)
})

test('of jobs that end together one has lost its lock and one is locked by another worker: the others end and fetch', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.addBulk(Array.from({ length: 40 }, (_, i) => ({ name: 'job', data: { i } })))
  const running = new Map<string, () => void>()
  const worker = shop.worker(
    queue,
    (job) => new Promise<void>((resolve) => void running.set(job.id as string, resolve)),
    { concurrency: 20 },
  )
  const [completed, drained, errors] = [vi.fn(), vi.fn(), [] as Error[]]
  worker.on('completed', (job) => completed(job.id))
  worker.on('drained', drained)
  worker.on('error', (error) => errors.push(error))
  await vi.waitFor(() => expect(running.size).toBe(20), 60_000)
  const ended = [...running.keys()].slice(0, 10)
  const client = redis.client()
  await client.del(`${queue.toKey(ended[3]!)}:lock`)
  await client.set(`${queue.toKey(ended[6]!)}:lock`, 'another')
  for (const id of ended) running.get(id)!()
  await vi.waitFor(() => {
    expect(running.size).toBe(30)
    expect(completed.mock.calls.flat().sort()).toEqual(ended.filter((_, i) => i !== 6).sort())
    // Its end was refused, and so was its failure, which BullMQ's code tries then.
    expect(errors.map(({ message }) => message.split(' for ')[0])).toEqual(['Lock mismatch', 'Lock mismatch'])
  }, 60_000)
  expect(drained).not.toHaveBeenCalled()
  await client.del(`${queue.toKey(ended[6]!)}:lock`)
  for (const end of running.values()) end()
  await worker.close(true)
})

test('a grant that is sent again to a server that took over leaves the loss to the next call, which stores and reports it', async () => {
  const queue = shop.queue({ rate: '100/s', burst: 10 })
  await queue.addBulk([1, 2, 3].map((n) => ({ name: 'job', data: { n } })))
  const worker = shop.worker(queue, null, { autorun: false })
  await worker.waitUntilReady()
  const asked = vi.spyOn(Departures.prototype, 'ask')
  await worker.getNextJob('token')
  const [{ id }, request] = asked.mock.lastCall!
  const scripts = installedScripts()
  /** The first call of each has the same id, if their names are the same. */
  const depart = async (sender: string) => {
    const { store, client } = worker.getBackend()
    const departures = new Departures(
      scripts,
      store,
      () => client,
      (_, send) => send(),
      undefined,
    )
    const { grants, loss } = await departures.ask({ id: `${id}-${sender}`, allowUnshaped: true }, request)
    return [grants.length, loss?.policy]
  }
  expect(await depart('same')).toEqual([1, undefined])
  await changeMeter(redis.client(), queue.toKey(''), { run: 'another' })
  expect(await depart('same')).toEqual([1, undefined])
  expect(await depart('next')).toEqual([0, 'hold'])
  expect(await depart('last')).toEqual([0, undefined])
})

test('a request that is sent again gets no job that has gone back meanwhile', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.addBulk([1, 2].map((n) => ({ name: 'job', data: { n } })))
  const worker = shop.worker(queue, null, { autorun: false })
  const exchange = worker.getBackend().exchange!
  const asked = vi.spyOn(Departures.prototype, 'ask')
  const { grants } = await exchange.ask({ jobs: 2, horizonUs: 0 })
  const [lost, kept] = grants.map(({ id }) => id) as [string, string]
  const client = redis.client()
  await client.del(`${queue.toKey(lost)}:lock`)
  await client.lrem(queue.toKey('active'), 1, lost)
  await client.rpush(queue.toKey('wait'), lost)
  const departures = asked.mock.contexts.at(-1) as Departures
  const again = await departures.ask(...asked.mock.lastCall!)
  expect(again.grants.map(({ id }) => id)).toEqual([kept])
})

test('a job that was put off, and runs again with the same token, is not put off once more by the first call', async () => {
  const queue = shop.queue({ capacity: 100 })
  const { id } = await queue.add('job', {})
  const worker = shop.worker(queue, null, { autorun: false })
  await worker.waitUntilReady()
  const sent = vi.spyOn(Departures.prototype, 'exchange')
  const job = await worker.getNextJob('token')
  await job!.moveToDelayed(Date.now(), 'token')
  const departures = sent.mock.contexts.at(-1) as Departures
  await expect.poll(() => worker.getNextJob('token', { block: false }).then((next) => next?.id)).toBe(id)
  const [, , results] = (await departures.exchange(...sent.mock.lastCall!)) as [unknown, unknown, unknown[]]
  expect(results).toEqual([0])
  expect(await queue.getJobCounts('active', 'delayed')).toEqual({ active: 1, delayed: 0 })
})

test('an end that finds the shape lost is stored, even if the shape cannot be restored then', async () => {
  const queue = shop.queue({ capacity: 100 })
  await queue.add('job', {})
  const { open, opened } = gate()
  const worker = shop.worker(queue, () => opened)
  const [completed, errors] = [eventsOf<Job>('completed', worker), eventsOf<Error>('error', worker)]
  await departuresOf(worker).reach(1)
  const restore = vi.spyOn(worker.getBackend().store, 'restore')
  restore.mockRejectedValueOnce(new Error('READONLY You cannot write against a read only replica.'))
  await redis.client().del(queue.toKey('meta:shape'))
  open()
  await completed.reach(1)
  await vi.waitFor(async () => expect((await queue.getShape())?.capacity).toBe(100))
  expect(restore.mock.calls.length).toBeGreaterThan(1)
  expect(errors.all).toEqual([])
})

test.each([
  ['no shape', undefined],
  ['a capacity', { capacity: 100 }],
  ['groups', { groups: {} }],
] as const)('the end of a job that comes again later says when the next one is due: %s', async (_what, shape) => {
  const queue = shop.queue(shape)
  const worker = shop.worker(queue, () => Promise.reject(new Error('once')), { allowUnshaped: true })
  const dueMs: number[] = []
  await worker.waitUntilReady()
  await watchScripts(worker, (_name, args, reply) => {
    if (args.includes('delayed 0 0 1')) dueMs.push(Number((reply as unknown[])[7]))
  })
  const nowMs = Date.now()
  await queue.add('job', {}, { attempts: 2, backoff: 60_000 })
  await vi.waitFor(() => expect(dueMs).toHaveLength(1))
  expect(dueMs[0]).toBeGreaterThan(nowMs + 59_000)
})
