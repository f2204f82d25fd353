import { hostname } from 'node:os'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import { readScrape, samples } from '../../packages/metrics/test/support/scrape.ts'
import type { Sample } from '../../src/inspect/index.ts'
import { many, Taker } from '../queue/support.ts'
import { ShardShop } from '../sharding/support/shop.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, gate, Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000
let names = 0

/** Where the keys of a queue are that a test writes itself. */
function keysOfQueue(): { name: string; base: string } {
  const name = `written-${++names}`
  return { name, base: `${redis.prefix}:${name}:` }
}

test('the queues that have a shape, sorted', async () => {
  const inspector = inspectorOf(redis, shop)
  await redis.client().sadd(`${redis.prefix}:shaped-queues`, 'mails', 'calls', 'odd * [name]')
  const queues = await inspector.queues()
  expect(queues.filter((name) => !/^q\d/.test(name))).toEqual(['calls', 'mails', 'odd * [name]'])
})

test('counters, starts and workers as they are told', async () => {
  const client = redis.client()
  const { name, base } = keysOfQueue()
  const nowMs = Number((await client.time())[0]) * 1000
  const row = {
    ...{ host: 'b', pid: 7, name: 'w', since: nowMs - 60_000, concurrency: 5, running: 2, held: 1, started: 40 },
    ...{ perSecond: 2.5, latenessMaxUs: 1500, rttUs: 300, clockErrorUs: 410, utilisation: 0.25, state: 'overloaded' },
  }
  await client.hset(`${base}meta:meter`, { departedTotal: 12, refundedTotal: 2, forfeitedTotal: 1, refusedTotal: 3 })
  await client.hset(`${base}meta:starts`, {
    ...{ count: 11, early: 1, latenessUs: 22_000, 'l:500': 4, 'l:100000': 5, 'l:inf': 2, 'max:2': 9 },
    ...{ waits: 10, waitMs: 5000, 'w:10': 6, 'w:inf': 4, 'waited:rate': 4000, 'waited:workers': 1000 },
  })
  await client.hset(`${base}meta:workers`, {
    w2: JSON.stringify({ seen: nowMs, ...row }),
    w1: JSON.stringify({ seen: nowMs, host: 'a', pid: 9 }),
    gone: JSON.stringify({ seen: nowMs - 62_000, host: 'a', pid: 1, running: 1 }),
    idle: JSON.stringify({ seen: nowMs - 62_000, host: 'c', pid: 1 }),
    idleAndGone: JSON.stringify({ seen: nowMs - 3_602_000, host: 'a', pid: 1 }),
    later: 'not JSON',
  })
  await client.set(`${base}id`, 14)
  const status = await statusOf(inspectorOf(redis, shop), name)
  expect(status).toMatchObject({
    acceptedTotal: 14,
    departedTotal: 12,
    refundedTotal: 2,
    forfeitedTotal: 1,
    refusedTotal: 3,
  })
  const { starts, workers } = status
  expect(starts).toMatchObject({ count: 11, early: 1, latenessSumMs: 22, waits: 10, waitSumMs: 5000 })
  expect(starts.waitedMs).toEqual({ rate: 4000, limits: 0, concurrency: 0, pause: 0, workers: 1000 })
  expect(starts.lateness[0]).toEqual([0.5, 4])
  expect(starts.lateness.slice(-2)).toEqual([
    [100, 5],
    [Number.POSITIVE_INFINITY, 2],
  ])
  expect(starts.wait.filter(([, count]) => count > 0)).toEqual([
    [10, 6],
    [Number.POSITIVE_INFINITY, 4],
  ])
  expect(workers.map(({ id }) => id)).toEqual(['w1', 'w2', 'idle'])
  expect(workers[1]).toEqual({
    ...{ id: 'w2', host: 'b', pid: 7, name: 'w', seenAt: new Date(nowMs), startedAt: new Date(nowMs - 60_000) },
    ...{ concurrency: 5, running: 2, held: 1, started: 40, ratePerSecond: 2.5, latenessMaxMs: 1.5, roundTripMs: 0.3 },
    ...{ clockErrorMs: 0.41, loopUtilisation: 0.25, state: 'overloaded', clientId: undefined, bypassedBy: [] },
    ...{ recentEnds: { completed: 0, failed: 0, failedAttempts: 0 }, failureReasons: [] },
  })
  expect(workers[0]).toMatchObject({ name: undefined, started: 0, state: 'running' })
})

