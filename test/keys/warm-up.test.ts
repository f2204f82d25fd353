import { afterAll, expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import { warmUpPlans } from '../../src/egress/index.ts'
import { InvalidInputError, InvalidLimitError } from '../../src/errors.ts'
import { applyFeedback, encodeFeedbackRequest } from '../../src/feedback/request.ts'
import type { LimitOverride, QueueLimit, WarmUp } from '../../src/index.ts'
import { decodeQueueLimits, encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { quotasOf } from '../../src/limits/warm-up.ts'
import { QueueLimitValues } from '../../src/queue/limits.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

// Warm-up plans: the scripts of lua/ at times that the test says.
const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())
const values = new QueueLimitValues('held', held.backend.store)
const STORIES = caseCount(6, 'WARM_UP_STORIES')

const DAY_US = 86_400_000_000
/** 00:00 UTC on a Tuesday. */
const MIDNIGHT_US = Date.UTC(2026, 0, 6) * 1000
const WHO = { by: 'ops', reason: 'a test' }
const PLAN = [2, 3, 5, 8]

const warmUp = (more: Partial<WarmUp> = {}): WarmUp => ({
  plan: PLAN.map((quota, i) => ({ day: i + 1, quota })),
  ...more,
})
const limit = (more: Partial<QueueLimit> = {}): QueueLimit => ({
  name: 'warm-up',
  by: 'group',
  warmUp: warmUp(),
  ...more,
})

async function reset(more: Partial<QueueLimit> = {}): Promise<void> {
  await held.reset({ groups: {}, limits: [limit(more)] })
  await on(0)
}

/** Noon of a day after the first. */
const on = (day: number, hour = 12) => held.advanceTo(MIDNIGHT_US + day * DAY_US + hour * 3_600_000_000)

async function add(count: number, group = 'a'): Promise<void> {
  for (let i = 0; i < count; i++) await held.add({ group: { id: group } })
}

/** How many leave now. */
async function leave(): Promise<number> {
  let left = 0
  for (let granted = 1; granted > 0; left += granted) granted = (await held.depart(50)).grants.length
  return left
}

/** What a story knows of a value: when its day began and its last job left, µs, and whether its day was set since. */
interface Known {
  day: number
  beganUs: number
  lastUs: number
  /** On the date of the last one, and since its day began. */
  left: number
  started: number
  refused: number
  waits: number
  held: boolean
  set: boolean
}

const FRESH: Known = {
  day: 1,
  beganUs: 0,
  lastUs: 0,
  left: 0,
  started: 0,
  refused: 0,
  waits: 0,
  held: false,
  set: false,
}

const state = async (group = 'a') => {
  const { inForce, overrides, remaining, day, days } = await values.state('warm-up', group)
  expect(days).toBeGreaterThan(0)
  if (overrides.day) expect(day).toBe(overrides.day.value)
  return {
    rate: inForce.rate,
    day: overrides.day?.value,
    reason: overrides.day?.reason,
    by: overrides.day?.by,
    remaining,
  }
}

/** Of the refusal only that it is counted matters here: what it holds is let go. */
async function refuse(group: string): Promise<void> {
  const slow = { kind: 'slow', factor: 0.5, scope: 'group', source: 'user', reason: '421' } as never
  const oks = { count: 0, lastUs: undefined, agoMs: undefined } as never
  const request = { found: [{ feedback: slow }], sentUs: held.nowUs, by: 'w', adapt: undefined, oks: 0 }
  await applyFeedback(held.backend.store, encodeFeedbackRequest({ ...request, group, calls: oks } as never))
  await held.backend.store.changeGroup(group, { limited: { clear: true } }, WHO)
}

test('each value has the quota of its own day, of which days without departures are none', async () => {
  await reset()
  await add(30)
  expect(await leave()).toBe(2)
  expect(await state()).toEqual({ rate: '2/day', day: 1, reason: 'day 1 of 4', by: 'warm-up', remaining: 0 })
  await on(1)
  expect(await state()).toMatchObject({ rate: '3/day', day: 2, reason: 'day 2 of 4', remaining: 3 })
  await add(30, 'b')
  expect(await leave()).toBe(3 + 2)
  await on(1, 20)
  expect(await leave()).toBe(0)
  // Nobody asked for five days.
  await on(6)
  expect(await leave()).toBe(5 + 3)
  await on(7)
  expect(await leave()).toBe(8 + 5)
  await on(8)
  expect(await leave()).toBe(8 + 8)
  expect(await state()).toMatchObject({ rate: '8/day', day: 4, reason: 'day 4 of 4' })
})

test('days are those of the time zone, and jobs leave at its midnight', async () => {
  await reset({ timeZone: 'Asia/Tokyo' })
  await add(6)
  const [, , third, , , sixth] = await held.drain(10, 0)
  expect([third, sixth].map((one) => new Date((one?.slotUs ?? 0) / 1000).toISOString())).toEqual([
    '2026-01-06T15:00:00.000Z',
    '2026-01-07T15:00:00.000Z',
  ])
})

test('the quota of each day of a plan is spread over its open hours', async () => {
  await reset({ spread: 'even', within: '08:00-20:00' })
  await on(0, 8)
  await add(2 + 3)
  const hours = (await held.drain(10, 0)).map(({ slotUs }) => (slotUs - MIDNIGHT_US) / 3_600_000_000)
  expect(hours.map((hour) => Math.round(hour * 1000) / 1000)).toEqual([8, 14, 24 + 8, 24 + 12, 24 + 16])
})

test('what is granted ahead of midnight is of the next day, and its quota is not exceeded', async () => {
  await reset()
  await add(30)
  await add(30, 'b')
  expect(await leave()).toBe(4)
  const midnight = MIDNIGHT_US + DAY_US
  await held.advanceTo(midnight - 30_000)
  for (const worker of ['w', 'x', 'y', 'w', 'x']) {
    const { grants } = await held.departAs(worker, { jobs: 2, horizonUs: 50_000, longestHorizonUs: 50_000 })
    expect(grants.every(({ slotUs }) => slotUs === midnight)).toBe(true)
  }
  await on(1)
  expect(await leave()).toBe(0)
  expect(await state()).toMatchObject({ day: 2, remaining: 0 })
  expect(await state('b')).toMatchObject({ day: 2, remaining: 0 })
  await on(2)
  expect(await leave()).toBe(10)
})

test('a last quota of null lifts the limit', async () => {
  await reset({
    warmUp: {
      plan: [
        { day: 1, quota: 2 },
        { day: 3, quota: null },
      ],
    },
  })
  await add(50)
  expect(await leave()).toBe(2)
  await on(1)
  expect(await leave()).toBe(2)
  await on(2)
  expect(await leave()).toBe(46)
  expect(await state()).toMatchObject({ rate: undefined, day: 3, remaining: undefined })
  await add(1)
  await on(3)
  expect(await leave()).toBe(1)
})

test('a day of which too much was refused is repeated, and the history says so', async () => {
  await reset({ warmUp: warmUp({ maxRefused: 0.5 }) })
  await add(40)
  await add(40, 'b')
  expect(await leave()).toBe(4)
  await refuse('a')
  await on(1)
  expect(await state()).toMatchObject({ rate: '2/day', day: 1, reason: 'day 1 of 4, again: 50 % were refused' })
  expect(await leave()).toBe(2 + 3)
  const history = await client.xrevrange(`${held.base}meta:history`, '+', '-', 'COUNT', 1)
  expect(history[0]?.[1]).toEqual(expect.arrayContaining(['limit', 'warm-up', 'day 1 of 4, again: 50 % were refused']))
  await on(2)
  // A refusal of three is less.
  expect(await leave()).toBe(3 + 5)
  await refuse('a')
  await on(3)
  expect(await leave()).toBeGreaterThanOrEqual(5)
  expect(await state()).toMatchObject({ day: 3 })
})

test('a rate that is set holds the plan, a day that is set is the next one, and all is reset by clearing it', async () => {
  await reset()
  await add(90)
  expect(await leave()).toBe(2)
  await values.set('warm-up', 'a', { rate: '1/day' }, WHO)
  await on(1)
  expect(await leave()).toBe(1)
  expect(await state()).toMatchObject({ rate: '1/day', day: 1, reason: 'day 1 of 4, held' })
  await values.clear('warm-up', 'a', ['rate'], WHO)
  expect(await leave()).toBe(1)
  await on(2)
  expect(await leave()).toBe(3)
  const set = { rate: '5/day', day: 3, by: 'ops', reason: 'a test' }
  await values.set('warm-up', 'a', { day: 3 }, WHO)
  expect(await state()).toMatchObject(set)
  expect(await leave()).toBe(2)
  expect(await state()).toMatchObject(set)
  await on(3)
  expect(await state()).toMatchObject({ day: 4, by: 'warm-up', reason: 'day 4 of 4' })
  expect(await leave()).toBe(8)
  await values.clear('warm-up', 'a', [], WHO)
  await on(4)
  expect(await leave()).toBe(2)
})

test('a plan that is held stays at its day and quota until its hold is cleared', async () => {
  await reset()
  await add(90)
  expect(await leave()).toBe(2)
  await values.set('warm-up', 'a', { held: true }, WHO)
  await on(1)
  expect(await leave()).toBe(2)
  expect(await state()).toMatchObject({ rate: '2/day', day: 1, reason: 'day 1 of 4, held' })
  expect(await values.state('warm-up', 'a')).toMatchObject({
    inForce: { rate: '2/day', held: true },
    overrides: { held: { value: true, by: 'ops', reason: 'a test' } },
  })
  await values.clear('warm-up', 'a', ['held'], WHO)
  await on(2)
  expect(await leave()).toBe(3)
})

test('a value without a departure for 60 days begins anew, and leaves nothing behind', async () => {
  await reset({ warmUp: warmUp({ maxRefused: 0.5 }) })
  await add(2)
  expect(await leave()).toBe(2)
  await on(59)
  await add(20)
  expect(await leave()).toBe(3)
  await on(59 + 61)
  expect(await leave()).toBe(2)
  await add(1, 'b')
  await on(59 + 61 + 61)
  await held.drain(20, 0)
  await on(300)
  await add(1, 'c')
  await leave()
  expect(await client.hkeys(`${held.base}meta:limits:own:warm-up`)).toEqual(['c'])
  expect(await client.hkeys(`${held.base}meta:limits:started:warm-up`)).toEqual(['c'])
})

test('the day of a value is restored after a loss, as it was known on the day before', async () => {
  await reset()
  await add(9)
  await leave()
  await on(1)
  await leave()
  await held.depart(1)
  const known = held.backend.store.memory.stored?.flat() ?? []
  expect(known.join()).toContain('day 2 of 4')
  await client.unlink(...(await client.keys(`${held.base}meta:*`)))
  await add(9)
  await on(2)
  await leave()
  expect(await state()).toMatchObject({ day: 3, rate: '5/day' })
})

test(`${STORIES} random stories of values, refusals, holds, days that are set, idle days, spread quotas and changing zones leave by a plan in plain TypeScript`, async () => {
  for (let seed = 1; seed <= STORIES; seed++) {
    const { uniform } = randomOf(seed * 104_729 + 7)
    const below = (most: number) => Math.floor(uniform() * most)
    const quotas = Array.from({ length: 1 + below(5) }, () => 1 + below(6))
    const plan = quotas.map((quota, i) => ({ day: i + 1, quota }))
    const maxRefused = below(2) ? 0.3 : undefined
    const zone = () => ['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo'][below(4)] as string
    // Spread no slower than all at once.
    const spread = below(3) ? {} : ({ spread: 'even', burst: 50, minRate: '1000000/s' } as const)
    const limitsIn = (timeZone: string) => [
      limit({ timeZone, ...spread, warmUp: { plan, ...(maxRefused ? { maxRefused } : {}) } }),
    ]
    const datesIn = (timeZone: string) => new Intl.DateTimeFormat('en-CA', { timeZone })
    const timeZone = zone()
    await held.reset({ groups: {}, limits: limitsIn(timeZone) })
    let dates = datesIn(timeZone)
    const known = new Map<string, Known>()
    // Over both changes of the clocks.
    let now = Date.UTC(2026, below(2) ? 2 : 9, 5) * 1000
    for (let step = 0; step < 40; step++) {
      now += below(4) ? below(20) * 3_600_000_000 : below(5) * DAY_US
      await held.advanceTo(now)
      if (below(6) === 0) {
        const other = zone()
        const fields = { limits: encodeQueueLimits(limitsIn(other)) as string }
        await held.backend.store.override(fields, 'test', 'test', undefined)
        dates = datesIn(other)
      }
      const isOf = (us: number) => dates.format(us / 1000) === dates.format(now / 1000)
      const group = ['a', 'b', 'c'][below(3)] as string
      const count = below(6)
      await add(count, group)
      const one = known.get(group) ?? { ...FRESH }
      known.set(group, { ...one, waits: one.waits + count })
      let expected = 0
      for (const value of known.values()) {
        if (value.waits === 0) continue
        // In another zone the day of a plan, and that of its quota, may be over by now; what left on the latter stays counted.
        const isNew = !isOf(value.beganUs)
        const share = value.started > 0 ? value.refused / value.started : 0
        const stays = value.set || value.held || (maxRefused !== undefined && share > 0 && share >= maxRefused)
        const goesOn = isNew && value.beganUs > 0 && !stays
        const day = goesOn ? Math.min(value.day + 1, quotas.length) : value.day
        if (!isOf(value.lastUs)) value.left = 0
        const leaves = Math.max(0, Math.min(value.waits, (quotas[day - 1] as number) - value.left))
        if (leaves === 0) continue
        if (isNew || value.set) Object.assign(value, { beganUs: now, started: 0, refused: 0, set: false })
        Object.assign(value, { day, lastUs: now })
        expected += leaves
        value.left += leaves
        value.started += leaves
        value.waits -= leaves
      }
      expect(await leave(), `seed ${seed}, step ${step}`).toBe(expected)
      const refused = known.get(group) as Known
      if (below(4) === 0) {
        refused.held = !refused.held
        if (refused.held) await values.set('warm-up', group, { held: true }, WHO)
        else await values.clear('warm-up', group, ['held'], WHO)
      }
      if (below(8) === 0) {
        Object.assign(refused, { day: 1 + below(quotas.length), set: true })
        await values.set('warm-up', group, { day: refused.day }, WHO)
      }
      if (refused.beganUs > 0 && below(3) === 0) {
        await refuse(group)
        refused.refused += 1
      }
    }
  }
})

test('plans are checked, by name', () => {
  const encode = (more: object) => () => encodeQueueLimits([limit(more as Partial<QueueLimit>)])
  expect(
    quotasOf('w', {
      plan: [
        { day: 1, quota: 5 },
        { day: 4, quota: 9 },
      ],
    }),
  ).toEqual([5, 5, 5, 9])
  expect(quotasOf('w', { start: 50, factor: 1.5, until: 200 })).toEqual([50, 75, 112, 168, 200])
  const stored = encodeQueueLimits([limit()]) as string
  expect(encodeQueueLimits(decodeQueueLimits(stored))).toBe(stored)
  const wrong: readonly (readonly [object, string])[] = [
    [{ warmUp: {} }, 'must have either plan, or start, factor and until; got none'],
    [{ warmUp: warmUp({ start: 1 }) }, 'must have either plan, or start, factor and until; got both'],
    [{ warmUp: { plan: [] } }, 'plan of warmUp of limit "warm-up" must be a list of { day, quota }; got []'],
    [{ warmUp: { plan: [{ day: 2, quota: 5 }] } }, 'day of plan[0] of warmUp of limit "warm-up" must be 1; got 2'],
    [
      { warmUp: { plan: [{ day: 1, quota: null }] } },
      'quota of plan[0] of warmUp of limit "warm-up" must be a whole number',
    ],
    [
      { warmUp: { start: 5, factor: 1, until: 9 } },
      'factor of warmUp of limit "warm-up" must be a number above 1; got 1',
    ],
    [{ warmUp: { start: 5, factor: 2, until: 4 } }, 'must be a whole number >= its start, 5; got 4'],
    [{ warmUp: { start: 1, factor: 1.01, until: 9999 } }, 'takes more than 400 days to reach 9999: raise its factor'],
    [{ warmUp: warmUp({ maxRefused: 1 }) }, 'must be a number above 0 and below 1; got 1'],
    [{ by: 'ip', warmUp: warmUp({ maxRefused: 0.1 }) }, 'maxRefused of limit "warm-up" needs by: \'group\''],
    [
      { by: undefined },
      'limit "warm-up" has a warmUp, which is that of values: set by, such as by: \'group\', under which jobs',
    ],
    [{ shared: true }, 'limit "warm-up" has a warmUp: leave shared out'],
    [{ rate: '9/day' }, 'limit "warm-up" has a warmUp, which says its rate: leave rate out'],
  ]
  for (const [more, message] of wrong) {
    expect(encode(more)).toThrow(InvalidLimitError)
    expect(encode(more)).toThrow(message)
  }
  expect(encode({ warmUp: { days: 3 } })).toThrow(InvalidInputError)
})

test('jobs without a group follow one plan, beside those of groups', async () => {
  await reset()
  for (let i = 0; i < 30; i++) await held.add()
  await add(30)
  expect(await leave()).toBe(2 + 2)
  await on(1)
  expect(await leave()).toBe(3 + 3)
})

test('what is set for a value of a plan is checked', async () => {
  await reset()
  const set = (override: LimitOverride, ttlMs?: number) =>
    values.set('warm-up', 'a', override, { ...WHO, ...(ttlMs === undefined ? {} : { ttlMs }) })
  await expect(set({ day: 0 })).rejects.toThrow('day must be a whole number >= 1; got 0')
  await expect(set({ day: 2 }, 1000)).rejects.toThrow('the day of a plan has no end: leave ttlMs out')
  await expect(set({ burst: 2 })).rejects.toThrow('has no burst: set its rate or day or held')
})

test('published plans are plans', () => {
  for (const [name, plan] of Object.entries(warmUpPlans)) expect(quotasOf(name, plan)[0], name).toBeGreaterThan(0)
  expect(quotasOf('sendgrid', warmUpPlans.sendgrid).slice(0, 2)).toEqual([480, 672])
})
