import { expect, test, vi } from 'vitest'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import type { ShapedQueue } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { many, rejection, Taker } from '../queue/support.ts'
import { changeMeter, storedMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'
import { setShapeFields } from '../support/shape-fields.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000
const ops = { by: 'ops', reason: 'test' }

/** Fields that go on while nothing happens. */
const MOVING = ['at', 'headAgeMs', 'level', 'nextDepartureAt'] as const

/** Expects the status to be what the queue's own look at its meter is, also of what moves: that is asked before and after. */
async function expectMeter(queue: ShapedQueue): Promise<void> {
  const inspector = inspectorOf(redis, shop)
  const before = await queue.meter()
  const status = await statusOf(inspector, queue.name)
  const after = await queue.meter()
  expect(status).toMatchObject(omit(after))
  for (const field of MOVING) {
    const [low, high] = [Number(before[field]), Number(after[field])].sort((one, other) => one - other)
    if (before[field] === undefined) expect(status[field]).toBeUndefined()
    else expect(Number(status[field]), field).toBeGreaterThanOrEqual(low as number)
    if (before[field] !== undefined) expect(Number(status[field]), field).toBeLessThanOrEqual(high as number)
  }
}

function omit(state: object): object {
  return Object.fromEntries(Object.entries(state).filter(([field]) => !(MOVING as readonly string[]).includes(field)))
}

const FEEDBACK = { scope: 'queue', source: 'http', reason: '429' } as const

const states: Record<string, (queue: ShapedQueue) => Promise<unknown>> = {
  'that nobody has used': async () => {},
  'of which some jobs have left': async (queue) => {
    const taker = new Taker(shop, queue)
    await queue.addBulk([...many(5), ...many(2, { delay: HOUR_MS }), ...many(2, { priority: 2 })])
    for (let n = 0; n < 3; n++) await taker.take()
  },
  'whose head costs more than one': async (queue) => {
    const taker = new Taker(shop, queue)
    await queue.addBulk([...many(2), ...many(3, { cost: 2.5 })])
    await taker.take()
    await taker.take()
  },
  'with a prioritized head': async (queue) => {
    await queue.addBulk(many(3, { priority: 5, cost: 3 }))
  },
  'that is paused by BullMQ': async (queue) => {
    await queue.add('job', {})
    await queue.pause()
  },
  'whose meter is paused': async (queue) => {
    await queue.add('job', {})
    await queue.pauseUntil(Date.now() + HOUR_MS, { reason: 'maintenance' })
  },
  'in shadow': async (queue) => {
    await queue.setShape({ mode: 'shadow' }, ops)
    await queue.addBulk(many(6))
    const taker = new Taker(shop, queue)
    for (let n = 0; n < 5; n++) await taker.take()
  },
  'that was in shadow and is not any more': async (queue) => {
    await queue.setShape({ mode: 'shadow' }, ops)
    await queue.addBulk(many(9))
    const taker = new Taker(shop, queue)
    for (let n = 0; n < 8; n++) await taker.take()
    await queue.clearShape()
  },
  'that owed more than a burst when it left shadow': async (queue) => {
    const nowUs = Date.now() * 1000
    const meter = { origin: nowUs, tat: 10 * HOUR_MS * 1000, last: 0, seen: nowUs, interval: HOUR_MS * 1000, burst: 3 }
    await changeMeter(redis.client(), queue.toKey(''), { ...meter, mode: 'shadow' })
  },
  'that is off': async (queue) => {
    await queue.setShape({ mode: 'off' }, ops)
    await queue.add('job', {})
  },
  'whose rate and burst were changed': async (queue) => {
    await queue.addBulk(many(4))
    const taker = new Taker(shop, queue)
    for (let n = 0; n < 3; n++) await taker.take()
    await queue.setShape({ rate: '2/h', burst: 2 }, ops)
  },
  'that is slowed by feedback': async (queue) => {
    await queue.addBulk(many(4))
    const taker = new Taker(shop, queue)
    await taker.take()
    const found = { feedback: { kind: 'slow', rate: { limit: 1, period: 7_200_000 }, ttlMs: HOUR_MS, ...FEEDBACK } }
    await feed(queue, found)
  },
  'that feedback allows two jobs at once': async (queue) => {
    await feed(queue, { feedback: { kind: 'concurrency', limit: 2, ttlMs: HOUR_MS, ...FEEDBACK } })
  },
  'that refused some': async (queue) => {
    await queue.addBulk(many(20))
    await rejection(queue.addBulk(many(3)))
  },
  'with claims on its way': async (queue) => {
    await redis.client().hset(queue.toKey('meta:shape'), { claimed: 7, claimedUntil: (Date.now() + HOUR_MS) * 1000 })
  },
}

async function feed(queue: ShapedQueue, found: object): Promise<void> {
  const request = { found: [found], sentUs: Date.now() * 1000, by: 'test', adapt: undefined, oks: 0 }
  await applyFeedback(queue.getBackend().store, encodeFeedbackRequest(request as never))
}

test.each(Object.keys(states))('a queue %s is seen as the meter sees it', async (name) => {
  const queue = shop.queue({ rate: '1/h', burst: 3, capacity: 20 })
  await queue.waitUntilReady()
  await states[name]?.(queue)
  await expectMeter(queue)
})

/** Brings the ends of overrides, or of what the other side said, forward, to a time that is over. Returns it, ms. */
async function endNow(queue: ShapedQueue, field: 'overrides' | 'feedback', names: readonly string[]): Promise<number> {
  const client = redis.client()
  const key = queue.toKey('meta:shape')
  const document = JSON.parse((await client.hget(key, field)) as string)
  const endedMs = Date.now() - 60_000
  for (const name of names) document[name].until = endedMs
  await setShapeFields(client, key, { [field]: JSON.stringify(document), expires: endedMs })
  return endedMs
}

/** What is told of a queue before any script has looked at it, which has to be what scripts tell then. */
async function expectSameUnseen(queue: ShapedQueue): Promise<void> {
  const status = await statusOf(inspectorOf(redis, shop), queue.name)
  const after = await queue.meter()
  expect(status).toMatchObject(omit(after))
  const moved = (Number(after.at) - Number(status.at)) / HOUR_MS
  expect(status.level - after.level).toBeGreaterThanOrEqual(-1e-9)
  // The rates of this file are no more than 4 an hour.
  expect(status.level - after.level).toBeLessThanOrEqual(4 * moved + 1e-6)
}

test('an override that has ended is over, also where nobody has written so', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3, capacity: 20, concurrency: 4 })
  const taker = new Taker(shop, queue)
  await queue.addBulk(many(5))
  await queue.setShape({ rate: '4/h', burst: 5, capacity: null, concurrency: 9 }, { ...ops, ttlMs: HOUR_MS })
  for (let n = 0; n < 4; n++) await taker.take()
  await queue.setShape({ maxWaitMs: 9 }, { ...ops, ttlMs: 2 * HOUR_MS })
  await endNow(queue, 'overrides', ['rate', 'burst', 'capacity', 'concurrency'])
  await expectSameUnseen(queue)
  const shape = await queue.getShape()
  expect(shape).toMatchObject({ rate: '1/h', burst: 3, capacity: 20, concurrency: 4, maxWaitMs: 9 })
})

