import type { Redis } from 'ioredis'
import { expect, test, vi } from 'vitest'
import type { ShapedQueue } from '../../src/index.ts'
import { type Explanation, Inspector } from '../../src/inspect/index.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { many, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, gate, Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000

async function explained(inspector: Inspector, queue: ShapedQueue, id: string | undefined): Promise<Explanation> {
  const explanation = await inspector.explain(queue.name, id as string)
  return explanation ?? expect.fail(`expected job ${id} to be there`)
}

/** However a wait divides, it divides whole. */
function expectWhole({ parts, waitedMs }: Explanation): void {
  const sum = Object.values(parts).reduce((all, part) => all + part, 0)
  expect(sum).toBeCloseTo(waitedMs, 3)
}

test('a job in each of its states', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 10 })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  const added = await queue.addBulk(many(5))
  const taken = [await taker.take(), await taker.take(), await taker.take()]
  await taker.complete(taken[0]!)
  await taken[1]!.moveToFailed(new Error('no'), taken[1]!.token as string, false)
  const prioritized = await queue.add('job', {}, { priority: 3 })
  const delayed = await queue.add('job', {}, { delay: HOUR_MS })
  const jobs = [...added, prioritized, delayed]
  const found = await Promise.all(jobs.map(({ id }) => explained(inspector, queue, id)))
  const waits = ['waiting', 'waiting', 'prioritized']
  expect(found.map(({ state }) => state)).toEqual(['completed', 'failed', 'active', ...waits, 'delayed'])
  expect(found.map(({ ahead }) => ahead)).toEqual([undefined, undefined, undefined, 0, 1, 2, 2])
  expect(found.map(({ startedAt }) => startedAt !== undefined)).toEqual([true, true, true, false, false, false, false])
  expect(found.map(({ startsAt }) => startsAt !== undefined)).toEqual([false, false, false, true, true, true, true])
  expect(found.map(({ hold }) => hold?.cause)).toEqual([
    ...[1, 2, 3].map(() => undefined),
    ...waits.map(() => 'workers'),
    undefined,
  ])
  for (const one of found) expectWhole(one)
  const late = found.at(-1)!
  expect(late.startsAt!.getTime()).toBeGreaterThanOrEqual(delayed.timestamp + HOUR_MS)
  expect(late.readyAt.getTime()).toBeGreaterThanOrEqual(delayed.timestamp + HOUR_MS)
  expect(late.waitedMs).toBe(0)
  expect(found[0]!.startedAt!.getTime()).toBe(found[0]!.readyAt.getTime() + found[0]!.waitedMs)
  expect(found.every(({ state, assumptions }) => (waits.includes(state) ? assumptions.length > 0 : true))).toBe(true)
  expect(await inspector.explain(queue.name, 'nobody')).toBeUndefined()
  expect(await inspector.explain('nobody', '1')).toBeUndefined()
})

test('the estimate is that of the script, wherever the job stands', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 4 })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(6, { cost: 2 }))
  await taker.take()
  await taker.take()
  for (const opts of [{}, { cost: 3 }, { lifo: true }, { lifo: true, cost: 0.5 }, { priority: 9 }]) {
    const askedMs = performance.now()
    const offer = await queue.offer('job', {}, opts)
    if (!offer.accepted) throw new Error('expected a place')
    const { ahead, startsAt } = await explained(inspector, queue, offer.job.id)
    expect(ahead).toBe(offer.position)
    // While the slot moves with the clock, or is rounded to a whole ms.
    expect(Math.abs(startsAt!.getTime() - offer.startsAt!.getTime())).toBeLessThan(200 + performance.now() - askedMs)
  }
})

