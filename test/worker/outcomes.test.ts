import { DelayedError, type Job, UnrecoverableError, WaitingChildrenError, WaitingError, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import type { Exchange } from '../../src/departure/exchange.ts'
import { ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { asksUntil, callsOf, departuresOf, eventsOf, gate, jobs, Workshop } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

/** When the pause of a queue ends, µs, by its history. */
async function pausedUntilUs(queue: ShapedQueue): Promise<number> {
  const history = await client.xrange(queue.toKey('meta:history'), '-', '+')
  const [, fields = []] = history.find(([, [, kind]]) => kind === 'pause') ?? []
  return Number(fields.at(-1)) * 1000
}

test.each([
  ['two workers of one job', [1, 1]],
  ['a worker of many, which holds others for their slots', [8]],
])(
  'RateLimitError pauses the meter, and the job goes back to the head without an attempt: %s',
  async (_title, workers) => {
    const queue = shop.queue({ rate: '200/s', maxLatenessMs: 60_000 })
    await queue.waitUntilReady()
    let limited = false
    const process = async ({ name }: Job) => {
      if (name !== 'job1' || limited) return
      limited = true
      await queue.rateLimit(600)
      throw Worker.RateLimitError()
    }
    const all = workers.map((concurrency) => shop.worker(queue, process, { concurrency }))
    const departed = departuresOf(...all)
    const [completed, failed] = [eventsOf<Job>('completed', ...all), eventsOf('failed', ...all)]
    await queue.addBulk(jobs(30))
    await completed.reach(30)
    expect(failed.all).toEqual([])
    const untilUs = await pausedUntilUs(queue)
    // By their slots: two workers know Redis's clock to within some ms, and may start theirs in another order.
    const slots = departed.all.toSorted((one, other) => one.departureTimeUs - other.departureTimeUs)
    const late = slots.filter(({ departureTimeUs }) => departureTimeUs > untilUs - 300_000)
    // What was granted ahead still left; then nothing, in either worker; then the job itself, first, and the others in order.
    expect(late[0]!.departureTimeUs).toBeGreaterThan(untilUs - 1000)
    expect(late[0]!.name).toBe('job1')
    const others = late.slice(1).map(({ name }) => Number(name.slice(3)))
    expect(others).toEqual(others.toSorted((one, other) => one - other))
    const again = completed.all.find(({ name }) => name === 'job1')!
    expect(again.attemptsMade).toBe(1)
    // The pause is over, and no longer told of.
    expect(await queue.getShape()).not.toHaveProperty('pauseReason')
  },
)

/** Waits until the job waits again, for so long at most: what went on looking would do so during the next files. */
const untilBack = (queue: ShapedQueue, id: string, atMostMs: number): Promise<void> =>
  expect
    .poll(() => client.lpos(queue.toKey('wait'), id), { interval: 5, timeout: atMostMs })
    .not.toBe(null)
    .catch(() => {})

test('a job that goes back by RateLimitError stays ahead of those that its worker held, whenever that learns of the pause', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 300, maxLatenessMs: 60_000 })
  await queue.waitUntilReady()
  let isBack: Promise<unknown> | undefined
  const worker = shop.worker(
    queue,
    async ({ id, name }: Job) => {
      if (name !== 'job1' || isBack) return
      isBack = untilBack(queue, id as string, 1500)
      // Longer than a busy machine takes to give the job back.
      await queue.rateLimit(2000)
      throw Worker.RateLimitError()
    },
    { concurrency: 8 },
  )
  // It hears of the pause as late as it may: when it asks for jobs again.
  const exchange = worker.getBackend().exchange as Exchange
  const ask = exchange.ask.bind(exchange)
  exchange.ask = async (request) => {
    await isBack
    return ask(request)
  }
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  await queue.addBulk(jobs(8))
  await completed.reach(8)
  const untilUs = await pausedUntilUs(queue)
  const late = departed.all.filter(({ departureTimeUs }) => departureTimeUs > untilUs - 1000).map(({ name }) => name)
  expect(late[0]).toBe('job1')
  expect(late).toEqual(late.toSorted())
})

/** Workers of a queue whose first job is limited while the grant of three others is on its way, for so long. */
async function limitedWhileAsking(onTheWayMs: number, options: object = {}) {
  const queue = shop.queue({ rate: '10/s', horizonMs: 400, maxLatenessMs: 60_000 })
  await queue.waitUntilReady()
  const [granted, limited] = [gate(), gate()]
  let isBack: Promise<unknown> | undefined
  let begun = false
  const worker = shop.worker(
    queue,
    async ({ id, name }: Job) => {
      if (name !== 'job0' || begun) return
      begun = true
      await queue.addBulk(jobs(4).slice(1))
      await granted.opened
      await queue.rateLimit(900)
      isBack = untilBack(queue, id as string, onTheWayMs)
      limited.open()
      throw Worker.RateLimitError()
    },
    { concurrency: 8, ...options },
  )
  const exchange = worker.getBackend().exchange as Exchange
  const ask = exchange.ask.bind(exchange)
  exchange.ask = async (request) => {
    const reply = await ask(request)
    if (begun && !isBack && reply.grants.length > 0) {
      granted.open()
      await limited.opened
      await isBack
    }
    return reply
  }
  const [departed, completed] = [departuresOf(worker), eventsOf('completed', worker)]
  const stalled = eventsOf<string>('stalled', worker)
  const [first] = await queue.addBulk(jobs(1))
  await completed.reach(4)
  const untilUs = await pausedUntilUs(queue)
  const late = departed.all.filter(({ departureTimeUs }) => departureTimeUs > untilUs - 1000).map(({ name }) => name)
  return { late, stalled: stalled.all, first: first!.id }
}

