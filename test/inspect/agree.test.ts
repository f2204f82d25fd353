import type { Job } from 'bullmq'
import fc from 'fast-check'
import { fastify } from 'fastify'
import { expect, test } from 'vitest'
import { runHere } from '../../packages/cli/test/run-here.ts'
import { dashboard } from '../../packages/dashboard/src/index.ts'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import { readScrape, sample } from '../../packages/metrics/test/support/scrape.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import type { ShapedQueue } from '../../src/index.ts'
import type { Explanation, Inspector, QueueStatus } from '../../src/inspect/index.ts'
import { many, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { noteEnds } from '../support/shape-fields.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = new Workshop(redis)
const HOUR_MS = 3_600_000
const ops = { by: 'ops', reason: 'test' }
const FEEDBACK = { scope: 'queue', source: 'http', reason: '429' } as const
const RUNS = Number(process.env.AGREE_RUNS ?? 15)

/** One after the other bring a queue into a state. */
interface Bench {
  readonly queue: ShapedQueue
  readonly taker: Taker
  readonly taken: Job[]
}

async function feed(queue: ShapedQueue, feedback: object): Promise<void> {
  const request = { found: [{ feedback: { ...feedback, ttlMs: HOUR_MS, ...FEEDBACK } }], sentUs: Date.now() * 1000 }
  const body = { ...request, by: 'test', adapt: undefined, oks: 0 }
  await applyFeedback(queue.getBackend().store, encodeFeedbackRequest(body as never))
}

async function redisMs(): Promise<number> {
  const [seconds, micros] = await redis.client().time()
  return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000)
}

const refusable = (adding: Promise<unknown>) => adding.catch(() => undefined)

const STEPS: Readonly<Record<string, (bench: Bench) => Promise<unknown>>> = {
  add: ({ queue }) => refusable(queue.addBulk(many(3))),
  lifo: ({ queue }) => refusable(queue.add('job', {}, { lifo: true })),
  important: ({ queue }) => refusable(queue.add('job', {}, { priority: 1 })),
  unimportant: ({ queue }) => refusable(queue.addBulk(many(2, { priority: 7 }))),
  costly: ({ queue }) => refusable(queue.add('job', {}, { cost: 2 })),
  'delay for long': ({ queue }) => refusable(queue.add('job', {}, { delay: HOUR_MS })),
  'delay that is over': async ({ queue }) => {
    await refusable(queue.add('job', {}, { delay: 1 }))
    const [, due] = await redis.client().zrange(queue.toKey('delayed'), '0', '0', 'WITHSCORES')
    const dueMs = Math.floor(Number(due ?? 0) / 4096)
    if (dueMs < Date.now() + HOUR_MS / 2) while ((await redisMs()) <= dueMs);
  },
  take: async ({ taker, taken }) => {
    const job = await taker.tryTake()
    if (job) taken.push(job)
  },
  'put back': async ({ taken }) => {
    const job = taken.shift()
    if (job) await job.moveToFailed(new Error('again'), job.token as string, false)
  },
  pause: ({ queue }) => queue.pause(),
  'pause for a while': ({ queue }) => queue.pauseUntil(Date.now() + HOUR_MS, { reason: 'maintenance' }),
  'less capacity': ({ queue }) => queue.setShape({ capacity: 2 }, { ...ops, ttlMs: HOUR_MS }),
  'other rate': ({ queue }) => queue.setShape({ rate: '30/min' }, ops),
  shadow: ({ queue }) => queue.setShape({ mode: 'shadow' }, ops),
  'other concurrency': ({ queue }) => queue.setShape({ concurrency: 5 }, { ...ops, ttlMs: HOUR_MS }),
  'fewer at once': ({ queue }) => feed(queue, { kind: 'concurrency', limit: 1 }),
  'a worker tells': async ({ queue }) => {
    const said = { host: 'h', pid: 1, since: 0, concurrency: 5, running: 1, rttUs: 300, clockErrorUs: 2500 }
    const row = JSON.stringify({ ...said, seen: await redisMs(), state: 'running' })
    await redis.client().hset(queue.toKey('meta:workers'), 'w1', row)
  },
  'a stock queue allows fewer': ({ queue }) => redis.client().hset(queue.toKey('meta'), 'concurrency', 1),
  'a stock queue allows more': ({ queue }) => redis.client().hset(queue.toKey('meta'), 'concurrency', 20),
  'a stock queue allows any': ({ queue }) => redis.client().hdel(queue.toKey('meta'), 'concurrency'),
  slower: ({ queue }) => feed(queue, { kind: 'slow', rate: { limit: 1, period: 120_000 } }),
}

/** As a page would see it that was opened now. */
async function pageOf(name: string) {
  const app = fastify()
  await app.register(dashboard({ connection, prefix }))
  const answer = await app.inject({ url: `/api/queues/${name}`, headers: { host: 'localhost' } })
  await app.close()
  return answer.json()
}

