import { expect, test } from 'vitest'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, excess, gate, jobs, rounding, Workshop } from '../worker/support.ts'
import { recording } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const namesOf = (count: number) => jobs(count).map(({ name }) => name)

test('a batch has the jobs that wait, up to its size', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(12))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 5 } })
  await eventsOf('completed', worker).reach(12)
  expect(batches.all).toEqual([namesOf(12).slice(0, 5), namesOf(12).slice(5, 10), namesOf(12).slice(10)])
})

test('a batch can be larger than one call for jobs', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(120))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 110 } })
  await eventsOf('completed', worker).reach(120)
  expect(batches.all.map(({ length }) => length)).toEqual([110, 10])
})

test('the ends of a batch fetch the jobs of the next one', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(150))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 50 }, autorun: false })
  const [calls, completed] = [callsOf(worker), eventsOf('completed', worker)]
  void worker.run()
  await completed.reach(150)
  const asked = calls.all.filter(({ reply }) => reply.grants.length > 0)
  expect(asked.map(({ reply }) => reply.grants.length)).toEqual([50])
  expect(batches.all).toEqual([0, 50, 100].map((from) => namesOf(150).slice(from, from + 50)))
})

test('concurrency counts batches: no more run at once, and no jobs are taken for others', async () => {
  const queue = shop.queue({})
  await queue.addBulk(jobs(9))
  const open = gate()
  const { batches, processor } = recording(() => open.opened)
  const worker = shop.worker(queue, processor, { concurrency: 2, batch: { size: 3 } })
  const completed = eventsOf('completed', worker)
  await batches.reach(2)
  // Whatever the worker would ask for, it would have by then.
  await Promise.all([queue.add('more', {}), client.ping()])
  expect(await queue.getActiveCount()).toBe(6)
  expect(batches.all).toHaveLength(2)
  open.open()
  await completed.reach(10)
  expect(batches.all.map(({ length }) => length)).toEqual([3, 3, 3, 1])
})

test('a batch begins while another one runs', async () => {
  const queue = shop.queue({})
  const open = gate()
  const { batches, processor } = recording(() => open.opened)
  const worker = shop.worker(queue, processor, { concurrency: 2, batch: { size: 3 } })
  const completed = eventsOf('completed', worker)
  for (let i = 1; i <= 2; i++) {
    await queue.addBulk(jobs(3))
    await batches.reach(i)
  }
  open.open()
  await completed.reach(6)
  expect(batches.all).toEqual([namesOf(3), namesOf(3)])
})

test('jobs that are gathered take places: only those that their batch lacks are asked for', async () => {
  const queue = shop.queue({})
  const open = gate()
  const { batches, processor } = recording(() => open.opened)
  const worker = shop.worker(queue, processor, { batch: { size: 5, minSize: 5, timeoutMs: 600_000 } })
  const active = eventsOf('active', shop.queueEvents(queue))
  const completed = eventsOf('completed', worker)
  await queue.addBulk(jobs(2))
  await active.reach(2)
  await queue.addBulk(jobs(8))
  await batches.reach(1)
  expect(await queue.getActiveCount()).toBe(5)
  open.open()
  await completed.reach(10)
  expect(batches.all.map(({ length }) => length)).toEqual([5, 5])
})

test('a batch waits for its minSize', async () => {
  const queue = shop.queue({})
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 5, minSize: 3, timeoutMs: 600_000 } })
  const active = eventsOf('active', shop.queueEvents(queue))
  const completed = eventsOf('completed', worker)
  for (let i = 1; i <= 2; i++) {
    await queue.add(`job${i - 1}`, {})
    await active.reach(i)
  }
  expect(batches.all).toEqual([])
  await queue.add('job2', {})
  await completed.reach(3)
  expect(batches.all).toEqual([namesOf(3)])
})

test('and for no longer than timeoutMs after its first job', async () => {
  const queue = shop.queue({})
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 5, minSize: 3, timeoutMs: 200 } })
  const completed = eventsOf('completed', worker)
  const departed = departuresOf(worker)
  await queue.addBulk(jobs(2))
  await completed.reach(2)
  expect(batches.all).toEqual([namesOf(2)])
  expect(departed.all[0]?.latenessUs).toBeGreaterThan(199_000)
})

test('locks are renewed while a batch waits', async () => {
  const queue = shop.queue({})
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, {
    ...{ batch: { size: 2, minSize: 2, timeoutMs: 600_000 }, lockDuration: 500 },
    ...{ stalledInterval: 100, maxStalledCount: 0 },
  })
  const renewed = eventsOf<{ jobIds: string[] }>('locksRenewed', worker)
  const stalled = eventsOf<string>('stalled', worker)
  const first = await queue.add('first', {})
  await renewed.reach(4)
  expect(renewed.all.every(({ jobIds }) => jobIds.includes(first.id as string))).toBe(true)
  await queue.add('second', {})
  await batches.reach(1)
  expect(batches.all).toEqual([['first', 'second']])
  expect(stalled.all).toEqual([])
})

