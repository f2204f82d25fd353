import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { InvalidGroupError, InvalidInputError, InvalidLimitError, InvalidRateError } from '../../src/errors.ts'
import { type QueueLimit, ShapedFlowProducer, type ShapedJob, type ShapedQueue } from '../../src/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { QueueLimitValues } from '../../src/queue/limits.ts'
import { inspectorOf } from '../inspect/support.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, Workshop } from '../worker/support.ts'

// What a limit allows for single values of its keys is set while jobs leave.
const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())
const shop = new Workshop(redis)
const values = new QueueLimitValues('held', held.backend.store)

const WHO = { by: 'billing', reason: 'enterprise' }
const SECOND_US = 1_000_000

const plan = (rate: string, more: Partial<QueueLimit> = {}): QueueLimit => ({
  name: 'plan',
  by: 'model',
  rate,
  ...more,
})

async function add(count: number, opts: ShapedJobsOptions): Promise<void> {
  for (let i = 0; i < count; i++) await held.add(opts)
}

/** The slots of the departures, in s after the start of the clock. */
async function slots(): Promise<number[]> {
  return (await held.drain(1, 0)).map(({ slotUs }) => Math.round((slotUs - START_US) / 1000) / 1000)
}

const at = (seconds: number) => held.advanceTo(START_US + seconds * SECOND_US)

test('a value of its own applies to the next departure if it is lower, and at once if it is higher', async () => {
  await held.reset({ limits: [plan('1/s')] })
  await add(3, { keys: { model: 'a' } })
  await add(3, { keys: { model: 'b' } })
  await values.set('plan', 'a', { rate: '1/10s' }, WHO)
  expect(await slots()).toEqual([0, 0, 1, 2, 10, 20])
  await add(3, { keys: { model: 'a' } })
  await at(21)
  await values.set('plan', 'a', { rate: '10/s' }, WHO)
  // Of the 10 s that were owed, 1 has passed: nine tenths of a unit are left.
  expect(await slots()).toEqual([21.09, 21.19, 21.29])
})

test.each([
  ['gcra', {}],
  ['token-bucket', {}],
  ['leaky-bucket', {}],
  ['gcra', { by: 'group' }],
] as const)('the end of a value of a %s is exact, and wakes no later: %j', async (algorithm, by) => {
  await held.reset({ groups: {}, limits: [plan('1/s', { algorithm, ...by })] })
  await values.set('plan', 'a', { rate: '1/h' }, { ...WHO, ttlMs: 10_000 })
  await add(3, { keys: { model: 'a' }, group: { id: 'a' } })
  // What the hour had not paid back is owed at the rate of the shape.
  const left = 1 - 10 / 3600
  const found = await slots()
  for (const [i, slot] of [0, 10 + left, 11 + left].entries()) expect(found[i]).toBeCloseTo(slot, 2)
  expect(await client.keys(`${held.base}meta:limits:*`)).toEqual([`${held.base}meta:limits:changed`])
})

test('a value that ended while nothing left has counted until its end', async () => {
  await held.reset({ limits: [plan('1/10s', { burst: 10 })] })
  await values.set('plan', 'a', { rate: '1/s' }, { ...WHO, ttlMs: 5000 })
  await add(10, { keys: { model: 'a' } })
  expect(await slots()).toEqual(Array(10).fill(0))
  await at(25)
  await add(8, { keys: { model: 'a' } })
  // 5 in the first 5 s, and one for each 10 s after that.
  expect(await slots()).toEqual([...Array(7).fill(25), 35])
})

test('a limit that changes after the end of a value does not count for the time before', async () => {
  await held.reset({ limits: [plan('1/h', { burst: 10 })] })
  await values.set('plan', 'a', { rate: '1/10s' }, { ...WHO, ttlMs: 10_000 })
  await add(10, { keys: { model: 'a' } })
  expect(await slots()).toHaveLength(10)
  await at(20)
  const limits = encodeQueueLimits([plan('1/s', { burst: 10 })])
  await held.backend.store.override({ limits }, 'test', 'test', undefined)
  await add(3, { keys: { model: 'a' } })
  // One in the first 10 s, hardly anything in the next.
  expect(await slots()).toEqual([20, 20.997, 21.997])
})

