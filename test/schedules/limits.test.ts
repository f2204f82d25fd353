import { expect, test } from 'vitest'
import { holdText } from '../../packages/cli/src/queue-text.ts'
import { audit } from '../../src/audit/audit.ts'
import { auditLimit } from '../../src/audit/limit-audit.ts'
import { InvalidLimitError, type QueueLimit } from '../../src/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'
import { closedFor, zone } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const who = { by: 'test', reason: 'quiet hours' }

test('quiet hours of one customer hold its jobs alone, and all views say until when', async () => {
  const { rate, opensAt } = closedFor(3)
  const limits = [{ name: 'quiet', by: 'group', rate: '1000/s' }] as const
  const queue = shop.queue({ limits, groups: {}, audit: 100 })
  await queue.setLimit('quiet', 'acme', { rate }, who)
  const job = await queue.add('job', {}, { group: { id: 'acme' } })
  await queue.add('job', {}, { group: { id: 'other' } })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  const inspector = inspectorOf(redis, shop)
  const explained = (await inspector.explain(queue.name, job.id as string))!
  const closed = { until: opensAt, timeZone: zone }
  expect(explained).toMatchObject({ hold: { cause: 'limits', limit: 'quiet', closed }, startsAt: opensAt })
  const clock = { weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone: zone } as const
  const text = opensAt.toLocaleString('en-GB', clock).replace(',', '')
  expect(holdText(explained.hold!)).toBe(`limit quiet of group acme, closed until ${text} ${zone}`)
  expect(await inspector.status([queue.name])).toMatchObject([{ hold: { limit: 'quiet', group: 'acme', closed } }])
  const state = await queue.getLimit('quiet', 'acme')
  expect(state.inForce).toEqual({ rate, burst: 1 })
  expect(Math.abs((state.retryAfterMs as number) - (opensAt.getTime() - Date.now()))).toBeLessThan(1000)
  await queue.clearLimit('quiet', 'acme', who)
  await departed.reach(2)
  expect(audit(await inspector.audit(queue.name), { limits }).broken).toBe(false)
})

test('a limit of the queue, and one of a tier, are closed while their schedules are', async () => {
  const { rate, opensAt } = closedFor(2)
  const queue = shop.queue({ limits: [{ name: 'night', algorithm: 'token-bucket', rate, unit: 'calls' }] })
  const offer = await queue.offer('job', {}, { costs: { calls: 1 } })
  expect(offer).toMatchObject({ accepted: true, startsAt: opensAt })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await queue.offer('job', {}, { costs: { calls: 0 }, priority: 1 })
  await expect
    .poll(async () => (await inspectorOf(redis, shop).status([queue.name]))[0])
    .toMatchObject({ hold: { cause: 'limits', limit: 'night', closed: { until: opensAt, timeZone: zone } } })
  expect(departed.all).toHaveLength(0)
  await queue.setShape({ limits: [{ name: 'night', algorithm: 'token-bucket', rate: '1/h', unit: 'calls' }] }, who)
  await departed.reach(2)

  const limits = [{ name: 'tiered', by: 'group', rate: '100/s', tiers: { free: { rate } } }] as const
  const tiered = shop.queue({ limits, groups: {} })
  await tiered.add('job', {}, { group: { id: 'a' }, tier: 'free' })
  await tiered.add('job', {}, { group: { id: 'b' } })
  const ofTiers = departuresOf(shop.worker(tiered, async () => {}))
  await ofTiers.reach(1)
  expect(ofTiers.all).toHaveLength(1)
  await tiered.setLimit('tiered', 'a', { rate: '100/s' }, who)
  await ofTiers.reach(2)
})

test('what was charged while a schedule was closed is owed when another one takes its place', async () => {
  const { rate } = closedFor(2)
  for (const by of [undefined, 'group'] as const) {
    const limitOf = (of: NonNullable<QueueLimit['rate']>): QueueLimit => ({
      name: 'l',
      rate: of,
      burst: 2,
      ...(by && { by }),
    })
    const queue = shop.queue({ limits: [limitOf('2/h')], groups: {} })
    const job = (id: string) => queue.add('job', {}, { jobId: id, group: { id: 'a' } })
    await job('one')
    await job('two')
    const departed = departuresOf(shop.worker(queue, async () => {}))
    await departed.reach(2)
    // Both units are owed: closed for a moment, nothing of them comes back.
    await queue.setShape({ limits: [limitOf(rate)] }, who)
    await queue.setShape({ limits: [limitOf('2/h')] }, who)
    await job('three')
    const { startsAt } = (await inspectorOf(redis, shop).explain(queue.name, 'three'))!
    const waitMs = (startsAt as Date).getTime() - Date.now()
    expect(waitMs).toBeGreaterThan(1_700_000)
    expect(waitMs).toBeLessThan(1_801_000)
  }
})

test('an audit finds what left while the schedule of its limit was closed', () => {
  const limit: QueueLimit = {
    ...{ name: 'l', burst: 1, rate: { schedule: [{ from: '08:00', to: '20:00', rate: '1/s' }, { rate: 0 }] } },
  }
  const start = Date.parse('2026-11-30T07:00:00Z') * 1000
  const at = (...seconds: number[]) =>
    auditLimit(
      limit,
      seconds.map((s) => ({ us: start + s * 1_000_000, cost: 1 })),
    )
  expect(at(3600, 3601, 3602, 46_799, 90_000).broken).toBe(false)
  expect(at(3600, 3600.9)).toMatchObject({ broken: true, worst: { fromUs: start + 3_600_000_000, cost: 2 } })
  expect(at(46_799.5, 46_900).broken).toBe(true)
})

const rate = { schedule: [{ from: '08:00', rate: '5/s' }, { rate: 0 }] } as const
test.each<[object, RegExp]>([
  [{ algorithm: 'fixed-window', rate }, /a rate with a schedule needs algorithm gcra, .*; got fixed-window/],
  [{ algorithm: 'sliding-window-log', rate }, /got sliding-window-log/],
  [{ algorithm: 'concurrency', rate }, /a limit of concurrency needs concurrency/],
  [{ rate, shared: true }, /a rate with a schedule needs a limit of one queue/],
  [{ by: 'group', rate: '5/s', tiers: { a: { rate: { schedule: [] } } } }, /rate.schedule must be a list of 1 to/],
])('%j is refused', (rule, message) => {
  const encode = () => encodeQueueLimits([{ name: 'l', ...rule }])
  expect(encode).toThrow(message)
})

test('a limiter has no schedule', () => {
  const create = () => createLimiter(redis.client(), { name: 'l', rate })
  expect(create).toThrow(InvalidLimitError)
  expect(create).toThrow(
    'a rate with a schedule needs a limit of one queue: a limiter and a shared limit have a fixed rate',
  )
})
