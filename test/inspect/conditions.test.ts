import { beforeAll, expect, test } from 'vitest'
import { ShapedQueue } from '../../src/index.ts'
import { conditionsOf, urgencyOf } from '../../src/inspect/conditions.ts'
import { type Condition, Inspector, type QueueStatus, type WorkerStatus } from '../../src/inspect/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { inspectorOf, statusOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

let quiet: QueueStatus
const names = (conditions: readonly Condition[]) => conditions.map(({ name }) => name)
const ago = (ms: number) => new Date(quiet.at.getTime() - ms)
/** What is found in a queue that is otherwise as usual. */
const found = (facts: Partial<QueueStatus>) => conditionsOf({ ...quiet, ...facts })
const only = (facts: Partial<QueueStatus>) => {
  const conditions = found(facts)
  expect(conditions).toHaveLength(1)
  return conditions[0] as Condition
}
const working = { workers: [{ concurrency: 5, running: 3, held: 1, state: 'running' } as WorkerStatus] }
const waiting = { ...working, waiting: 7, depth: 7 }
const groups = { waiting: 1, limited: 2, maxed: 0, paused: 3 }

beforeAll(async () => {
  const { connection, prefix } = redis
  const queue = new ShapedQueue('a queue', { connection, prefix, shape: { rate: '1/h', capacity: 1000 } })
  await queue.getShape()
  const inspector = new Inspector({ connection, prefix })
  quiet = await statusOf(inspector, 'a queue')
  await Promise.all([queue.close(), inspector.close()])
})

test('a queue that is as usual has no conditions', () => {
  expect([quiet.conditions, quiet.areAllHeld, urgencyOf([])]).toEqual([[], false, 0])
  expect(found(waiting)).toEqual([])
})

test('attempts that fail, with their share and the most frequent reason', () => {
  const failing = { attempts: 1250, failedAttempts: 625, share: 0.5, failed: 1 }
  expect(
    only({
      failing: {
        ...failing,
        reasons: [
          ['no route', 620],
          ['gone', 5],
        ],
      },
    }),
  ).toMatchObject({
    ...{ name: 'Failing', level: 'error', next: "sluice jobs failed 'a queue' has the jobs that failed, and why" },
    text: '50% failed: no route (of 1,250 attempts in 5 min, 1 job permanently)',
  })
  expect(only({ failing: { ...failing, failed: 0, reasons: [] } }).text).toBe('50% failed (of 1,250 attempts in 5 min)')
})

test('starts past the meter, with the clients that may have made them', () => {
  const bypass = { at: ago(1), jobId: '1', perSecond: 6.71 }
  const clients = [
    { name: 'old', address: '10.0.0.7:5' },
    { name: '', address: '10.0.0.8:6' },
  ]
  expect(only({ bypass: { ...bypass, clients } })).toMatchObject({
    ...{ name: 'Bypassed', level: 'error' },
    text: '6.7/s start past the meter, by "old" at 10.0.0.7:5 or 10.0.0.8:6: the rate may be exceeded',
    next: 'make it a ShapedWorker, or give its Worker createShapedBackend()',
  })
  expect(only({ bypass: { ...bypass, perSecond: undefined, clients: [] } })).toMatchObject({
    text: 'jobs start past the meter: the rate may be exceeded',
    next: expect.stringMatching(/^sluice doctor 'a queue' looks for the client; make it/),
  })
  const under = (shape: object) =>
    only({ bypass: { ...bypass, clients: [] }, shape: { ...quiet.shape, ...shape } as never }).text
  expect(under({ rate: undefined, limits: [] })).toMatch(/: its limits may be exceeded$/)
  expect(under({ rate: undefined, groups: {} })).toMatch(/: its groups get no fair turns$/)
})

test('jobs that wait while no worker has reported', () => {
  expect(only({ waiting: 7 })).toMatchObject({
    name: 'No worker',
    level: 'error',
    text: '7 jobs wait, and no worker has reported',
  })
  expect(only({ waiting: 1 }).text).toMatch(/^1 job waits,/)
  expect(only({ waiting: 0, nextDueAt: ago(1) }).text).toMatch(/^a delayed job is due,/)
  expect(found({ waiting: 0, nextDueAt: ago(-1) })).toEqual([])
  // Workers of a stock queue do not report.
  expect(found({ waiting: 7, shape: undefined })).toEqual([])
  // All of them are of groups that are held; then one is not.
  expect(names(found({ waiting: 7, grouped: 7, groups: { ...groups, waiting: 0 } }))).toEqual(['Groups held'])
  expect(names(found({ waiting: 7, grouped: 7, groups }))).toEqual(['No worker', 'Groups held'])
})