test('a burst of its own, and no limit at all', async () => {
  await held.reset({ limits: [plan('1/s')] })
  await values.set('plan', 'a', { burst: 3 }, WHO)
  await values.set('plan', 'b', { rate: null }, WHO)
  await add(4, { keys: { model: 'a' } })
  await add(20, { keys: { model: 'b' } })
  expect(await slots()).toEqual([...Array(23).fill(0), 1])
  expect(await values.state('plan', 'b')).toMatchObject({ inForce: {}, remaining: undefined, retryAfterMs: 0 })
})

test('what holds no job is set without a command more for others, and lifted without a trace but an hour of memory', async () => {
  await held.reset({ limits: [plan('1/s'), { name: 'other', by: 'model', rate: '100/s' }] })
  await values.set('plan', 'a', { rate: '5/s' }, WHO)
  expect(await client.hget(`${held.base}meta:shape`, 'ownLimits')).toBe('{"plan":"0"}')
  await values.clear('plan', 'a', [], WHO)
  expect(await client.keys(`${held.base}meta:limits:*`)).toEqual([`${held.base}meta:limits:changed`])
  expect(await held.expiryMs(`${held.base}meta:limits:changed`)).toBeCloseTo(3_600_000, 0)
  await at(3601)
  await add(1, { keys: { model: 'a' } })
  await held.depart(1)
  expect(await client.hget(`${held.base}meta:shape`, 'ownLimits')).toBeNull()
})

test('a group without lanes goes on once its own value is raised', async () => {
  await held.reset({ groups: {}, limits: [plan('1/h', { by: 'group' })] })
  await add(3, { group: { id: 'a' } })
  expect((await held.depart(3)).grants).toHaveLength(1)
  await values.set('plan', 'a', { rate: '1/s' }, WHO)
  expect(await slots()).toEqual([1, 2])
})

test('windows keep what they have counted', async () => {
  await held.reset({ limits: [plan('2/min', { algorithm: 'sliding-window-log' })] })
  await add(5, { keys: { model: 'a' } })
  expect((await held.depart(5)).grants).toHaveLength(2)
  await values.set('plan', 'a', { rate: '4/min' }, WHO)
  expect((await held.depart(5)).grants).toHaveLength(2)
  await values.set('plan', 'a', { rate: '1/min' }, WHO)
  await at(60)
  expect((await held.depart(5)).grants).toHaveLength(1)
})

test('what is set, by whom, why and until when, what is left and when the key frees', async () => {
  await held.reset({ groups: {}, limits: [plan('1/s', { by: ['group', 'host'], burst: 4 })] })
  const key = { group: 'acme', host: 'h' }
  expect(await values.state('plan', key)).toMatchObject({
    ...{ limit: 'plan', keys: key, inForce: { rate: '1/s', burst: 4 }, overrides: {}, remaining: 4, retryAfterMs: 0 },
  })
  await values.set('plan', key, { burst: 2 }, { ...WHO, ttlMs: 3000 })
  await add(3, { group: { id: 'acme' }, keys: { host: 'h' } })
  await held.depart(3)
  const state = await values.state('plan', key)
  expect(state).toMatchObject({
    ...{ inForce: { rate: '1/s', burst: 2 }, remaining: 0, retryAfterMs: 1000, waitingLanes: 1 },
    overrides: { burst: { value: 2, by: 'billing', reason: 'enterprise', until: expect.any(Date) } },
  })
  expect(state.resetAt!.getTime() - state.at.getTime()).toBe(2000)
  await at(3)
  expect(await values.state('plan', key)).toMatchObject({ inForce: { burst: 4 }, overrides: {}, remaining: 4 })
})

const tiers = { free: { rate: '1/s' }, pro: { rate: '10/s', burst: 2 } } as const

test('the tier of a job says what its key allows, and one that is set for the key goes before it', async () => {
  await held.reset({ limits: [plan('1/min', { tiers })] })
  for (const [model, tier] of Object.entries({ a: 'free', b: 'pro', c: undefined })) {
    await add(3, { keys: { model }, ...(tier === undefined ? {} : { tier }) })
  }
  expect(await slots()).toEqual([0, 0, 0, 0, 0.1, 1, 2, 60, 120])
  await at(200)
  await values.set('plan', 'a', { tier: 'pro' }, { ...WHO, ttlMs: 250 })
  expect((await values.state('plan', 'a')).inForce).toEqual({ tier: 'pro', rate: '10/s', burst: 2 })
  await add(5, { keys: { model: 'a' }, tier: 'free' })
  expect(await slots()).toEqual([200, 200, 200.1, 200.2, 201.75])
})