test('of several overrides each ends at its own time', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3 })
  await queue.setShape({ rate: '4/h' }, { ...ops, ttlMs: HOUR_MS })
  await queue.setShape({ burst: 5 }, { ...ops, ttlMs: HOUR_MS })
  const client = redis.client()
  const key = queue.toKey('meta:shape')
  const overrides = JSON.parse((await client.hget(key, 'overrides')) as string)
  const nowMs = Date.now()
  overrides.rate.until = nowMs - 60_000
  overrides.burst.until = nowMs - 30_000
  await setShapeFields(client, key, { overrides: JSON.stringify(overrides), expires: nowMs - 60_000 })
  await expectSameUnseen(queue)
})

test('what the other side said is over at its end', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3, concurrency: 7 })
  await feed(queue, {
    feedback: { kind: 'slow', rate: { limit: 1, period: 2 * HOUR_MS }, ttlMs: HOUR_MS, ...FEEDBACK },
  })
  await feed(queue, { feedback: { kind: 'concurrency', limit: 2, ttlMs: HOUR_MS, ...FEEDBACK } })
  await endNow(queue, 'feedback', ['slow', 'concurrency'])
  await expectSameUnseen(queue)
  expect(await queue.getShape()).toMatchObject({ rate: '1/h', concurrency: 7 })
})