test.each<QueueLimit>([
  { name: 'one', rate: '4/h', burst: 2 },
  { name: 'one', algorithm: 'token-bucket', rate: '6/h', burst: 3 },
  { name: 'one', algorithm: 'leaky-bucket', rate: '6/h', burst: 3 },
  { name: 'one', algorithm: 'fixed-window', rate: '4/h' },
  { name: 'one', algorithm: 'fixed-window', rate: '4/h', align: 'first' },
  { name: 'one', algorithm: 'fixed-window', rate: '4/day', align: 'day', timeZone: 'Europe/Berlin' },
  { name: 'one', algorithm: 'sliding-window-log', rate: '4/h' },
  { name: 'one', algorithm: 'sliding-window-counter', rate: '4/h' },
  { name: 'one', algorithm: 'fixed-window', rate: '4/h', shared: true, prefix: redis.prefix },
])('under limits too: $algorithm $rate $align $shared', async (limit) => {
  const places: QueueLimit = { name: 'places', algorithm: 'concurrency', concurrency: 50 }
  const limits: QueueLimit[] = [limit, { name: 'two', rate: '8/h', burst: 5 }, places]
  // So slow that its next slot is still to come when the last estimate is read: after it, workers would be lacking.
  const queue = shop.queue({ rate: '3/min', burst: 2, limits })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(2))
  await taker.take()
  await taker.take()
  const [first] = await queue.addBulk(many(70))
  // A worker has looked: jobs that none has looked at for a second lack one, and a busy machine takes longer for this.
  expect(await taker.tryTake()).toBeUndefined()
  const early = await explained(inspector, queue, first?.id)
  // What the window or the burst has left passes at the rate, one each 20 s; it is not spread over the window.
  const isLeft = limit.rate === '4/h' && limit.burst === undefined
  if (isLeft) expect(early.startsAt!.getTime() - early.at.getTime()).toBeLessThan(40_000)
  for (const opts of [{ lifo: true }, {}, { priority: 9 }]) {
    const askedMs = performance.now()
    const offer = await queue.offer('job', {}, opts)
    if (!offer.accepted) throw new Error('expected a place')
    const { ahead, startsAt, assumptions } = await explained(inspector, queue, offer.job.id)
    expect(ahead).toBe(offer.position)
    expect(Math.abs(startsAt!.getTime() - offer.startsAt!.getTime())).toBeLessThan(1000 + performance.now() - askedMs)
    if (offer.position! > 5) expect(assumptions[0]).toMatch(/^Limit "(one|two)" allows it then/)
  }
})

test('a pause without an end has no start, one with an end has', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  const inspector = inspectorOf(redis, shop)
  const job = await queue.add('job', {}, { timestamp: Date.now() - 10_000 })
  const until = Date.now() + HOUR_MS
  await queue.pauseUntil(until, { reason: 'maintenance' })
  const paused = await explained(inspector, queue, job.id)
  expect(paused.hold).toMatchObject({ cause: 'pause', until: new Date(until) })
  expect(paused.startsAt!.getTime()).toBe(until)
  expectWhole(paused)
  // It was paused a moment ago; before that nobody asked.
  expect(paused.parts.pause).toBeLessThan(5000)
  expect(paused.parts.workers).toBeGreaterThan(5000)
  await queue.pause()
  const stopped = await explained(inspector, queue, job.id)
  expect(stopped).toMatchObject({ startsAt: undefined, hold: { cause: 'pause' } })
  expect(stopped.assumptions).toHaveLength(1)
})

test.each([
  ["the meter's", async (queue: ShapedQueue) => queue.pauseUntil(Date.now() + HOUR_MS, { reason: 'test' })],
  ["BullMQ's", async (queue: ShapedQueue) => queue.pause()],
])('a pause, %s, is told as long as it was, and the rate with the rest', async (_, pause) => {
  // Slow enough that what a busy machine is late by, which is the workers' part, is little beside the rate's.
  const queue = shop.queue({ rate: '2/s' })
  const inspector = inspectorOf(redis, shop)
  const worker = shop.worker(queue, async () => {})
  const departures = departuresOf(worker)
  const added = await queue.addBulk(many(12))
  await departures.reach(3)
  const asked = Date.now()
  await pause(queue)
  const paused = Date.now()
  await vi.waitFor(
    async () => expect((await statusOf(inspector, queue.name)).heldMs.pause).toBeGreaterThan(900),
    20_000,
  )
  const leastMs = Date.now() - paused
  await queue.clearPause()
  await queue.resume()
  const mostMs = Date.now() - asked
  await departures.reach(12)
  for (const id of [added[6]?.id, added[11]?.id]) {
    const { parts, waitedMs, ...rest } = await explained(inspector, queue, id)
    expectWhole({ parts, waitedMs, ...rest })
    expect(parts.pause).toBeGreaterThan(leastMs * 0.95)
    expect(parts.pause).toBeLessThan(mostMs * 1.05)
    expect(parts.rate).toBeGreaterThan((waitedMs - parts.pause) / 2)
  }
  const [first] = added
  expect((await explained(inspector, queue, first?.id)).parts.pause).toBe(0)
})