test('without lanes, too, each job of a group has its tier', async () => {
  await held.reset({ groups: {}, limits: [plan('1/min', { by: 'group', tiers })] })
  for (const tier of ['free', 'free', 'pro', 'pro', 'pro']) await add(1, { group: { id: 'x' }, tier })
  expect(await slots()).toEqual([0, 1, 1, 1.1, 1.2])
})

test('a job of a tier that a limit does not have is refused, and no other of its bulk is added', async () => {
  const queue = shop.queue({ limits: [plan('1/min', { tiers })] })
  const job = (tier: string) => ({ name: 'job', data: {}, opts: { keys: { model: 'a' }, tier } })
  const refused = { name: 'InvalidLimitError', message: 'limit "plan" has no tier "gold"; it has free, pro' }
  await expect(queue.addBulk([job('free'), job('gold')])).rejects.toMatchObject(refused)
  await expect(queue.add('job', {}, job('a tier').opts)).rejects.toMatchObject({ name: 'InvalidLimitError' })
  await queue.add('job', {}, { ...job('pro').opts, cost: 2 })
  await expect(queue.add('job', {}, { ...job('free').opts, cost: 2 })).rejects.toMatchObject({ cost: 2, burst: 1 })
  expect(await queue.count()).toBe(1)
  await expect(queue.setLimit('plan', 'a', { tier: 'gold' }, WHO)).rejects.toMatchObject(refused)
})

test.each([
  [{ name: 'x', rate: '1/s', tiers }, 'has tiers, which are those of values: set by'],
  [{ name: 'x', by: 'model', rate: '1/s', tiers: {} }, 'at least one; got {}'],
  [{ name: 'x', by: 'model', rate: '1/s', tiers: { 'a b': {} } }, 'a tier of limit "x" needs a name'],
  [{ name: 'x', by: 'model', rate: '1/s', tiers: { a: { window: 1 } } }, 'window'],
  [{ name: 'x', by: 'model', rate: '1/s', tiers: { a: { burst: 0 } } }, 'burst must be'],
  [
    { name: 'x', by: 'model', algorithm: 'fixed-window', rate: '1/s', tiers: { a: { rate: '9/min' } } },
    'counts windows of 1000 ms',
  ],
])('tiers of %j are refused', (limit, text) => {
  expect(() => encodeQueueLimits([limit])).toThrow(text)
})

test('a limit that needs its key takes no job without it, in a bulk or a flow neither', async () => {
  const limits = [plan('1/s', { by: ['group', 'host'], missing: 'refuse' })]
  const queue = shop.queue({ groups: {}, limits })
  const whole = { group: { id: 'a' }, keys: { host: 'h' } }
  const refused = (key: string) => ({ name: 'MissingKeyError', limitName: 'plan', key })
  await expect(queue.add('job', {}, { group: { id: 'a' } })).rejects.toMatchObject(refused('host'))
  await expect(queue.add('job', {}, { keys: { host: 'h' } })).rejects.toMatchObject(refused('group'))
  const bulk = [whole, { group: { id: 'a' } }].map((opts) => ({ name: 'job', data: {}, opts }))
  await expect(queue.addBulk(bulk)).rejects.toMatchObject(refused('host'))
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const child = { name: 'child', queueName: queue.name, opts: { group: { id: 'a' } } }
  const flow = { name: 'parent', queueName: queue.name, opts: whole, children: [child] } as never
  await expect(flows.add(flow)).rejects.toMatchObject(refused('host'))
  expect(Object.values(await queue.getJobCounts()).every((count) => count === 0)).toBe(true)
  await queue.add('job', {}, whole)
})

test.each(['gcra', 'token-bucket', 'leaky-bucket'] as const)(
  'a cost above what a %s allows at once takes that much, and the rest once it is known',
  async (algorithm) => {
    const queue = shop.queue({ limits: [plan('1/h', { burst: 5, algorithm, clampCost: true, unit: 'tokens' })] })
    const opts = { keys: { model: 'a' }, costs: { tokens: 20 } }
    const left: (number | undefined)[] = []
    const worker = shop.worker(queue, async (job) => {
      for (const tokens of [20, 8, 12]) {
        left.push((await queue.getLimit('plan', 'a')).remaining)
        await (job as ShapedJob).settleCost({ tokens })
      }
      await queue.chargeLimit('plan', 'b', 3)
      left.push((await queue.getLimit('plan', 'b')).remaining)
    })
    const done = eventsOf('completed', worker)
    await queue.add('job', {}, opts)
    await done.reach(1)
    expect(left).toEqual([0, 0, 0, 2])
    const { at, resetAt } = await queue.getLimit('plan', 'a')
    // 12 units, of which none came back: a refund of 12 and a charge of 4 followed the charge of 15.
    expect((resetAt!.getTime() - at.getTime()) / 3_600_000).toBeCloseTo(12, 1)
  },
)