test('with groupAffinity a batch has jobs of one group, or of none', async () => {
  const queue = shop.queue({ groups: {} })
  const groups = ['a', 'b', undefined]
  const added = jobs(30).map((job, i) => {
    const group = groups[i % 3]
    return { ...job, name: `${group}`, opts: group ? { group: { id: group } } : {} }
  })
  await queue.addBulk(added)
  let running = 0
  const most: number[] = []
  const { batches, processor } = recording(async () => {
    running += 1
    most.push(running)
    await client.ping()
    running -= 1
  })
  const worker = shop.worker(queue, processor, { batch: { size: 20, groupAffinity: true } })
  await eventsOf('completed', worker).reach(30)
  expect(batches.all.every((batch) => new Set(batch).size === 1)).toBe(true)
  expect(Math.max(...batches.all.map(({ length }) => length))).toBeGreaterThan(3)
  expect(Math.max(...most)).toBe(1)
})

test('without it, a batch has jobs of any group', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk(jobs(10).map((job, i) => ({ ...job, name: `g${i % 2}`, opts: { group: { id: `g${i % 2}` } } })))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 10 } })
  await eventsOf('completed', worker).reach(10)
  expect(batches.all.map((batch) => new Set(batch).size)).toEqual([2])
})

test('under a rate each job has its own slot, and the batch begins after the last of them', async () => {
  const intervalUs = 5000
  const queue = shop.queue({ rate: '200/s' })
  await queue.addBulk(jobs(60))
  const { batches, processor } = recording()
  const options = { batch: { size: 20, minSize: 10, timeoutMs: 60_000 }, autorun: false }
  const workers = [1, 2].map(() => shop.worker(queue, processor, options))
  const completed = eventsOf('completed', ...workers)
  const departed = departuresOf(...workers)
  await Promise.all(workers.map((worker) => worker.waitUntilReady()))
  for (const worker of workers) void worker.run()
  // The two may hold fewer than they wait for at the end.
  await completed.reach(42)
  expect(batches.all.every(({ length }) => length >= 10 && length <= 20)).toBe(true)
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, intervalUs)).toBeLessThanOrEqual(rounding(intervalUs))
  expect(departed.all.every(({ latenessUs, clockErrorUs }) => latenessUs >= -clockErrorUs)).toBe(true)
  expect(Math.max(...departed.all.map(({ latenessUs }) => latenessUs))).toBeGreaterThan(9 * intervalUs * 0.9)
})

test('under a rate a batch without minSize waits for no slot', async () => {
  const queue = shop.queue({ rate: '20/s' })
  await queue.addBulk(jobs(5))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 10 } })
  await eventsOf('completed', worker).reach(5)
  expect(batches.all.flat()).toEqual(namesOf(5))
  expect(batches.all.length).toBeGreaterThan(1)
})

test('a batch that waits for its place beyond the lateness of its jobs gives them back', async () => {
  // A busy machine starts the first batch well within it.
  const maxLatenessMs = 500
  const queue = shop.queue({ rate: '1000/s', burst: 10, groups: {}, maxLatenessMs })
  const added = ['a', 'b'].map((id) => ({ name: id, data: {}, opts: { group: { id } } }))
  await queue.addBulk(added)
  const open = gate()
  const { batches, processor } = recording(() => open.opened)
  const worker = shop.worker(queue, processor, { batch: { size: 5, groupAffinity: true } })
  const active = eventsOf('active', shop.queueEvents(queue))
  const late = eventsOf('late', worker)
  const completed = eventsOf('completed', worker)
  const departed = departuresOf(worker)
  await active.reach(2)
  await batches.reach(1)
  setTimeout(open.open, 3 * maxLatenessMs)
  await completed.reach(2)
  expect(late.all.map(({ name }) => name)).toEqual(['b'])
  expect(batches.all).toEqual([['a'], ['b']])
  expect(Math.max(...departed.all.map(({ latenessUs }) => latenessUs))).toBeLessThan(2000 * maxLatenessMs)
})

test('limits are charged for each job of a batch, by its own costs', async () => {
  const queue = shop.queue({ limits: [{ name: 'tokens', unit: 'tokens', rate: '10/h', burst: 10 }] as never })
  await queue.addBulk(jobs(8, { costs: { tokens: 3 } }))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 8 } })
  await eventsOf('completed', worker).reach(3)
  expect(batches.all.flat()).toEqual(namesOf(3))
  expect(await queue.getWaitingCount()).toBe(5)
})

test('a batch has no more jobs than may run at once in all workers', async () => {
  const queue = shop.queue({ concurrency: 3 })
  await queue.addBulk(jobs(7))
  const { batches, processor } = recording()
  const worker = shop.worker(queue, processor, { batch: { size: 5 } })
  await eventsOf('completed', worker).reach(7)
  expect(Math.max(...batches.all.map(({ length }) => length))).toBe(3)
})
