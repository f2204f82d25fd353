import { setTimeout as delay } from 'node:timers/promises'
import { describe } from 'vitest'
import { InvalidDeadlineError, type Shape, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, type Seen, Workshop } from '../worker/support.ts'
import { lettersOf } from './support.ts'

const redis = useRedis(import.meta.url)
useConcurrentTests()
const shop = new Workshop(redis)
/** So long that jobs come in long before deadlines within it, also on a busy machine. */
const INTERVAL_MS = 5000
/** On a busy machine a job that is late for its slot would go back, and get the slot after it. */
const LATE: Shape = { maxLatenessMs: INTERVAL_MS }

/** A worker that has not begun, and all that it will tell. */
function watch(queue: ShapedQueue, options: object = {}) {
  const worker = shop.worker(queue, async () => {}, { autorun: false, ...options })
  const [departures, expired, failed] = [departuresOf(worker), eventsOf('expired', worker), eventsOf('failed', worker)]
  const run = () => void worker.run()
  return { worker, departures, expired, failed, run }
}

/** The queue was off while jobs came in: else a deadline that it can not meet is refused at once. */
const enforce = (queue: ShapedQueue) => queue.setShape({ mode: 'enforce' }, { by: 'test', reason: 'all jobs are in' })

/** The slot after the other: one that was lost to a job between them would lie there. A busy machine may take a little longer. */
function expectNextSlot(one: Seen | undefined, two: Seen | undefined): void {
  const gapMs = (two!.departureTimeUs - one!.departureTimeUs) / 1000
  expect(gapMs).toBeGreaterThanOrEqual(INTERVAL_MS)
  expect(gapMs).toBeLessThan(2 * INTERVAL_MS)
}

async function streamOf(queue: ShapedQueue) {
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  return {
    expired: eventsOf<{ jobId: string; deadline: string }>('expired', events),
    failed: eventsOf<{ jobId: string; failedReason: string }>('failed', events),
    active: eventsOf<{ jobId: string }>('active', events),
  }
}

test.each([
  ['in line', {}, { rate: { limit: 1, period: INTERVAL_MS } }],
  ['by priority', { priority: 1 }, { rate: { limit: 1, period: INTERVAL_MS } }],
  [
    'under a limit',
    {},
    { limits: [{ name: 'slow', algorithm: 'gcra', rate: { limit: 1, period: INTERVAL_MS }, burst: 1 }] as never },
  ],
])(
  '%s, a job whose slot lies behind its deadline fails, does not start, and the next one has the slot',
  async (_what, opts, shape) => {
    const queue = shop.queue({ ...shape, ...LATE, mode: 'off' })
    const letters = lettersOf(shop)
    const stream = await streamOf(queue)
    const first = await queue.add('first', {}, opts)
    const deadline = new Date(Date.now() + INTERVAL_MS / 2)
    const late = await queue.add('late', {}, { ...opts, mustStartBefore: deadline, attempts: 5 })
    const next = await queue.add('next', {}, opts)
    await enforce(queue)
    const { departures, expired, failed, run } = watch(queue, { deadLetter: letters.name })
    run()

    const [one, two] = await departures.reach(2)
    expect([one!.id, two!.id]).toEqual([first.id, next.id])
    expectNextSlot(one, two)
    await Promise.all([expired.reach(1), stream.expired.reach(1), stream.failed.reach(1)])
    const reason = `deadline: could not start before ${deadline.toISOString()}`
    expect(failed.all).toMatchObject([{ id: late.id, failedReason: reason }])
    expect(expired.all).toMatchObject([{ id: late.id }])
    expect(stream.expired.all).toMatchObject([{ jobId: late.id, deadline: String(deadline.getTime()) }])
    expect(stream.failed.all).toMatchObject([{ jobId: late.id, failedReason: reason }])
    expect(await letters.all()).toMatchObject([{ id: late.id, failedReason: reason, attemptsMade: 1 }])
  },
)

test('a deadline that the slot meets changes nothing, and a Date is stored in ms', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const deadline = new Date(Date.now() + 60_000)
  const [job] = await queue.addBulk([{ name: 'bulk', data: {}, opts: { mustStartBefore: deadline } }])
  const added = await queue.add('one', {}, { mustStartBefore: deadline.getTime() + 0.5 })
  for (const { id } of [job!, added])
    expect((await queue.getJob(id!))?.opts).toMatchObject({ mustStartBefore: deadline.getTime() })
  const { departures, run } = watch(queue)
  run()
  await departures.reach(2)
})

test('many expired jobs in a row use no slot', async () => {
  const queue = shop.queue({ rate: { limit: 1, period: INTERVAL_MS }, ...LATE, mode: 'off' })
  const first = await queue.add('first', {})
  const mustStartBefore = Date.now() + INTERVAL_MS / 2
  await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'late', data: {}, opts: { mustStartBefore } })))
  const last = await queue.add('last', {})
  await enforce(queue)
  const { departures, expired, run } = watch(queue, { concurrency: 3 })
  run()
  const [one, two] = await departures.reach(2)
  expect([one!.id, two!.id]).toEqual([first.id, last.id])
  expectNextSlot(one, two)
  await expired.reach(20)
})

