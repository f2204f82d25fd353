import { expect, test, vi } from 'vitest'
import { LimitConflictError, type QueueLimit, type ShapedQueue } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { rejection } from '../queue/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, jobs, type Seen, Workshop } from '../worker/support.ts'
import { asleep } from './support/asleep.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const processes = useProcesses()

const { prefix } = redis
const WHY = { by: 'test', reason: 'test' }

/** Something that passed at some time between the two. */
interface Passed {
  readonly fromUs: number
  readonly toUs: number
}

/** The most that surely passed in one window, wherever it begins. */
function mostInWindow(passed: readonly Passed[], windowUs: number): number {
  const inside = (startUs: number) =>
    passed.filter(({ fromUs, toUs }) => fromUs >= startUs && toUs < startUs + windowUs).length
  return Math.max(...passed.map(({ fromUs }) => inside(fromUs)))
}

test('two queues and a limiter in three processes never pass more together than one limit', async () => {
  const rule = { algorithm: 'sliding-window-log', rate: { limit: 20, period: 300 } } as const
  const limit: QueueLimit = { name: 'upstream', ...rule, shared: true, prefix }
  const queues = [1, 2].map(() => shop.queue({ maxLatenessMs: 60_000, limits: [limit] }))
  type Worker = { type: 'ready' } | ({ type: 'departed' } & Seen)
  const worker = new URL('../worker/programs/paced-worker.ts', import.meta.url)
  const workers = queues.map(({ name }) =>
    processes.fork<Worker>(worker, { args: [name, prefix, JSON.stringify(redis.connection), '10'] }),
  )
  type Taker = { type: 'ready' } | ({ type: 'granted' } & Passed)
  const loop = new URL('./programs/limiter-loop.ts', import.meta.url)
  const taker = processes.fork<Taker>(loop, {
    args: [redis.url, JSON.stringify({ name: 'upstream', prefix, ...rule })],
  })
  await Promise.all([...workers.map((one) => one.waitFor('ready')), taker.waitFor('ready')])
  const events = queues.map((queue) => shop.queueEvents(queue))
  await Promise.all(events.map((one) => one.waitUntilReady()))
  const completed = eventsOf<unknown>('completed', ...events)
  for (const queue of queues) await queue.addBulk(jobs(50))
  taker.send('run')
  // The queues together may take every window from its begin: whoever only asks now and then would get nothing.
  await taker.waitFor('granted')
  for (const one of workers) one.send('run')
  await completed.reach(100)
  taker.send('stop')
  expect(await taker.exited).toMatchObject({ code: 0 })
  await Promise.all(workers.map((one) => one.kill('SIGTERM')))

  const departed = workers.map(
    ({ messages }) => messages.filter(({ type }) => type === 'departed') as unknown as Seen[],
  )
  const granted = taker.messages.filter(({ type }) => type === 'granted') as unknown as Passed[]
  expect(departed.map(({ length }) => length)).toEqual([50, 50])
  expect(granted.length).toBeGreaterThan(0)
  const slots = departed.flat().map(({ departureTimeUs: us }) => ({ fromUs: us, toUs: us }))
  expect(mostInWindow([...slots, ...granted], 300_000)).toBeLessThanOrEqual(20)
})

const RULE = { algorithm: 'token-bucket', rate: '1/day', burst: 5 } as const
const OTHER = { algorithm: 'token-bucket', rate: '1/day', burst: 9 } as const

const shared = (name: string, rule: Omit<QueueLimit, 'name'>): QueueLimit => ({ name, ...rule, shared: true, prefix })

test('a shared name that means something else is refused, both are named, and nothing is changed', async () => {
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [shared('name', RULE)] })
  await queue.waitUntilReady()
  const other = shop.queue({ capacity: 7 })
  await other.waitUntilReady()
  const [before, stored] = [await other.getShape(), await client.hgetall(`${prefix}:limit:{name}`)]
  const attempts = [
    () => other.setShape({ limits: [shared('fine', RULE), shared('name', OTHER)], capacity: 9 }, WHY),
    () => declare([shared('name', OTHER)]).waitUntilReady(),
    () => declare([shared('name', OTHER)]).add('job', {}),
    () => createLimiter(client, { name: 'name', prefix, timeoutMs: 10_000, ...OTHER }).take(),
  ]
  for (const attempt of attempts) {
    const error = await rejection<LimitConflictError>(attempt())
    expect(error).toBeInstanceOf(LimitConflictError)
    expect(error.limitName).toBe('name')
    expect(JSON.parse(error.given)).toMatchObject(OTHER)
    expect(JSON.parse(error.stored)).toMatchObject(RULE)
    expect(error.message).toContain(error.given)
    expect(error.message).toContain(error.stored)
  }
  expect(await other.getShape()).toEqual(before)
  expect(await client.hgetall(`${prefix}:limit:{name}`)).toEqual(stored)
  expect(await client.exists(`${prefix}:limit:{fine}`)).toBe(0)
})