test('without it, the error of such a job names the option', async () => {
  const queue = shop.queue({ limits: [plan('1/h', { burst: 5 })] })
  await expect(queue.add('job', {}, { keys: { model: 'a' }, cost: 6 })).rejects.toThrow(
    'cost 6 exceeds what limit "plan" allows at once, 5: raise it to at least 6, or give the limit clampCost: true',
  )
})

test('what is charged without asking is charged once, and jobs wait for it', async () => {
  await held.reset({ limits: [plan('1/s')] })
  await values.charge('plan', 'a', 4)
  await add(2, { keys: { model: 'a' } })
  expect(await slots()).toEqual([4, 5])
  const args = ['plan', JSON.stringify({ model: 'b' }), 7, 'call', '']
  for (let i = 0; i < 2; i++) expect(await held.backend.store.run('charge-limit', args)).toEqual([1])
  expect((await values.state('plan', 'b')).retryAfterMs).toBe(7000)
  for (const cost of [0, -1, Number.NaN, undefined, 'x', 2e9])
    await expect(values.charge('plan', 'a', cost as number)).rejects.toMatchObject({ name: 'InvalidCostError' })
})

test('how many jobs of one value run can be set, too', async () => {
  await held.reset({ limits: [{ name: 'running', by: 'model', algorithm: 'concurrency', concurrency: 1 }] })
  await add(5, { keys: { model: 'a' } })
  expect((await held.depart(5)).grants).toHaveLength(1)
  await values.set('running', 'a', { concurrency: 3 }, WHO)
  expect((await held.depart(5)).grants).toHaveLength(2)
  const state = await values.state('running', 'a')
  expect(state).toMatchObject({ inForce: { concurrency: 3 }, remaining: 0, retryAfterMs: undefined })
  await expect(values.set('running', 'a', { rate: '1/s' }, WHO)).rejects.toThrow('of concurrency has no rate')
  await expect(values.charge('running', 'a', 1)).rejects.toThrow('cannot be charged')
})

test.each([
  [{ name: 'x', rate: '1/s', missing: 'refuse' }, 'has missing, which is about keys: set by'],
  [{ name: 'x', by: 'model', rate: '1/s', missing: 'skip' }, `limit "x": missing must be 'refuse'; got "skip"`],
  [{ name: 'x', by: 'model', rate: '1/s', clampCost: 1 }, 'clampCost must be true or false; got 1'],
])('%j is refused', (limit, text) => {
  expect(() => encodeQueueLimits([limit])).toThrow(text)
})

test('a worker that sleeps for an hour wakes when the value of the key that it waits for is raised', async () => {
  const queue = shop.queue({ limits: [plan('1/h')] })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  for (let i = 0; i < 2; i++) await queue.add('job', {}, { keys: { model: 'a' } })
  await departed.reach(1)
  await queue.setLimit('plan', 'a', { rate: '100/s' }, WHO)
  await departed.reach(2)
  const [entry] = await inspectorOf(redis, shop).history(queue.name)
  expect(entry).toMatchObject({
    ...{ kind: 'limit', by: 'billing', reason: 'enterprise' },
    change: { limit: 'plan', keys: { model: 'a' }, rate: [100, 1000] },
  })
  await queue.clearLimit('plan', 'a', { by: 'billing', reason: 'over' })
  expect((await queue.getLimit('plan', 'a')).overrides).toEqual({})
})