test('workers that report and take nothing for a minute', () => {
  const heldFor = (ms: number) => ({ ...waiting, hold: { cause: 'workers' as const, since: ago(ms) } })
  expect(found(heldFor(59_999))).toEqual([])
  expect(only(heldFor(60_000))).toMatchObject({
    ...{ name: 'Not taken', level: 'error' },
    text: '1 worker, 4 of 5 places taken; the next job waits 1m',
    next: "sluice top 'a queue' shows which worker hangs: restart it",
  })
})

test('a full queue says what becomes of new jobs, and is meant so where nothing is refused', () => {
  const full = (shape: object) => only({ ...waiting, depth: 1000, shape: { ...quiet.shape, ...shape } as never })
  expect(found({ ...waiting, depth: 999 })).toEqual([])
  expect(full({})).toMatchObject({ name: 'Full', level: 'warning', text: 'new jobs are refused' })
  expect(full({ overflow: 'drop-oldest' }).text).toBe('each new job drops the oldest')
  const shadow = found({ ...waiting, depth: 1000, shape: { ...quiet.shape, mode: 'shadow' } as never })
  expect(shadow).toMatchObject([
    { name: 'Full', level: 'note' },
    { name: 'Shadow', level: 'note' },
  ])
})

test('a queue that refused a job lately stays full while workers free a place for a moment', () => {
  const refused = (depth: number, agoMs: number) => found({ ...waiting, depth, lastRefusedAt: ago(agoMs) })
  expect(names(refused(999, 29_999))).toEqual(['Full'])
  expect(names(refused(900, 0))).toEqual(['Full'])
  expect(refused(899, 0)).toEqual([])
  expect(refused(999, 30_000)).toEqual([])
})

test('a full queue names the group that holds most', () => {
  const queue = { ...waiting, depth: 1000, largestGroup: { id: 'acme', waiting: 960 } }
  expect(only(queue).text).toBe('new jobs are refused; group acme holds 960 of 1000 places')
})

test('an old job that others overtake', () => {
  expect(found({ ...waiting, headAgeMs: 3000, oldestAgeMs: 59_000 })).toEqual([])
  expect(found({ ...waiting, headAgeMs: 30_000, oldestAgeMs: 61_000 })).toEqual([])
  expect(only({ ...waiting, headAgeMs: 3000, oldestAgeMs: 61_000 })).toMatchObject({
    ...{ name: 'Starving', level: 'warning' },
    text: 'the oldest job waits for 1m1s, the next one for 3s',
  })
  const counts = { waiting: 1, limited: 0, maxed: 0, paused: 0 }
  const named = (groups: object) =>
    found({ ...waiting, headAgeMs: 3000, oldestAgeMs: 61_000, groups: { ...counts, ...groups } }).map(
      ({ name }) => name,
    )
  expect(named({})).toEqual(['Starving'])
  // It may be that of a group that is held.
  for (const held of [{ limited: 1 }, { maxed: 1 }, { paused: 1 }]) expect(named(held)).not.toContain('Starving')
})

test('groups that are paused need a look, those at their running jobs do not', () => {
  const next = (status: string) => `sluice group list 'a queue' --status ${status}`
  const text = '3 groups paused, 2 groups held by their rate or limits'
  expect(only({ ...waiting, groups })).toMatchObject({ level: 'warning', text, next: next('paused') })
  expect(only({ ...waiting, groups: { ...groups, paused: 0, maxed: 1 } })).toMatchObject({
    level: 'note',
    next: next('maxed'),
  })
  expect(found({ ...waiting, groups: { ...groups, paused: 0 } })).toEqual([])
})

test('a pause without an end needs a look, one with an end does not', () => {
  expect(only({ paused: true })).toMatchObject({ name: 'Paused', level: 'warning', text: 'until it is resumed' })
  const timed = { pausedUntil: ago(-90_000), pauseReason: 'holidays' }
  expect(only(timed)).toMatchObject({ level: 'note', text: 'for another 1m30s: holidays' })
})

