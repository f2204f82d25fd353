import { beforeAll, describe, expect, test } from 'vitest'
import type { ShapedJob } from '../../../src/index.ts'
import {
  type AuditEntry,
  type HeldMs,
  type HistoryEntry,
  Inspector,
  type QueueStatus,
} from '../../../src/inspect/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { eventsOf, gate, jobs, Workshop } from '../../../test/worker/support.ts'
import { createMetrics } from '../src/index.ts'
import { RunningTotals } from '../src/running-totals.ts'
import { readScrape, sample, samples } from './support/scrape.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const shop = new Workshop(redis)
const NOTHING_HELD: HeldMs = { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 }

let found: QueueStatus
beforeAll(async () => {
  const queue = shop.queue({ rate: '100/s', audit: true })
  await queue.add('job', {})
  const inspector = shop.keep(new Inspector({ connection, prefix }))
  found = (await inspector.status([queue.name]))[0] as QueueStatus
  await shop.close()
})

/** What was found, with other numbers. */
function status(change: Partial<QueueStatus> = {}): QueueStatus {
  return { ...found, heldMs: NOTHING_HELD, ...change }
}

let ids = 0
function entry(change: Record<string, unknown>, kind: HistoryEntry['kind'] = 'feedback'): HistoryEntry {
  ids += 1
  return { id: `${ids}-0`, at: new Date(ids), kind, by: 'test', reason: 'test', change }
}

describe('counters never go back', () => {
  test('when slots are given back, or another clock reads less', () => {
    const totals = new RunningTotals()
    totals.next(status({ departedTotal: 10, heldMs: { ...NOTHING_HELD, rate: 500, pause: 7 } }), [])
    const next = totals.next(status({ departedTotal: 8, heldMs: { ...NOTHING_HELD, rate: 499, pause: 9 } }), [])
    expect(next.departedTotal).toBe(10)
    expect(next.heldMs).toMatchObject({ rate: 500, pause: 9 })
  })

  test('but begin anew with another queue of the name', () => {
    const totals = new RunningTotals()
    totals.next(status({ acceptedTotal: 20, departedTotal: 10, heldMs: { ...NOTHING_HELD, rate: 500 } }), [])
    const next = totals.next(status({ acceptedTotal: 3, departedTotal: 2 }), [])
    expect([next.departedTotal, next.heldMs.rate, next.lostUnits]).toEqual([2, 0, 0])
  })
})

test('slots are lost at the rate in force while the lack of workers holds the head', () => {
  const totals = new RunningTotals()
  const held = (workers: number) => ({ ...NOTHING_HELD, workers })
  expect(totals.next(status({ heldMs: held(5000) }), []).lostUnits).toBe(0)
  expect(totals.next(status({ heldMs: held(5500) }), []).lostUnits).toBe(50)
  expect(totals.next(status({ heldMs: held(6500), rate: '600/min' }), []).lostUnits).toBe(60)
  expect(totals.next(status({ heldMs: held(9500), rate: undefined }), []).lostUnits).toBe(60)
})

test('feedback is counted by source and kind from the first look on, in words that are known', () => {
  const totals = new RunningTotals()
  const first = totals.next(status(), [entry({ source: 'status', kind: 'pause' })])
  expect(first.feedback).toEqual([{ source: 'status', kind: 'pause', count: 0 }])
  const news = [
    entry({ source: 'status', kind: 'pause' }),
    entry({ source: 'job 42', kind: 'of a tenant' }),
    entry({ source: 'status', kind: 'pause' }),
    entry({ rate: '5/s' }, 'override'),
  ]
  const next = totals.next(status(), news.toReversed())
  expect(next.feedback).toEqual([
    { source: 'status', kind: 'pause', count: 2 },
    { source: 'other', kind: 'other', count: 1 },
  ])
  expect(totals.after).toBe(news.at(-1)?.id)
  expect(totals.next(status(), []).feedback).toEqual(next.feedback)
})