/** What each view tells of a queue at about the same time: the status before and after the others. */
async function viewsOf(queue: ShapedQueue, inspector: Inspector) {
  const { name } = queue
  const metrics = createMetrics({ connection, prefix, queues: [name] })
  const before = await statusOf(inspector, name)
  const jobs = await queue.getJobs(['waiting', 'prioritized', 'delayed', 'active'])
  const explained = (await Promise.all(jobs.map(({ id }) => inspector.explain(name, id as string)))).flatMap(
    (one) => one ?? [],
  )
  const meter = await queue.meter()
  const page = await pageOf(name)
  const scrape = readScrape(await metrics.text())
  const detail = (await runHere(redis, ['status', name])).stdout
  const rows = (await runHere(redis, ['status', '--all'])).stdout.split('\n')
  const table = rows.find((line) => line.startsWith(`${name} `)) ?? ''
  const after = await statusOf(inspector, name)
  await metrics.close()
  // BullMQ's own word.
  await noteEnds(queue.getBackend().store)
  const atOnce = await queue.getGlobalConcurrency()
  return { before, after, explained, meter, page, scrape, detail, table, jobs, atOnce }
}

type Views = Awaited<ReturnType<typeof viewsOf>>

/** What goes on while nothing happens. */
const MOVING = ['at', 'headAgeMs', 'oldestAgeMs', 'level', 'nextDepartureAt', 'heldMs', 'hold'] as const

/** Of conditions the names: their texts count time. */
function still(status: object): object {
  const facts = Object.entries(status).filter(([name]) => !MOVING.includes(name as never))
  const named = facts.map(([field, value]) => [
    field,
    field === 'conditions' ? (value as QueueStatus['conditions']).map(({ name }) => name) : value,
  ])
  return JSON.parse(JSON.stringify(Object.fromEntries(named)))
}

function between(value: number | undefined, one: number | undefined, other: number | undefined, what: string): void {
  if (value === undefined || one === undefined || other === undefined) expect.fail(`${what} is not told`)
  expect(value, what).toBeGreaterThanOrEqual(Math.min(one, other) - 1)
  expect(value, what).toBeLessThanOrEqual(Math.max(one, other) + 1)
}

function expectSame({ before, after, meter, page, scrape, atOnce }: Views): void {
  expect(before.concurrency?.inForce ?? null).toBe(atOnce)
  expect(still(after)).toEqual(still(before))
  expect(still(before)).toMatchObject(still(meter))
  expect(still(page.status)).toEqual(still(before))
  const of = (name: string, labels = {}) => sample(scrape, name, { queue: before.name, ...labels })
  expect(of('sluice_backlog_jobs')).toBe(before.depth)
  expect(of('sluice_capacity_jobs')).toBe(before.capacity)
  expect(of('sluice_jobs', { state: 'waiting' })).toBe(before.waiting)
  expect(of('sluice_jobs', { state: 'delayed' })).toBe(before.delayed)
  expect(of('sluice_accepted_total')).toBe(before.acceptedTotal)
  expect(of('sluice_refused_total', { reason: 'full' })).toBe(before.refusedTotal - before.refusedLateTotal)
  expect(of('sluice_paused', { pause: 'queue' })).toBe(Number(before.paused))
  expect(of('sluice_paused', { pause: 'meter' })).toBe(Number(before.pausedUntil !== undefined))
  expect(of('sluice_concurrency_jobs', { limit: 'set' })).toBe(before.concurrency?.set)
  expect(of('sluice_concurrency_jobs', { limit: 'in-force' })).toBe(before.concurrency?.inForce)
  expect(of('sluice_clock_error_seconds')).toBe(before.workers.length > 0 ? 0.0025 : undefined)
  const seconds = (ms: number | undefined) => (ms ?? 0) / 1000
  between(of('sluice_oldest_age_seconds'), seconds(before.oldestAgeMs), seconds(after.oldestAgeMs), 'oldest')
  between(of('sluice_head_age_seconds'), seconds(before.headAgeMs), seconds(after.headAgeMs), 'head')
}

/** By the jobs themselves. */
function expectHold({ before, explained, jobs }: Views): void {
  const readyMs = (job: Job) => Math.max(job.timestamp + (job.opts.delay ?? 0), job.processedOn ?? 0)
  const waits = explained.filter(({ state }) => state === 'waiting' || state === 'prioritized')
  const due = explained.filter(({ state, hold }) => state === 'delayed' && hold !== undefined)
  expect(before.hold !== undefined).toBe(waits.length + due.length > 0)
  const oldestMs = Math.min(
    ...waits.map(({ id }) => readyMs(jobs.find((job) => job.id === id) as Job)),
    before.at.getTime(),
  )
  // Jobs that newer ones of the list have overtaken are not looked for in its middle.
  const isMixed = jobs.some(({ opts }) => opts.lifo)
  if (waits.length > 0 && !isMixed) expect(before.oldestAgeMs).toBeCloseTo(before.at.getTime() - oldestMs, -1)
  if (waits.length > 0) expect(before.oldestAgeMs).toBeLessThanOrEqual(before.at.getTime() - oldestMs + 10)
  if (before.headAgeMs !== undefined) expect(before.oldestAgeMs).toBeGreaterThanOrEqual(before.headAgeMs)
  for (const { hold, readyAt, at, concurrency } of [...waits, ...due]) {
    expect(hold?.cause).toBe(before.hold?.cause)
    expect(hold?.since.getTime()).toBeGreaterThanOrEqual(readyAt.getTime())
    expect(hold?.since.getTime()).toBeLessThanOrEqual(at.getTime())
    expect(concurrency).toEqual(before.concurrency)
    if (hold?.until) expect(hold.until.getTime()).toBeGreaterThanOrEqual(hold.since.getTime())
  }
}