test('running jobs that keep the next one out for a minute', () => {
  const hold = { cause: 'concurrency' as const, since: ago(0) }
  const concurrency = { set: 5, inForce: 5, cause: 'declared' as const, until: undefined }
  const heldFor = (headAgeMs: number) => found({ ...waiting, active: 5, concurrency, hold, headAgeMs })
  expect(heldFor(59_999)).toEqual([])
  expect(heldFor(60_000)).toMatchObject([
    { name: 'At concurrency', level: 'warning', text: '5 of 5 run, the next waits 1m' },
  ])
})

test('feedback of the downstream, by its rate, its concurrency or its probe', () => {
  const feedback = { rates: {}, concurrency: 1, probing: true, last: undefined }
  const concurrency = { set: 5, inForce: 1, cause: 'feedback' as const, until: ago(0) }
  for (const facts of [{ feedback }, { cause: 'feedback' as const }, { concurrency }]) {
    expect(only(facts)).toMatchObject({ name: 'Feedback', level: 'warning', text: 'slowed by the downstream' })
  }
})

test('an override says who set it, how long ago and until when; one without an end needs a look', () => {
  const override = { value: 1, by: 'ada', reason: '', setAt: ago(3 * 86_400_000) }
  const shape = (overrides: object) => ({ shape: { ...quiet.shape, overrides } as never })
  expect(only(shape({ capacity: override }))).toMatchObject({
    ...{ name: 'Override', level: 'warning', text: 'capacity by ada 3d ago, has no end' },
    next: "sluice shape clear 'a queue' capacity --reason '…' ends it",
  })
  const timed = { ...override, reason: 'a sale', until: ago(-3_600_000) }
  expect(only(shape({ rate: timed }))).toMatchObject({
    ...{ level: 'note', text: 'rate by ada 3d ago, ends in 1h: a sale' },
  })
  expect(only(shape({ rate: timed, capacity: override })).next).toContain(' capacity --reason')
})

test('parts that did not answer', () => {
  expect(only({ unread: ['queue'] })).toMatchObject({ name: 'Unread', level: 'error' })
  expect(only({ unread: ['head', 2] }).text).toBe('its head, shard 2 did not answer: the numbers lack what is there')
})

test('what needs a look sooner weighs more than all that comes after it', () => {
  const facts = { waiting: 7, depth: 1000, headAgeMs: 1, oldestAgeMs: 61_000, paused: true, cause: 'feedback' } as const
  const [plain, grouped] = [found(facts), found({ ...facts, groups })]
  expect(names(plain)).toEqual(['No worker', 'Full', 'Starving', 'Paused', 'Feedback'])
  expect(names(grouped)).toEqual(['No worker', 'Full', 'Groups held', 'Paused', 'Feedback'])
  for (const all of [plain, grouped]) {
    for (let i = 0; i < all.length; i++) expect(all[i]?.weight).toBeGreaterThan(urgencyOf(all.slice(i + 1)))
  }
})

test('a job with a priority and no group needs a worker, though all groups are held', async () => {
  const queue = shop.queueNamed('held', { groups: {} })
  const look = async () => {
    const { waiting, grouped, areAllHeld, conditions } = await statusOf(inspectorOf(redis, shop), 'held')
    return [waiting, grouped, areAllHeld, names(conditions)]
  }
  await queue.add('job', {}, { group: { id: 'acme' } })
  await queue.pauseGroup('acme', { by: 'ada', reason: 'unpaid' })
  expect(await look()).toEqual([1, 1, true, ['Groups held']])
  await queue.add('job', {}, { priority: 5 })
  expect(await look()).toEqual([2, 1, false, ['No worker', 'Groups held']])
})

test('a worker that finds only jobs of paused groups is known for as long as any idle one', async () => {
  const queue = shop.queue({ rate: '100/s', groups: {} })
  await queue.pauseGroup('acme', { by: 'jonas', reason: 'unpaid' })
  const twoMinutesAgo = Date.now() - 120_000
  await queue.add('job', {}, { group: { id: 'acme' }, timestamp: twoMinutesAgo })
  const row = { seen: twoMinutesAgo, host: 'a', pid: 1, running: 0, held: 0 }
  await redis.client().hset(queue.toKey('meta:workers'), 'w1', JSON.stringify(row))
  const inspector = inspectorOf(redis, shop)
  expect(await statusOf(inspector, queue.name)).toMatchObject({ workers: [{ id: 'w1' }], hold: { group: 'acme' } })
  await queue.resumeGroup('acme')
  expect(await statusOf(inspector, queue.name)).toMatchObject({ workers: [], hold: { cause: 'workers' } })
})