const sample = (atMs: number): string =>
  JSON.stringify([atMs, 20, 10, 1, 2, 9, 8, 1, 250, 50, 10, 30_000, 5000, 6, 3, 4, 7, 1e6, 2e6, 3e6, 4e6, 5e6, 1])
const ALL: Omit<Sample, 'at'> = {
  ...{ accepted: 20, departed: 10, refused: 1, dropped: 2, depth: 9, waiting: 8, active: 1, headAgeMs: 250 },
  ...{ ratePerSecond: 50, starts: 10, latenessSumMs: 30, latenessMaxMs: 5, paused: true },
  ...{ completed: 6, failed: 3, failedAttempts: 4, bypassed: 7 },
  heldMs: { rate: 1000, limits: 2000, concurrency: 3000, pause: 4000, workers: 5000 },
}

test('the series: oldest first, by the finest list that reaches back', async () => {
  const { name, base } = keysOfQueue()
  const client = redis.client()
  const inspector = inspectorOf(redis, shop)
  const write = (seconds: number, kept: number) => {
    const samples = Array.from({ length: kept }, (_, i) => sample((100_000 - i * seconds) * 1000))
    return client.rpush(`${base}meta:series:${seconds}`, ...samples)
  }
  expect(await inspector.series(name)).toEqual([])
  expect(await inspector.series(name, { since: new Date(0) })).toEqual([])
  await Promise.all([write(2, 300), write(15, 480), write(120, 720)])
  const finest = await inspector.series(name)
  expect(finest).toHaveLength(300)
  expect(finest.at(-1)).toEqual({ at: new Date(100_000_000), ...ALL })
  const since = async (secondsAgo: number) => {
    const samples = await inspector.series(name, { since: new Date((100_000 - secondsAgo) * 1000) })
    return [samples.length, samples[0]!.at.getTime() / 1000 - 100_000]
  }
  expect(await since(60)).toEqual([31, -60])
  expect(await since(600)).toEqual([41, -600])
  expect(await since(7200)).toEqual([61, -7200])
  expect(await since(999_999)).toEqual([720, -719 * 120])
  expect(await inspector.series(name, { resolution: 120 })).toHaveLength(720)
})