test('running jobs hold the next one', async () => {
  const queue = shop.queue({ rate: '1000/s', concurrency: 1 })
  const inspector = inspectorOf(redis, shop)
  const { open, opened } = gate()
  shop.worker(queue, () => opened, { concurrency: 5 })
  const [, second] = await queue.addBulk(many(2))
  await vi.waitFor(async () => {
    expect((await explained(inspector, queue, second?.id)).hold?.cause).toBe('concurrency')
  }, 60_000)
  await vi.waitFor(async () => {
    expect((await explained(inspector, queue, second?.id)).parts.concurrency).toBeGreaterThan(300)
  }, 60_000)
  open()
})

test('the name of the limit that holds it', async () => {
  const limits = [{ name: 'llm-tokens', rate: '10/h', burst: 10, unit: 'tokens' }]
  const queue = shop.queue({ rate: '1000/s', limits })
  const inspector = inspectorOf(redis, shop)
  const worker = shop.worker(queue, async () => {})
  const departures = departuresOf(worker)
  const [, , third] = await queue.addBulk(many(3, { costs: { tokens: 10 } }))
  await departures.reach(1)
  await vi.waitFor(async () => {
    const { hold, startsAt, assumptions, at } = await explained(inspector, queue, third?.id)
    expect(hold).toMatchObject({ cause: 'limits', limit: 'llm-tokens' })
    expect(Math.abs(startsAt!.getTime() - at.getTime() - 2 * HOUR_MS)).toBeLessThan(5000)
    expect(assumptions[0]).toContain('llm-tokens')
  }, 60_000)
})

test('a job that is tried again waits since it went back', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3 })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  const { id } = await queue.add('job', {}, { attempts: 3, timestamp: Date.now() - HOUR_MS })
  const taken = await taker.take()
  expect((await explained(inspector, queue, id)).waitedMs).toBeGreaterThan(HOUR_MS - 1000)
  const backMs = Date.now()
  await taken.moveToFailed(new Error('again'), taken.token as string, false)
  const waiting = await explained(inspector, queue, id)
  expect(waiting).toMatchObject({ state: 'waiting', startedAt: undefined })
  expect(waiting.readyAt.getTime()).toBeGreaterThanOrEqual(backMs - 1)
  await taker.take()
  const again = await explained(inspector, queue, id)
  expect(again.state).toBe('active')
  expect(again.readyAt.getTime()).toBeGreaterThanOrEqual(backMs - 1)
  // Without the events nobody knows when it went back: it is not said to have waited.
  await redis.client().del(queue.toKey('events'))
  expect((await explained(inspector, queue, id)).waitedMs).toBe(0)
})

test('without its events, a job that is tried again waits as long as the views of its queue say: since its last start', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3, groups: {} })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  const { id } = await queue.add('job', {}, { attempts: 3, timestamp: Date.now() - HOUR_MS, group: { id: 'a' } })
  const waitsSince = async () => {
    const { readyAt } = await explained(inspector, queue, id)
    const [[status], group] = [await inspector.status([queue.name]), await inspector.group(queue.name, 'a')]
    const since = [status, await queue.meter(), group].map((view) => Number(view!.at) - view!.headAgeMs!)
    for (const ms of since) expect(Math.abs(ms - readyAt.getTime())).toBeLessThan(2)
    return readyAt.getTime()
  }
  expect(await waitsSince()).toBeLessThan(Date.now() - HOUR_MS + 10_000)
  const taken = await taker.take()
  const startMs = Number(await redis.client().hget(queue.toKey(id as string), 'processedOn'))
  await taken.moveToFailed(new Error('again'), taken.token as string, false)
  await redis.client().del(queue.toKey('events'))
  expect(await waitsSince()).toBe(startMs)
})