describe('departures that are kept', () => {
  const departures = (...slotsMs: number[]): AuditEntry[] =>
    slotsMs.map((ms, i) => ({
      ...{ jobId: `${i}`, slotUs: ms * 1000, cost: 1, intervalUs: 10_000, burst: 1, limits: {} },
      ...{ grantedUs: ms * 1000, heldUs: 0 },
    }))

  test('are held against the bound, and each worst window counts once', () => {
    const totals = new RunningTotals()
    expect(totals.next(status({ departedTotal: 3 }), [], departures(0, 10, 20)).boundViolations).toBe(0)
    const broken = departures(0, 10, 20, 25)
    expect(totals.next(status({ departedTotal: 4 }), [], broken).boundViolations).toBe(1)
    expect(totals.next(status({ departedTotal: 5 }), [], [...broken, ...departures(40)]).boundViolations).toBe(1)
    const again = [...departures(40, 50), ...departures(52)]
    expect(totals.next(status({ departedTotal: 6 }), [], again).boundViolations).toBe(2)
  })

  test('are not held against what was in force before and after an override that began and ended between two', () => {
    const override = { ...entry({ rate: '1000/s' }, 'override'), at: new Date(5), until: new Date(6) }
    const across = departures(0, 7)
    expect(new RunningTotals().next(status({ departedTotal: 2 }), [override], across).boundViolations).toBe(0)
    expect(new RunningTotals().next(status({ departedTotal: 2 }), [], across).boundViolations).toBe(1)
  })

  test.each<[string, Partial<QueueStatus>, boolean]>([
    ['at once after a minute', { at: new Date(60_000), departedTotal: 11 }, true],
    ['not before', { at: new Date(59_999), departedTotal: 11 }, false],
    ['when half of them are new', { at: new Date(1), departedTotal: 5010 }, true],
    ['not without a new one', { at: new Date(90_000), departedTotal: 10 }, false],
    ['not where they are not kept', { at: new Date(90_000), departedTotal: 11, shape: undefined }, false],
  ])('are looked at %s', (_, change, isDue) => {
    const totals = new RunningTotals()
    expect(found.shape?.audit).toBe(10_000)
    totals.next(status({ at: new Date(0), departedTotal: 10 }), [], [])
    expect(totals.isAuditDue(status(change))).toBe(isDue)
  })

  test('are nothing to tell where the shape does not ask for them', () => {
    expect(new RunningTotals().next(status({ shape: undefined }), []).boundViolations).toBeUndefined()
  })
})

test('what jobs say of the other side, and departures that are kept, are in the scrape', async () => {
  const queue = shop.queue({ rate: '200/s', audit: 50 })
  const say = gate()
  const process = async (job: ShapedJob) => {
    if (job.name !== 'job0') return
    await say.opened
    await job.feedback({ kind: 'pause', forMs: 1, reason: 'busy' })
  }
  const metrics = shop.keep(createMetrics({ connection, prefix, queues: [queue.name] }))
  const scrape = async () => readScrape(await metrics.text())
  await queue.addBulk(jobs(5))
  const worker = shop.worker(queue, process as never, { concurrency: 5 })
  const done = eventsOf('completed', worker)
  await done.reach(4)
  expect(samples(await scrape(), 'sluice_feedback_changes_total')).toEqual([])
  say.open()
  await done.reach(5)
  const labels = { queue: queue.name, kind: 'pause', source: 'user' }
  await expect.poll(async () => sample(await scrape(), 'sluice_feedback_changes_total', labels)).toBe(1)
  const violations = { queue: queue.name, check: 'bound' }
  expect(sample(await scrape(), 'sluice_conformance_violations_total', violations)).toBe(0)

  const broken = JSON.stringify(['a', 'b'].map((id) => [id, '4102444800000000', '1', '5000', '1', 0]))
  await redis.client().xadd(queue.toKey('meta:audit'), '*', 'n', broken)
  await queue.addBulk(jobs(25))
  await done.reach(30)
  expect(sample(await scrape(), 'sluice_conformance_violations_total', violations)).toBe(1)
})