test('a stock queue that writes past what the other side allows is seen at once', async () => {
  const queue = shop.queue({ rate: '1/h', concurrency: 7 })
  await feed(queue, { feedback: { kind: 'concurrency', limit: 5, ttlMs: HOUR_MS, ...FEEDBACK } })
  await redis.client().hset(queue.toKey('meta'), 'concurrency', 3)
  await expectSameUnseen(queue)
  expect(await queue.getShape()).toMatchObject({ concurrency: 3 })
})

test('a clock that went back, and an origin that is long ago', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 3 })
  const taker = new Taker(shop, queue)
  const client = redis.client()
  const base = queue.toKey('')
  await queue.addBulk(many(4))
  for (let n = 0; n < 3; n++) await taker.take()
  await changeMeter(client, base, { seen: (Date.now() + HOUR_MS) * 1000 })
  await expectMeter(queue)
  const meter = await storedMeter(client, base)
  const backUs = 2 ** 42
  await changeMeter(client, base, {
    origin: Number(meter.origin) - backUs,
    ...{ tat: Number(meter.tat) + backUs, last: Number(meter.last) + backUs, seen: Number(meter.origin) },
  })
  await expectMeter(queue)
})

test('only delayed jobs that are due soon take a place, where the capacity says so', async () => {
  const queue = shop.queue({ capacity: 10, capacityHorizonMs: HOUR_MS })
  await queue.addBulk([...many(2), ...many(3, { delay: HOUR_MS / 2 }), ...many(4, { delay: 2 * HOUR_MS })])
  await expectMeter(queue)
  expect(await statusOf(inspectorOf(redis, shop), queue.name)).toMatchObject({ depth: 5, delayed: 7 })
})

test('a queue with a shape of limits alone, and one of BullMQ without any', async () => {
  const limited = shop.queue({ limits: [{ name: 'llm', rate: '1/h', unit: 'tokens' }] })
  await limited.add('job', {}, { costs: { tokens: 1 } })
  await expectMeter(limited)
  const stock = shop.queue()
  await stock.add('job', {})
  await expectMeter(stock)
})

test.each(['odd * name', '[a-z]?', 'ünï→cödé', '->*<-', '{tag}'])('a queue may be called %s', async (name) => {
  const queue = shop.queueNamed(name, { rate: '1/h', burst: 3 })
  await queue.addBulk(many(2, { cost: 2 }))
  await expectMeter(queue)
})

test('one that is not there is undefined, others are told of in the order that was asked for', async () => {
  const [one, other] = [shop.queue({ rate: '1/h' }), shop.queue({ rate: '2/h' })]
  await Promise.all([one.add('job', {}), other.add('job', {})])
  const inspector = inspectorOf(redis, shop)
  const found = await inspector.status([other.name, 'nobody', one.name, other.name])
  expect(found.map((status) => status?.rate)).toEqual(['2/h', undefined, '1/h', '2/h'])
  expect(await inspector.status([])).toEqual([])
})

test('a look at many queues is one round trip', async () => {
  // One connection: thirty take a busy machine longer than an add may take.
  const connection = redis.client() as never
  const queues = Array.from({ length: 30 }, () => shop.queue({ rate: '1/h', burst: 3 }, { connection }))
  await Promise.all(queues.map((queue) => queue.addBulk(many(2, { cost: 2 }))))
  const client = redis.client()
  const inspector = shop.keep(new Inspector({ connection: client, prefix: redis.prefix }))
  // Redis may not know the script yet.
  await inspector.status(['nobody'])
  const written = vi.spyOn(client.stream, 'write')
  const statuses = await inspector.status(queues.map(({ name }) => name))
  expect(written).toHaveBeenCalledTimes(1)
  expect(statuses.map((status) => status?.waiting)).toEqual(queues.map(() => 2))
  await inspector.close()
  expect(await client.ping()).toBe('PONG')
})
