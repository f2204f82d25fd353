import { expect, test } from 'vitest'
import { InvalidLimitError, type QueueLimit } from '../../src/index.ts'
import { completeRule, encodeRule, type SpreadRule } from '../../src/limits/definition.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { inspectorOf } from '../inspect/support.ts'
import { createModel } from '../limits/model/model.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const who = { by: 'test', reason: 'quota' }
const HOUR_US = 3_600_000_000
/** Midnight in Berlin. */
const DAY_US = Date.parse('2026-11-30T00:00:00+01:00') * 1000

const RULE: SpreadRule = {
  ...{ rate: '5000/day', spread: 'even', within: '08:00-20:00', timeZone: 'Europe/Berlin' },
}

/** Departures of a day, each as soon as it may, of jobs that come at these times; by the hour on the clock. */
function byHour(rule: SpreadRule, comes: readonly number[]): number[] {
  const model = createModel(encodeRule(completeRule(rule)))
  const hours = Array.from({ length: 48 }, () => 0)
  let us = DAY_US
  for (const at of comes) {
    us = Math.max(us, at)
    model.now = us
    us += model.earliest(1)
    model.now = us
    model.commit(1, 0, 0)
    const hour = Math.floor((us - DAY_US) / HOUR_US)
    if (hour < hours.length) hours[hour]! += 1
  }
  return hours
}

test('5,000 a day over twelve hours leave evenly, also where jobs come in bursts, and never more', () => {
  // 1,000 at a time, before it opens and each two hours.
  const comes = Array.from({ length: 6000 }, (_, i) => DAY_US + (6 + 2 * Math.floor(i / 1000)) * HOUR_US)
  const hours = byHour(RULE, comes)
  expect(hours.slice(0, 24).reduce((sum, one) => sum + one)).toBe(5000)
  expect([...hours.slice(0, 8), ...hours.slice(20, 32)].every((one) => one === 0)).toBe(true)
  for (const one of hours.slice(8, 20)) expect(Math.abs(one / (5000 / 12) - 1)).toBeLessThan(0.02)
})

test('what an idle stretch leaves is spread over the rest of the window, and none of it is left for the next one', () => {
  const comes = [
    ...Array.from({ length: 1000 }, () => DAY_US + 14 * HOUR_US),
    ...Array.from({ length: 9000 }, () => DAY_US + 16 * HOUR_US),
  ]
  const hours = byHour(RULE, comes)
  expect(hours.slice(0, 24).reduce((sum, one) => sum + one)).toBe(5000)
  // 5,000 over six hours; then all of the next day, as on any other.
  for (const one of hours.slice(16, 20))
    expect(Math.abs(one / ((5000 - hours[14]! - hours[15]!) / 4) - 1)).toBeLessThan(0.02)
  for (const one of hours.slice(32, 44)) expect(Math.abs(one / (4000 / 12) - 1)).toBeLessThan(0.3)
})

test('a least rate is kept until the quota is used up, and a burst leaves at once', () => {
  const hours = byHour(
    { ...RULE, minRate: '1000/h', burst: 10 },
    Array.from({ length: 5000 }, () => DAY_US),
  )
  expect(hours.slice(8, 14)).toEqual([1009, 1000, 1000, 1000, 991, 0])
})

test('a quota of each customer is spread, again when it changes or is charged', async () => {
  const limits = [{ name: 'daily', by: 'group', rate: '1000/day', spread: 'even', minRate: '1/min' }] as const
  const queue = shop.queue({ limits, groups: {} })
  const of = (id: string) => ({ group: { id } })
  for (const id of ['a', 'a', 'b']) await queue.add('job', {}, of(id))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(2)
  const end = new Date().setUTCHours(24, 0, 0, 0)
  const starts = async () => {
    const [job] = await queue.getJobs(['prioritized'])
    return (
      ((await inspectorOf(redis, shop).explain(queue.name, job?.id as string))?.startsAt?.getTime() ?? 0) - Date.now()
    )
  }
  const even = (units: number) => Math.min(60_000, (end - Date.now()) / units)
  const about = async (ms: number) => expect(Math.abs((await starts()) - ms)).toBeLessThan(3000)
  await about(even(1000))
  await queue.chargeLimit('daily', 'a', 500)
  await about(even(500))
  await queue.setLimit('daily', 'a', { rate: '1000000/day' }, who)
  await departed.reach(3)
  expect(await queue.getLimit('daily', 'a')).toMatchObject({ remaining: 999_498, inForce: { rate: '1000000/day' } })
})

test.each<[object, RegExp]>([
  [
    { rate: '5/h', spread: 'even' },
    /needs a fixed-window with a rate per day, week or month, as '5000\/day'; got fixed-window/,
  ],
  [{ rate: '5/day', spread: 'even', algorithm: 'gcra' }, /got gcra/],
  [{ rate: '5/day', spread: 'even', within: '20:00-08:00' }, /from must be before its to/],
  [{ rate: '5/day', spread: 'even', within: 'noon' }, /within must be hours such as '08:00-20:00'.*got "noon"/],
  [{ rate: '5/day', spread: 'even', shared: true }, /spread: 'even' needs a limit of one queue/],
  [{ rate: '5/day', spread: 'key' }, /spread of limit "l" must be 'even'.*got "key"/],
  [{ rate: '5/day', within: '08:00-20:00' }, /within is about a quota that is spread: set spread: 'even'/],
  [{ rate: '5/day', spread: 'even', minRate: '0/s' }, /rate must be .*got '0\/s'/],
])('%j is refused', (rule, message) => {
  expect(() => encodeQueueLimits([{ name: 'l', ...rule } as QueueLimit])).toThrow(message)
})

test('a limiter spreads no quota', () => {
  const create = () => createLimiter(redis.client(), { name: 'l', rate: '5/day', spread: 'even' })
  expect(create).toThrow(InvalidLimitError)
})