test('a pause that outlasts the deadline expires the job at once', async () => {
  const queue = shop.queue({ rate: '100/s' })
  await queue.add('late', {}, { mustStartBefore: Date.now() + 60_000 })
  await queue.pauseUntil(Date.now() + 3_600_000, { reason: 'for the test' })
  const { expired, departures, run } = watch(queue)
  run()
  await expired.reach(1)
  expect(departures.all).toEqual([])
})

test('with the limits a place that may come free is waited for until the deadline, not given up before', async () => {
  const queue = shop.queue({ limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 1 }] as never })
  let end = () => {}
  const held = new Promise<void>((resolve) => {
    end = resolve
  })
  const worker = shop.worker(queue, async (job) => void (job.name === 'holds' && (await held)), { concurrency: 2 })
  const departures = departuresOf(worker)
  const waits = await queue.add('holds', {})
  const patient = await queue.add('patient', {}, { mustStartBefore: Date.now() + 20_000 })
  await departures.reach(1)
  await delay(100)
  end()
  expect((await departures.reach(2)).map(({ id }) => id)).toEqual([waits.id, patient.id])
})

test.each([
  ['without a shape', undefined],
  ['with a capacity alone', { capacity: 10 }],
  ['with the meter off', { rate: '1/min', mode: 'off' } as const],
  ['in shadow mode', { rate: '1/min', mode: 'shadow' } as const],
])('%s, where nothing holds the jobs, one is not started after its deadline', async (_what, shape) => {
  const queue = shop.queue(shape)
  const stream = await streamOf(queue)
  const holds = await queue.add('holds', {})
  const mustStartBefore = Date.now() + 4000
  const late = await queue.add('late', {}, { mustStartBefore })
  const after = await queue.add('after', {})
  const started: string[] = []
  const worker = shop.worker(
    queue,
    async (job) => {
      started.push(job.id as string)
      while (job.name === 'holds' && Date.now() <= mustStartBefore + 20) await delay(10)
    },
    { allowUnshaped: true },
  )
  const [departures, expired] = [departuresOf(worker), eventsOf('expired', worker)]
  await departures.reach(2)
  await Promise.all([expired.reach(1), stream.expired.reach(1)])
  expect(started).toEqual([holds.id, after.id])
  expect(departures.all.map(({ id }) => id)).toEqual([holds.id, after.id])
  expect(stream.expired.all).toMatchObject([{ jobId: late.id, deadline: String(mustStartBefore) }])
})

test('a retry that comes too late expires too', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const worker = shop.worker(queue, () => Promise.reject(new Error('once')))
  const expired = eventsOf('expired', worker)
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  // Time enough for the first attempt on a busy machine; the second one is due after it.
  const opts = { attempts: 5, backoff: 5100, mustStartBefore: Date.now() + 5000 }
  const { id } = await queue.add('again', {}, opts)
  await expired.reach(1)
  expect(expired.all).toMatchObject([{ id, attemptsMade: 2 }])
})

test('the options that merely hold the word expire nothing', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const backoff = { type: 'custom', mustStartBefore: 1 } as never
  await queue.add('"mustStartBefore":1', { mustStartBefore: 1 }, { backoff, jobId: '"mustStartBefore"=1' })
  const { departures, run } = watch(queue)
  run()
  await departures.reach(1)
})

test('a node of a flow may have a deadline', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const mustStartBefore = new Date(Date.now() + 60_000)
  const child = { name: 'child', queueName: queue.name, opts: { mustStartBefore } }
  const node = await flows.add({ name: 'parent', queueName: queue.name, children: [child] })
  const added = await queue.getJob(node.children?.[0]?.job.id as string)
  expect(added?.opts).toMatchObject({ mustStartBefore: mustStartBefore.getTime() })
  const past = { ...child, opts: { mustStartBefore: 1 } }
  const refused = flows.add({ name: 'parent', queueName: queue.name, children: [past] })
  await expect(refused).rejects.toThrow(InvalidDeadlineError)
})

describe('a deadline that can not be met is refused', () => {
  const hour = 3_600_000
  test.each([
    [{ mustStartBefore: Date.now() - hour }, /must be in the future; got 20.*Z, which is 36\d+ ms ago/],
    [{ mustStartBefore: new Date(Date.now() - hour) }, /must be in the future/],
    [{ mustStartBefore: new Date(Number.NaN) }, /must be a valid Date, or ms since 1970; got Invalid Date/],
    [{ mustStartBefore: '2030-01-01' as never }, /got "2030-01-01"/],
    [{ mustStartBefore: Number.POSITIVE_INFINITY }, /must be a valid Date/],
    [{ mustStartBefore: Date.now() + hour, delay: 2 * hour }, /end of the delay, 7200000 ms from now; got 20/],
  ])('%o', async (opts, message) => {
    const queue = shop.queue({ rate: '1/s' })
    for (const add of [
      () => queue.add('job', {}, opts),
      () => queue.offer('job', {}, opts),
      () => queue.addWhenFree('job', {}, opts),
      () => queue.addBulk([{ name: 'job', data: {}, opts }]),
    ]) {
      await expect(add()).rejects.toThrow(InvalidDeadlineError)
      await expect(add()).rejects.toThrow(message)
    }
    expect(await queue.count()).toBe(0)
  })
})