test('what has the name of one of the lists or sets is no job', async () => {
  const queue = shop.queue({ rate: '1/s' })
  await queue.addBulk(many(2))
  const inspector = inspectorOf(redis, shop)
  for (const id of ['wait', 'id', 'events', 'meta', 'none']) {
    expect(await inspector.explain(queue.name, id)).toBeUndefined()
  }
})

test('a job in the middle of a long list is told of without looking through it', async () => {
  const queue = shop.queue({ rate: '1/s' })
  const client = redis.client()
  const [head, middle] = await queue.addBulk(many(2))
  const list = queue.toKey('wait')
  const others = (name: string) => Array.from({ length: 15_000 }, (_, i) => `${name}${i}`)
  await client.linsert(list, 'BEFORE', head?.id as string, 'between')
  await client.lpush(list, ...others('late'))
  await client.rpush(list, ...others('early'))
  const inspector = shop.keep(new Inspector({ connection: client, prefix: redis.prefix }))
  const found = await explained(inspector, queue, middle?.id)
  expect(found).toMatchObject({ state: 'waiting', ahead: 10_000, isAheadAtLeast: true })
  expect(found.startsAt!.getTime()).toBeGreaterThanOrEqual(found.at.getTime() + 9_999_000)
  expect(found.assumptions.at(-1)).toContain('At least 10000 jobs')
  // At either end it is exact.
  await client.lrem(list, 1, middle?.id as string)
  await client.lpush(list, middle?.id as string)
  const last = await explained(inspector, queue, middle?.id)
  expect(last).toMatchObject({ state: 'waiting', ahead: 30_002, isAheadAtLeast: false })
})

/** How much Redis was asked for: commands, and elements of all replies together. */
async function askedOf(client: Redis, inspector: Inspector, queue: ShapedQueue, id: string | undefined) {
  const sent = vi.spyOn(client, 'sendCommand')
  await explained(inspector, queue, id)
  const replies = await Promise.all(sent.mock.calls.map(([command]) => command.promise))
  sent.mockRestore()
  return { commands: replies.length, elements: replies.reduce<number>((sum, reply) => sum + elementsOf(reply), 0) }
}

function elementsOf(reply: unknown): number {
  return Array.isArray(reply) ? reply.reduce<number>((sum, one) => sum + elementsOf(one), 0) : 1
}

test('what Redis is asked for an explanation does not grow with the queue', async () => {
  const queue = shop.queue({ rate: '1/s' })
  const client = redis.client()
  const inspector = shop.keep(new Inspector({ connection: client, prefix: redis.prefix }))
  const [first, middle, last] = await queue.addBulk(many(3))
  const few = await askedOf(client, inspector, queue, middle?.id)

  const others = (name: string) => Array.from({ length: 15_000 }, (_, i) => `${name}${i}`)
  await client.linsert(queue.toKey('wait'), 'BEFORE', first?.id as string, 'between')
  await client.lpush(queue.toKey('wait'), ...others('late'))
  await client.rpush(queue.toKey('wait'), ...others('early'))
  const [delayed] = await queue.addBulk(many(1, { delay: HOUR_MS }))
  await client.zadd(queue.toKey('delayed'), ...others('due').flatMap((id, i) => [i, id]))
  const events = client.pipeline()
  for (const id of others('event')) events.xadd(queue.toKey('events'), '*', 'event', 'waiting', 'jobId', id)
  await events.exec()
  for (const job of [first, middle, last, delayed]) {
    const many = await askedOf(client, inspector, queue, job?.id)
    // A job that is not found in a list of which only the ends are searched may have moved meanwhile.
    expect(many.commands).toBeLessThanOrEqual(3 * few.commands)
    // Of each event its id and two fields.
    expect(many.elements).toBeLessThan(3 * few.elements + 2000 * 5)
  }
})
