import { Queue, Worker } from 'bullmq'
import { expect, test, vi } from 'vitest'
import { Departures } from '../../src/departure/exchange.ts'
import type { JobEnd } from '../../src/departure/job-end.ts'
import { ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, gate, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const bulk = (priorities: readonly number[]) =>
  priorities.map((priority, i) => ({ name: `${priority}-${i}`, data: {}, opts: priority === 0 ? {} : { priority } }))
const namesOf = (departures: readonly { name: string }[]) => departures.map(({ name }) => name)

async function queuedAt(queue: ShapedQueue): Promise<(string | null)[]> {
  const jobs = await queue.getJobs(['waiting', 'prioritized', 'delayed', 'waiting-children'])
  return Promise.all(jobs.map(({ id }) => client.hget(queue.toKey(id as string), 'queuedAt')))
}

/** The end of this job fetches no other one. */
function withoutFetch(ends: readonly JobEnd[], id: string): JobEnd[] {
  return ends.map((end) => {
    if (end.id !== id) return end
    return { ...end, fields: end.fields.with(5, String(end.fields[5]).replace(/1$/, '0')) }
  })
}

function heldQueue(name: string): HeldQueue {
  return shop.keep(new HeldQueue(redis, client, name))
}

test.each([
  ['ageing alone', {}],
  ['a rate', { rate: '500/s' }],
  ['a limit', { limits: [{ name: 'minute', rate: '100000/min', burst: 1000 }] }],
  ['groups', { groups: {} }],
])('a stream of more important jobs does not starve another one, with %s', async (_, shape) => {
  const queue = shop.queue({ ...shape, priorityAgeingMs: 50 })
  await queue.addBulk(bulk([4, ...Array<number>(20).fill(0)]))
  let isDone = false
  const run = async ({ name }: { name: string }) => {
    isDone ||= name === '4-0'
    if (!isDone) await queue.add('more', {})
  }
  const workers = [1, 2].map(() => shop.worker(queue, run, { concurrency: 5 }))
  await eventsOf('completed', ...workers).until((jobs) => jobs.some(({ name }) => name === '4-0'))
})

test('every way in records since when a job waits, but only where jobs age', async () => {
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const ways = async (queue: ShapedQueue) => {
    await queue.waitUntilReady()
    await queue.add('plain', {})
    await queue.add('low', {}, { priority: 2 })
    await queue.add('last-in', {}, { lifo: true })
    await queue.addBulk(bulk([0, 3]))
    await queue.upsertJobScheduler('s', { pattern: '* * * * *', immediately: true }, { name: 'tick' })
    const children = [0, 2].map((priority) => ({ name: 'child', queueName: queue.name, opts: { priority } }))
    await flows.add({ name: 'parent', queueName: queue.name, children })
    const [now, then] = await Promise.all([
      queue.add('now', {}, { delay: 60_000 }),
      queue.add('then', {}, { delay: 1 }),
    ])
    await now.promote()
    await then.promote().catch(() => {})
    return queuedAt(queue)
  }
  const plain = await ways(shop.queue({ capacity: 100 }))
  expect(plain.filter((at) => at !== null)).toEqual([])
  const [seconds] = await client.time()
  const ageing = await ways(shop.queue({ capacity: 100, priorityAgeingMs: 1000 }))
  // The parent waits for its children, and the scheduler's job for its time.
  expect(ageing.filter((at) => at === null).length).toBeLessThanOrEqual(2)
  for (const at of ageing) if (at !== null) expect(Number(at) / 1e6).toBeGreaterThanOrEqual(Number(seconds))
})

test('a job that went back keeps its place, one that is retried waits anew', async () => {
  const held = heldQueue('back')
  await held.reset({ priorityAgeingMs: 10_000 })
  const { id: first } = await held.add({ priority: 1, attempts: 2 })
  await held.advanceTo(held.nowUs + 5_000_000)
  const { id: second } = await held.add({ priority: 1 })
  const { grants } = await held.depart(1)
  expect(grants.map(({ id }) => id)).toEqual([first])
  await held.backend.store.run('give-back', [
    '',
    0,
    '',
    '',
    '',
    '',
    first as string,
    grants[0]!.token,
    grants[0]!.score,
  ])
  const [again] = (await held.depart(1)).grants
  expect(again!.id).toBe(first)
  const running = (await held.queue.getJob(first as string))!
  await running.moveToFailed(new Error('again'), again!.token)
  expect(await client.hget(`${held.base}${first}`, 'queuedAt')).toBe(String(held.nowUs))
  expect((await held.depart(2)).grants.map(({ id }) => id)).toEqual([second, first])
})

test('a queue that a stock worker has emptied has left nothing, and jobs of stock producers leave', async () => {
  const queue = shop.queue({ priorityAgeingMs: 20 })
  await queue.addBulk(bulk([5, 3, 0, 1]))
  const keys = () => client.keys(`${queue.toKey('meta')}:*`)
  const before = await keys()
  await shop.close()
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  await stock.addBulk(bulk([2, 0, 7]) as never)
  const plain = shop.keep(new Worker(queue.name, async () => {}, { connection, prefix }))
  const done = await eventsOf('completed', plain).reach(7)
  expect(namesOf(done)).toEqual(['0-2', '0-1', '1-3', '2-0', '3-1', '5-0', '7-2'])
  expect((await keys()).filter((key) => !before.includes(key))).toEqual([])
  await plain.close()
  await stock.addBulk(bulk([2, 0, 7]) as never)
  const again = shop.queueNamed(queue.name, { priorityAgeingMs: 20 })
  expect(await departuresOf(shop.worker(again, async () => {})).reach(3)).toHaveLength(3)
})

test.each([
  ['fetches', true],
  ['does not fetch', false],
])('a parent that comes with an end that %s goes before the jobs that were next until then', async (_, fetches) => {
  const queue = shop.queue({ priorityAgeingMs: 60_000 })
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const at = { queueName: queue.name }
  // The ends of twelve jobs are sent in two calls: in the second one, the child ends behind two others.
  await queue.addBulk(bulk(Array<number>(8).fill(0)))
  await flows.add({ name: 'parent', ...at, opts: { priority: 1 }, children: [{ name: 'child', ...at }] })
  await queue.addBulk(bulk([0, 0, 0, ...Array<number>(20).fill(9)]))
  const [first, rest] = [gate(), gate()]
  let started = 0
  const worker = shop.worker(queue, () => (++started <= 12 ? first : rest).opened, { concurrency: 12 })
  const calls = callsOf(worker)
  const departed = departuresOf(worker)
  const [child] = (await departed.reach(12)).filter(({ name }) => name === 'child')
  await settled(queue, client, calls)
  const exchange = Departures.prototype.exchange
  vi.spyOn(Departures.prototype, 'exchange').mockImplementation(function (this: Departures, to, call, ends) {
    return exchange.call(this, to, call, fetches ? ends : withoutFetch(ends, child?.id as string))
  })
  first.open()
  const names = namesOf(await departed.reach(24)).slice(12)
  expect(names.indexOf('parent')).toBe(8)
  rest.open()
})

test('drain, clean and obliterate leave nothing of jobs that age', async () => {
  const queue = shop.queue({ rate: '1/h', priorityAgeingMs: 1000 })
  await queue.addBulk(bulk([0, 1, 1, 9]))
  await queue.clean(0, 1, 'prioritized')
  await queue.drain()
  expect(await queue.count()).toBe(0)
  await queue.addBulk(bulk([0, 3]))
  await queue.obliterate({ force: true })
  const left = await client.keys(queue.toKey('*'))
  expect(left.filter((key) => !key.includes(':meta'))).toEqual([])
})

test('of very many priorities each has its turn', async () => {
  const held = heldQueue('many')
  await held.reset({ priorityAgeingMs: 1 })
  const oldest = await held.add({ priority: 100_000 })
  await held.advanceTo(held.nowUs + 200_000_017)
  for (let i = 1; i <= 200; i++) await held.add({ priority: i })
  for (let i = 0; ; i++) {
    expect(i).toBeLessThan(1000)
    await held.advanceTo(held.nowUs + 1_000_003)
    const [grant] = (await held.depart(1)).grants
    if (grant!.id === oldest.id) break
    await held.add({ priority: 1 + (i % 200) })
  }
})

test('a job that is redriven waits anew', async () => {
  const queue = shop.queue({ priorityAgeingMs: 1000 })
  const dead = shop.queueNamed('dead')
  const worker = shop.worker(queue, () => Promise.reject(new Error('no')), { deadLetter: dead.name })
  const failures = eventsOf('failed', worker)
  const ids = (await queue.addBulk(bulk([0, 4]))).map(({ id }) => id as string)
  await failures.reach(2)
  await worker.close()
  const [seconds] = await client.time()
  expect(await queue.redrive({ from: dead.name })).toMatchObject({ redriven: 2 })
  for (const id of ids) {
    expect(Number(await client.hget(queue.toKey(id), 'queuedAt')) / 1e6).toBeGreaterThanOrEqual(Number(seconds))
  }
})