test('a job that goes back by RateLimitError stays ahead of those that are on their way to its worker', async () => {
  expect((await limitedWhileAsking(200)).late).toEqual(['job0', 'job1', 'job2', 'job3'])
})

test('a job that waits for those before it goes back by RateLimitError keeps its lock', async () => {
  const { stalled, first } = await limitedWhileAsking(6000, { lockDuration: 4000, stalledInterval: 100 })
  expect(stalled).not.toContain(first)
})

test('DelayedError: the job waits for its time, and is charged when it starts again', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.waitUntilReady()
  const worker = shop.worker(
    queue,
    async (job, token) => {
      if (job.data.step === 2) return 'done'
      await job.updateData({ step: 2 })
      await job.moveToDelayed(Date.now() + 150, token)
      throw new DelayedError()
    },
    { concurrency: 3 },
  )
  const [departed, completed] = [departuresOf(worker), eventsOf<Job>('completed', worker)]
  await queue.add('a', { step: 1 })
  await completed.reach(1)
  expect(departed.all.length).toBe(2)
  expect(departed.all[1]!.departureTimeUs - departed.all[0]!.departureTimeUs).toBeGreaterThan(140_000)
  expect(completed.all[0]!.attemptsMade).toBe(1)
})

test('WaitingError: the job goes back and takes the next slot', async () => {
  const queue = shop.queue({ rate: '20/s' })
  await queue.waitUntilReady()
  let first = true
  const worker = shop.worker(queue, async (job, token) => {
    if (!first) return
    first = false
    await job.moveToWait(token)
    throw new WaitingError()
  })
  const [departed, completed, failed] = [
    departuresOf(worker),
    eventsOf('completed', worker),
    eventsOf('failed', worker),
  ]
  await queue.addBulk(jobs(2))
  await completed.reach(2)
  expect(failed.all).toEqual([])
  expect(departed.all.map(({ name }) => name)).toEqual(['job0', 'job0', 'job1'])
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(slots[1]! - slots[0]!).toBeGreaterThanOrEqual(49_999)
})

test('WaitingChildrenError: the parent goes on when its children have ended', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.waitUntilReady()
  const order: string[] = []
  const worker = shop.worker(queue, async (job, token) => {
    order.push(`${job.name}${job.data.step ?? ''}`)
    if (job.name !== 'parent' || job.data.step === 2) return
    await queue.add('child', {}, { parent: { id: job.id!, queue: job.queueQualifiedName } })
    await job.updateData({ step: 2 })
    if (await job.moveToWaitingChildren(token!)) throw new WaitingChildrenError()
  })
  const completed = eventsOf<Job>('completed', worker)
  await queue.add('parent', {})
  await completed.reach(2)
  expect(order).toEqual(['parent', 'child', 'parent2'])
})

test('UnrecoverableError: no retry, whatever attempts are left', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => Promise.reject(new UnrecoverableError('for good')))
  const failed = eventsOf<Job>('failed', worker)
  const job = await queue.add('a', {}, { attempts: 5 })
  await failed.reach(1)
  expect(await job.getState()).toBe('failed')
  expect(failed.all[0]!.attemptsMade).toBe(1)
})

test('a flow runs at the rate: children first, then the parent', async () => {
  const queue = shop.queue({ rate: '50/s', capacity: 10 })
  await queue.waitUntilReady()
  const { connection, prefix } = redis
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const worker = shop.worker(queue, async (job) => job.name, { concurrency: 5 })
  const departed = departuresOf(worker)
  const child = (name: string) => ({ name, queueName: queue.name })
  await flows.add({ ...child('parent'), children: [child('a'), child('b')] })
  await departed.reach(3)
  expect(departed.all[2]!.name).toBe('parent')
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  for (const i of [1, 2]) expect(slots[i]! - slots[i - 1]!).toBeGreaterThanOrEqual(19_999)
})

test('a retry without a backoff does not start before the next slot, and attempts are counted as in BullMQ', async () => {
  const queue = shop.queue({ rate: '20/s' })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => Promise.reject(new Error('always')), { concurrency: 4 })
  const [departed, failed] = [departuresOf(worker), eventsOf<Job>('failed', worker)]
  const job = await queue.add('a', {}, { attempts: 3 })
  await failed.reach(3)
  expect(departed.all.length).toBe(3)
  const stored = (await queue.getJob(job.id!))!
  expect([stored.attemptsMade, stored.attemptsStarted]).toEqual([3, 3])
})

test('what a crashed worker held or ran is found by the stalled check and runs at the rate', async () => {
  const queue = shop.queue({ rate: '50/s' })
  await queue.waitUntilReady()
  const added = await queue.addBulk(jobs(3))
  const crashed = shop.worker(queue, null)
  // As a process that was killed leaves them: active, with a lock that runs out.
  for (let n = 0; n < 3; ) if (await crashed.getNextJob(`crashed`, { block: false })) n += 1
  await client.del(...added.map(({ id }) => queue.toKey(`${id}:lock`)))
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  const stalled = eventsOf<{ jobId: string }>('stalled', events)
  const worker = shop.worker(queue, async () => {}, { stalledInterval: 100, concurrency: 5 })
  const [departed, calls] = [departuresOf(worker), callsOf(worker)]
  await asksUntil(calls, 'empty')
  await departed.reach(3)
  await stalled.reach(3)
  expect(stalled.all.map(({ jobId }) => jobId).toSorted()).toEqual(added.map(({ id }) => id).toSorted())
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  for (const i of [1, 2]) expect(slots[i]! - slots[i - 1]!).toBeGreaterThanOrEqual(19_999)
})