/** Nothing that waits starts before the next slot, and the head starts then. */
function expectStarts({ before, explained }: Views): void {
  const next = before.nextDepartureAt?.getTime()
  const isPaced = before.rate !== undefined && next !== undefined
  for (const { state, ahead, startsAt, hold, at } of explained as readonly Explanation[]) {
    if (before.paused && state !== 'active') expect(startsAt).toBeUndefined()
    if (hold && startsAt && isPaced) expect(startsAt.getTime()).toBeGreaterThanOrEqual(Math.min(next, at.getTime()) - 1)
    const isHead = ahead === 0 && hold !== undefined && state !== 'delayed'
    if (isHead && startsAt && isPaced && next > at.getTime())
      expect(startsAt.getTime()).toBeGreaterThanOrEqual(next - 1)
  }
}

function expectWords({ before, detail, table }: Views): void {
  const { depth, capacity, concurrency, waiting, delayed, hold, workers } = before as QueueStatus
  const over = capacity !== undefined && depth > capacity
  expect(/^depth .*over\)/m.test(detail)).toBe(over)
  expect(/^over /m.test(detail)).toBe(over)
  expect(table.includes(`${depth}/${capacity}`)).toBe(capacity !== undefined)
  expect(table.includes(' over)')).toBe(over)
  if (concurrency && concurrency.set !== concurrency.inForce) {
    const why = concurrency.until ? `feedback, until ${concurrency.until.toISOString()}` : 'stock queue'
    expect(detail).toContain(`${concurrency.set ?? 'none'} declared, ${concurrency.inForce} effective (${why})`)
  }
  if (workers.length > 0) expect(detail).toMatch(/clock err .*\n.* 2\.5ms /)
  // Nothing is held by "—" beside jobs that wait for something.
  if (waiting + delayed > 0) expect(detail).not.toMatch(/^held by +—$/m)
  if (hold) expect(detail).toMatch(new RegExp(`^held by +(limit )?${hold.cause === 'limits' ? '' : hold.cause}`, 'm'))
}

const state = fc.record({
  shape: fc.constantFrom(
    { rate: '10/min', burst: 2, capacity: 6 },
    { rate: '10/min', capacity: 6, concurrency: 10 },
    { capacity: 5, concurrency: 2 },
    { rate: '1000/s', burst: 100, concurrency: 3 },
  ),
  first: fc.constantFrom(0, 3, 9),
  steps: fc.array(fc.constantFrom(...Object.keys(STEPS)), { minLength: 1, maxLength: 9 }),
})

test('status, explain, the meter, the dashboard, metrics and words agree on whatever state a queue is in', {
  timeout: 120_000,
}, async () => {
  const inspector = inspectorOf(redis, shop)
  await fc.assert(
    fc.asyncProperty(state, async ({ shape, first, steps }) => {
      const queue = shop.queue(shape)
      const bench = { queue, taker: new Taker(shop, queue), taken: [] }
      await queue.waitUntilReady()
      // One that has starved for an hour.
      await queue.add('job', {}, { priority: first, timestamp: Date.now() - HOUR_MS })
      for (const step of steps) await STEPS[step]?.(bench)
      await redis.client().sadd(`${prefix}:shaped-queues`, queue.name)
      const views = await viewsOf(queue, inspector)
      expectSame(views)
      expectHold(views)
      expectStarts(views)
      expectWords(views)
    }),
    {
      numRuns: RUNS,
      includeErrorInReport: true,
      examples: [
        // Each was shown wrongly once.
        [
          {
            first: 3,
            shape: { rate: '10/min', capacity: 6, concurrency: 10 },
            steps: ['take', 'fewer at once', 'add'],
          },
        ],
        [
          {
            first: 3,
            shape: { rate: '10/min', burst: 2, capacity: 6 },
            steps: ['take', 'delay that is over', 'take'],
          },
        ],
        [{ first: 3, shape: { rate: '10/min', burst: 2, capacity: 6 }, steps: ['add', 'add', 'less capacity'] }],
        [{ first: 0, shape: { capacity: 5, concurrency: 2 }, steps: ['a stock queue allows fewer', 'a worker tells'] }],
        [{ first: 0, shape: { rate: '10/min', capacity: 6, concurrency: 10 }, steps: ['a stock queue allows any'] }],
        [
          {
            first: 0,
            shape: { capacity: 5, concurrency: 2 },
            steps: ['a stock queue allows more', 'fewer at once', 'a stock queue allows more'],
          },
        ],
        [{ first: 3, shape: { capacity: 5, concurrency: 2 }, steps: ['unimportant', 'important', 'lifo', 'take'] }],
      ],
    },
  )
})