test.each<[string, new (...args: never[]) => Error, string, (queue: ShapedQueue) => Promise<unknown>]>([
  [
    'another name',
    InvalidLimitError,
    'has no limit "plans" with by or pool; it has plan, common, days',
    (q) => q.getLimit('plans', 'a'),
  ],
  ['no by', InvalidLimitError, 'has no limit "all"', (q) => q.setLimit('all', 'a', { rate: '1/s' }, WHO)],
  ['no key', InvalidGroupError, 'keys.model must be', (q) => q.getLimit('plan', undefined as never)],
  ['another key', InvalidLimitError, 'must be { group: …, host: … }; got "a"', (q) => q.getLimit('days', 'a')],
  ['a long one', InvalidGroupError, 'got "aaaa', (q) => q.getLimit('plan', 'a'.repeat(300))],
  ['no group', InvalidGroupError, 'the id of a group', (q) => q.getLimit('days', { group: '', host: 'h' })],
  ['a shared one', InvalidLimitError, 'is shared', (q) => q.setLimit('common', 'a', { rate: '1/s' }, WHO)],
  ['no field', InvalidLimitError, 'at least one of', (q) => q.setLimit('plan', 'a', {}, WHO)],
  ['an odd one', InvalidLimitError, "no field 'brust'", (q) => q.setLimit('plan', 'a', { brust: 1 } as never, WHO)],
  ['a wrong burst', InvalidLimitError, 'burst must be', (q) => q.setLimit('plan', 'a', { burst: 0 }, WHO)],
  ['no burst', InvalidLimitError, 'burst must be', (q) => q.setLimit('plan', 'a', { burst: null } as never, WHO)],
  ['a wrong rate', InvalidRateError, 'rate must be', (q) => q.setLimit('plan', 'a', { rate: 'fast' }, WHO)],
  [
    'a burst of a window',
    InvalidLimitError,
    'of fixed-window has no burst: set its rate',
    (q) => q.setLimit('days', { group: 'a', host: 'h' }, { burst: 2 }, WHO),
  ],
  [
    'another window',
    InvalidLimitError,
    'counts windows of 86400000 ms',
    (q) => q.setLimit('days', { group: 'a', host: 'h' }, { rate: '5/h' }, WHO),
  ],
  [
    'no author',
    InvalidInputError,
    'needs { by, reason }',
    (q) => q.setLimit('plan', 'a', { rate: '1/s' }, {} as never),
  ],
  [
    'no time',
    InvalidInputError,
    'ttlMs must be a number',
    (q) => q.setLimit('plan', 'a', { rate: '1/s' }, { ...WHO, ttlMs: -1 }),
  ],
  [
    'no such field',
    InvalidLimitError,
    "no field 'rat'",
    (q) => q.clearLimit('plan', 'a', { fields: ['rat' as never] }),
  ],
])('%s is refused by name', async (_what, type, text, call) => {
  const queue = shop.queue({
    groups: {},
    limits: [
      { name: 'all', rate: '100/s' },
      plan('1/s'),
      { name: 'common', by: 'model', rate: '1/s', shared: true, prefix: redis.prefix },
      { name: 'days', by: ['group', 'host'], algorithm: 'fixed-window', rate: '5/day' },
    ],
  })
  const failure = await call(queue).catch((error: unknown) => error as Error)
  expect(failure).toBeInstanceOf(type)
  expect((failure as Error).message).toContain(text)
})

test('a job may cost what its own key allows, wherever it comes in, and no more', async () => {
  const queue = shop.queue({ limits: [plan('1/s', { burst: 5 })], capacity: 100 })
  await queue.setLimit('plan', 'a', { burst: 50 }, WHO)
  await queue.setLimit('plan', 'free', { rate: null }, WHO)
  const opts = (model: string, cost: number) => ({ keys: { model }, cost })
  await queue.add('job', {}, opts('a', 50))
  await queue.add('job', {}, opts('free', 1000))
  await queue.addBulk([
    { name: 'job', data: {}, opts: opts('a', 50) },
    { name: 'job', data: {}, opts: opts('b', 5) },
  ])
  await Promise.all(Array.from({ length: 12 }, () => queue.add('job', {}, opts('a', 20))))
  const refused = { cost: 51, burst: 50, limitName: 'plan' }
  await expect(queue.add('job', {}, opts('a', 51))).rejects.toMatchObject(refused)
  await expect(queue.add('job', {}, opts('b', 50))).rejects.toMatchObject({ ...refused, cost: 50, burst: 5 })
  const bulk = [
    { name: 'job', data: {}, opts: opts('b', 1) },
    { name: 'job', data: {}, opts: opts('a', 51) },
  ]
  await expect(queue.addBulk(bulk)).rejects.toMatchObject(refused)
  expect(await queue.count()).toBe(16)
})