/** A queue whose declaration may be refused. */
function declare(limits: QueueLimit[]): ShapedQueue {
  const queue = shop.queue({ maxLatenessMs: 60_000, limits })
  queue.on('error', () => {})
  return queue
}

test('a higher version changes a shared limit for the queues and limiters that knew the lower one', async () => {
  const queue = shop.queue({ maxLatenessMs: 60_000, limits: [shared('versions', { ...RULE, version: 1 })] })
  await queue.addBulk(jobs(20))
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 }))
  await departed.reach(5)
  await asleep(queue, client)
  const limiter = createLimiter(client, { name: 'versions', prefix, timeoutMs: 10_000, version: 1, ...RULE })
  expect(await limiter.take()).toMatchObject({ allowed: false, limit: 5 })

  const newer = shop.queue({
    maxLatenessMs: 60_000,
    limits: [shared('versions', { ...RULE, rate: '1000/s', version: 2 })],
  })
  await newer.waitUntilReady()
  const follows = createLimiter(client, { name: 'versions', prefix, timeoutMs: 10_000, version: 1, ...RULE })
  // The workers may have taken what comes free in their next horizon.
  await vi.waitFor(async () => expect(await follows.take()).toMatchObject({ allowed: true }), 60_000)
  await queue.setShape({ limits: [shared('versions', { ...RULE, rate: '1000/s', version: 2 })] }, WHY)
  await departed.reach(20)
  // Who still says what the lower version meant is refused.
  const error = await rejection(queue.setShape({ limits: [shared('versions', { ...RULE, version: 1 })] }, WHY))
  expect(error).toBeInstanceOf(LimitConflictError)
})

test('queues that share a limit under one key share one bucket; another key is another bucket', async () => {
  const keyed = (key: string): QueueLimit => ({ ...shared('keys', RULE), key })
  const queues = [keyed('ann'), keyed('ann'), keyed('bo')].map((limit) =>
    shop.queue({ maxLatenessMs: 60_000, limits: [limit] }),
  )
  const limiter = createLimiter(client, { name: 'keys', prefix, timeoutMs: 10_000, ...RULE })
  expect(await limiter.take('ann', { cost: 2 })).toMatchObject({ allowed: true })
  for (const queue of queues) await queue.addBulk(jobs(10))
  const departed = queues.map((queue) => departuresOf(shop.worker(queue, async () => {}, { concurrency: 3 })))
  await Promise.all(queues.map((queue) => asleep(queue, client)))
  expect((departed[0]?.all.length ?? 0) + (departed[1]?.all.length ?? 0)).toBe(3)
  expect(departed[2]?.all.length).toBe(5)
  expect(await limiter.peek('ann')).toMatchObject({ allowed: false, remaining: 0 })
})

test('a limiter and a limit that count apart under one name are reported once, whichever is there first', async () => {
  const warning = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const told = () =>
    warning.mock.calls.filter(([, options]) => JSON.stringify(options).includes('SLUICE_LIMIT_NOT_SHARED'))
  const take = (name: string) => createLimiter(client, { name, prefix, ...RULE })
  const limits: QueueLimit[] = [
    { name: 'apart-before', ...RULE },
    { name: 'apart-after', ...RULE },
    { name: 'apart-group', ...RULE, by: 'group' },
    shared('together', RULE),
  ]
  take('apart-before')
  const queues = [1, 2].map(() => shop.queue({ groups: {}, limits }))
  await Promise.all(queues.map((queue) => queue.waitUntilReady()))
  await Promise.all(queues.map((queue) => queue.getShape()))
  for (const name of ['apart-after', 'apart-after', 'apart-group', 'together', 'alone']) take(name)
  expect(told().map(([text]) => text)).toEqual([
    expect.stringMatching(/^limit "apart-before": .* set shared: true in shape.limits, or/),
    expect.stringMatching(/^limit "apart-after": .* set shared: true in shape.limits, or/),
    expect.stringMatching(/^limit "apart-group": .* set shared: true in shape.limits, or/),
  ])
  warning.mockRestore()
})