test('of a young queue the finest list has it all; what is unknown or broken is left out', async () => {
  const { name, base } = keysOfQueue()
  const client = redis.client()
  for (const seconds of [2, 15, 120]) await client.rpush(`${base}meta:series:${seconds}`, sample(1000))
  const unknown = JSON.stringify([3000, 1, 0, 0, 0, 1, 1, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
  await client.lpush(`${base}meta:series:2`, '[1,2]', 'no JSON', unknown)
  const samples = await inspectorOf(redis, shop).series(name, { since: new Date(0) })
  expect(samples.map(({ at }) => at.getTime())).toEqual([1000, 3000])
  expect(samples[1]).toMatchObject({ headAgeMs: undefined, ratePerSecond: undefined, paused: false })
})

/** Entries of two streams have an order from one millisecond to the next. */
async function nextMillisecond(client: Redis): Promise<void> {
  const now = async () => (await client.time()).map(Number).reduce((s, us) => s * 1000 + Math.floor(us / 1000))
  const before = await now()
  while ((await now()) === before);
}

test('the history of people and of the other side is one, newest first', async () => {
  const queue = shop.queue({ rate: '10/s' }, { declarer: 'web-1' })
  const inspector = inspectorOf(redis, shop)
  const client = redis.client()
  await queue.setShape({ rate: '5/s' }, { by: 'ann', reason: 'too <b>fast</b>', ttlMs: HOUR_MS })
  await queue.pauseUntil(2_000_000_000_000, { by: 'bob', reason: 'maintenance' })
  const change = {
    kind: 'pause',
    scope: 'queue',
    source: 'http',
    reason: '429',
    by: 'w1',
    at: 1,
    until: 2_000_000_000_000,
  }
  await nextMillisecond(client)
  await client.xadd(queue.toKey('meta:feedback'), '*', 'change', JSON.stringify(change))
  await nextMillisecond(client)
  await queue.clearPause({ by: 'bob', reason: 'done' })
  await queue.pause({ by: 'cid', reason: 'lunch' })
  await client.xadd(queue.toKey('meta:history'), '*', 'kind', 'of a later version', 'by', '', 'reason', '')
  const history = await inspector.history(queue.name)
  expect(history.map(({ kind, by, reason }) => [kind, by, reason])).toEqual([
    ['pause', 'cid', 'lunch'],
    ['resume', 'bob', 'done'],
    ['feedback', 'w1', '429'],
    ['pause', 'bob', 'maintenance'],
    ['override', 'ann', 'too <b>fast</b>'],
    ['declared', 'web-1', ''],
  ])
  expect(history[2]).toMatchObject({ change: { kind: 'pause', scope: 'queue' }, until: new Date(2_000_000_000_000) })
  expect(history[4]?.change).toEqual({ rate: [5, 1000] })
  expect(history[4]!.until!.getTime()).toBeGreaterThan(Date.now())
  expect(history[5]).not.toHaveProperty('until')
  expect(await inspector.history(queue.name, { count: 3 })).toEqual(history.slice(0, 3))
  expect(await inspector.history(queue.name, { after: history[3]!.id })).toEqual(history.slice(0, 3))
  expect(await inspector.history(queue.name, { after: history[0]!.id })).toEqual([])
})

test('jobs by their states, in the order in which they go on', async () => {
  const queue = shop.queue({ rate: '1000/s', burst: 10 })
  const inspector = inspectorOf(redis, shop)
  const taker = new Taker(shop, queue)
  await queue.addBulk(['a', 'b', 'c', 'd', 'e'].map((name) => ({ name, data: { of: name }, opts: { cost: 2 } })))
  const done = [await taker.take(), await taker.take(), await taker.take()]
  await taker.complete(done[0]!)
  await done[1]!.moveToFailed(new Error('no <such> thing'), done[1]!.token as string, false)
  await queue.addBulk([3, 1, 2].map((priority) => ({ name: `p${priority}`, data: {}, opts: { priority } })))
  await queue.addBulk([2, 1].map((n) => ({ name: `late${n}`, data: {}, opts: { delay: n * HOUR_MS } })))
  const list = async (state: Parameters<typeof inspector.jobs>[1], options = {}) =>
    (await inspector.jobs(queue.name, state, options)).map(({ name }) => name)
  expect(await list('waiting')).toEqual(['d', 'e'])
  expect(await list('waiting', { start: 1 })).toEqual(['e'])
  expect(await list('waiting', { count: 1 })).toEqual(['d'])
  expect(await list('waiting', { count: 0 })).toEqual([])
  expect(await list('waiting', { start: 5 })).toEqual([])
  expect(await list('prioritized')).toEqual(['p1', 'p2', 'p3'])
  expect(await list('delayed', { count: 1 })).toEqual(['late1'])
  expect(await list('active')).toEqual(['c'])
  expect(await list('completed')).toEqual(['a'])
  expect(await list('waiting-children')).toEqual([])
  const [failed] = await inspector.jobs(queue.name, 'failed')
  expect(failed).toEqual({
    ...{ id: expect.any(String), name: 'b', addedAt: expect.any(Date), priority: 0, delayMs: 0, attemptsStarted: 1 },
    ...{ failedReason: 'no <such> thing', startedAt: expect.any(Date), finishedAt: expect.any(Date), cost: 2 },
  })
  const [withData] = await inspector.jobs(queue.name, 'waiting', { data: true })
  expect(withData?.data).toEqual({ of: 'd' })
  const [important] = await inspector.jobs(queue.name, 'prioritized')
  expect(important).not.toHaveProperty('group')
})

test('an active job names the worker that runs it: its name, host and process, as far as known', async () => {
  const queue = shop.queue({})
  const inspector = inspectorOf(redis, shop)
  const client = redis.client()
  const { open, opened } = gate()
  const worker = shop.worker(queue, () => opened, { concurrency: 1, name: 'mailer' })
  const { id = '' } = await queue.add('job', {})
  const running = async () => (await inspector.jobs(queue.name, 'active'))[0]?.worker
  await expect.poll(running).toBe(`mailer · ${hostname()} · ${process.pid}`)
  expect((await inspector.job(queue.name, id))?.worker).toBe(await running())
  await client.hdel(queue.toKey(id), 'pb')
  expect(await running()).toBe(`mailer · ${hostname()} · ${process.pid}`)
  await client.hdel(queue.toKey('meta:workers'), worker.id)
  expect(await running()).toBeUndefined()
  await client.hset(queue.toKey(id), 'pb', 'mailer')
  expect(await running()).toBe('mailer')
  open()
  await eventsOf('completed', worker).reach(1)
  expect((await inspector.job(queue.name, id))?.worker).toBe('mailer')
  expect((await inspector.jobs(queue.name, 'completed'))[0]).not.toHaveProperty('worker')
})

test('the queues that have a job with an id, also in a shard; names of lists are no jobs', async () => {
  const inspector = inspectorOf(redis, shop)
  const sharded = new ShardShop(redis).queue('split', { shards: 2, shape: { rate: '4/min' } })
  await sharded.waitUntilReady()
  const { id = '' } = await sharded.add('job', {})
  const [one, other, none] = [shop.queue({}), shop.queue({}), shop.queue({})]
  for (const queue of [one, other]) await queue.add('job', {}, { jobId: 'same' })
  await none.add('job', {}, { jobId: 'else' })
  const names = ['split', one.name, other.name, none.name]
  expect(await inspector.queuesWithJob(names, 'same')).toEqual([one.name, other.name])
  expect(await inspector.queuesWithJob(names, id)).toEqual(['split'])
  expect(await inspector.queuesWithJob(names, 'wait')).toEqual([])
  const many = Array.from({ length: 1200 }, (_, i) => `none-${i}`)
  expect(await inspector.queuesWithJob([...many, other.name], 'same')).toEqual([other.name])
})

test('a job of a group is listed with the id of the group', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.add('job', {}, { group: { id: 'acme' } })
  const [row] = await inspectorOf(redis, shop).jobs(queue.name, 'prioritized')
  expect(row).toMatchObject({ group: 'acme', priority: 0 })
})

test('a job that is gone when it is looked at is not told of', async () => {
  const queue = shop.queue({})
  await queue.addBulk(many(2))
  const client = redis.client()
  await client.rpush(queue.toKey('wait'), 'gone')
  const inspector = inspectorOf(redis, shop)
  expect(await inspector.jobs(queue.name, 'waiting')).toHaveLength(2)
  expect(await statusOf(inspector, queue.name)).toMatchObject({ waiting: 3, headAgeMs: undefined })
  const metrics = createMetrics({ connection: redis.connection, prefix: redis.prefix, queues: [queue.name] })
  const scrape = readScrape(await metrics.text())
  await metrics.close()
  // Not 0, beside a backlog.
  expect(samples(scrape, 'sluice_head_age_seconds')).toEqual([])
  expect(await inspector.explain(queue.name, 'gone')).toBeUndefined()
})

test('what was kept for an audit, with the starts of the slots', async () => {
  const { name, base } = keysOfQueue()
  const client = redis.client()
  const keep = (key: string, entries: unknown) =>
    client.xadd(base + key, '*', 'n', JSON.stringify(entries), 'at', 900, 'held', 5)
  await keep('meta:audit', [
    ['1', '1000', '1', '500.5', '2', 0],
    ['2', '2000', '2.5', 0, 0, { llm: 3 }],
  ])
  // Given back, and granted again.
  await keep('meta:audit', [['3', '3000', '1', '500.5', '2', 0]])
  await keep('meta:audit', [['4', '3000', '1', '500.5', '2', 0]])
  await keep('meta:audit:starts', [
    [3000, 3100],
    [1000, 1001],
  ])
  const noted = { grantedUs: 900, heldUs: 5 }
  expect(await inspectorOf(redis, shop).audit(name)).toEqual([
    { jobId: '1', slotUs: 1000, cost: 1, ...noted, intervalUs: 500.5, burst: 2, limits: {}, startedUs: 1001 },
    { jobId: '2', slotUs: 2000, cost: 2.5, ...noted, limits: { llm: 3 } },
    { jobId: '3', slotUs: 3000, cost: 1, ...noted, intervalUs: 500.5, burst: 2, limits: {} },
    { jobId: '4', slotUs: 3000, cost: 1, ...noted, intervalUs: 500.5, burst: 2, limits: {}, startedUs: 3100 },
  ])
  expect(await inspectorOf(redis, shop).audit('nobody')).toEqual([])
})

test('a worker that had no jobs and says nothing counts as gone once a job has waited for one for a minute', async () => {
  const client = redis.client()
  const { name, base } = keysOfQueue()
  const nowMs = Number((await client.time())[0]) * 1000
  await client.hset(`${base}meta`, { version: 'bullmq' })
  await client.hset(`${base}meta:workers`, { w: JSON.stringify({ seen: nowMs - 120_000, host: 'a', pid: 1 }) })
  const living = async () => (await statusOf(inspectorOf(redis, shop), name)).workers.map(({ id }) => id)
  expect(await living()).toEqual(['w'])
  await client.rpush(`${base}wait`, '1')
  await client.hset(`${base}1`, { timestamp: nowMs - 30_000, opts: '{}', name: 'job' })
  expect(await living()).toEqual(['w'])
  await client.hset(`${base}1`, { timestamp: nowMs - 61_000 })
  expect(await living()).toEqual([])
})
