import { afterAll, describe, expect, test } from 'vitest'
import { giveBackArguments } from '../../src/departure/give-back.ts'
import { type HeldJob, heldJobs, startByOf } from '../../src/departure/held-job.ts'
import type { DepartureReply } from '../../src/departure/reply.ts'
import type { QueueLimit, Shape } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// Jobs that were granted and go back before they start, and what they took of the limits and the rate of their queue.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const DAY_US = 86_400_000_000
const MIDNIGHT_US = Math.ceil(START_US / DAY_US) * DAY_US
/** How long a processor kept the process of the held jobs busy. */
const LATE_US = 250_000

const RULES = {
  day: { algorithm: 'fixed-window', align: 'day', rate: '3/day' },
  'window since 1970': { algorithm: 'fixed-window', rate: '3/day' },
  'window that begins with its first unit': { algorithm: 'fixed-window', align: 'first', rate: '3/day' },
  log: { algorithm: 'sliding-window-log', rate: '3/day' },
  counter: { algorithm: 'sliding-window-counter', rate: '3/day' },
  gcra: { algorithm: 'gcra', rate: '3/day', burst: 3 },
  'token bucket': { algorithm: 'token-bucket', rate: '3/day', burst: 3 },
  'leaky bucket': { algorithm: 'leaky-bucket', rate: '3/day', burst: 3 },
} satisfies Record<string, Omit<QueueLimit, 'name'>>

const goBack = (reply: DepartureReply, leaving = '') =>
  held.backend.store.run('give-back', giveBackArguments(heldJobs(reply), leaving))

const part = (reply: DepartureReply, from: number, to?: number) => ({ ...reply, grants: reply.grants.slice(from, to) })

async function begin(shape: Shape, jobs: number): Promise<void> {
  await held.reset(shape)
  for (let i = 0; i < jobs; i++) await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
}

/** Of shared limits, each test has one of its own. */
let names = 0
const SCOPES: Readonly<Record<string, () => Partial<QueueLimit>>> = {
  queue: () => ({}),
  group: () => ({ by: 'group' }),
  'value of a key': () => ({ by: 'model' }),
  'value that queues share': () => ({
    ...{ by: ['group', 'model'], shared: true, prefix: redis.prefix, name: `quota${++names}` },
  }),
}

async function advance(us: number): Promise<void> {
  await held.advanceTo(held.nowUs + us)
}

describe.each(Object.entries(SCOPES))('a limit per %s', (_scope, scope) => {
  const shapeOf = (rule: Omit<QueueLimit, 'name'>): Shape => {
    const limits = [{ name: 'quota', unit: 'mails', ...rule, ...scope() } as QueueLimit]
    return { groups: {}, limits }
  }

  test.each(Object.entries(RULES))('%s: what goes back takes no unit, from the first minute on', async (_, rule) => {
    await begin(shapeOf(rule), 6)
    for (let i = 0; i < 5; i++) {
      const reply = await held.depart(6)
      expect(reply.grants).toHaveLength(3)
      await advance(LATE_US)
      expect(await goBack(reply, i % 2 === 0 ? '' : 'worker')).toEqual([3, 0])
    }
    const { grants, nextUs } = await held.depart(6)
    expect(grants).toHaveLength(3)
    expect(nextUs).toBeGreaterThan(held.nowUs + DAY_US / 4)
  })

  test.each(Object.entries(RULES))('%s: beside a job that runs, and one that has ended', async (_, rule) => {
    await begin(shapeOf(rule), 8)
    const reply = await held.depart(6)
    await redis.client().lrem(`${held.base}active`, 1, reply.grants[0]!.id)
    await advance(LATE_US)
    // By two workers, one after the other.
    await goBack(part(reply, 2))
    await advance(LATE_US)
    await goBack(part(reply, 1, 2))
    expect((await held.depart(6)).grants).toHaveLength(2)
  })

  test.each(Object.entries(RULES))('%s: no more than that comes back', async (name, rule) => {
    await begin(shapeOf(rule), 12)
    const before = await held.depart(2)
    await advance(LATE_US)
    const behind = await held.depart(6)
    expect(behind.grants).toHaveLength(1)
    await goBack(before)
    // Of a bucket, slots behind which others were granted are lost.
    const isBucket = 'burst' in rule
    const again = await held.depart(6)
    expect(again.grants).toHaveLength(isBucket ? 0 : 2)
    // Of a window that begins with its first unit, that is now the one that stays.
    const from = name.endsWith('first unit') ? behind.grants[0]!.slotUs : undefined
    if (from) expect(again.nextUs).toBe(from + DAY_US)
  })

  test('a job that goes back on the next day leaves the units of that day alone', async () => {
    await begin(shapeOf(RULES.day), 12)
    await held.advanceTo(MIDNIGHT_US - LATE_US)
    const before = await held.depart(2)
    await held.advanceTo(MIDNIGHT_US)
    expect((await held.depart(2)).grants).toHaveLength(2)
    await goBack(before)
    expect((await held.depart(6)).grants).toHaveLength(1)
  })

  test('what was granted before the limit was there gives nothing back', async () => {
    await begin({ groups: {} }, 12)
    const before = await held.depart(2)
    await held.backend.store.override(
      { limits: encodeShape(shapeOf(RULES.day)).fields.limits as string },
      'test',
      'test',
      undefined,
    )
    expect((await held.depart(2)).grants).toHaveLength(2)
    await goBack(before)
    expect((await held.depart(6)).grants).toHaveLength(1)
  })

  test('a job that takes nothing of a limit gives nothing back', async () => {
    await begin(shapeOf(RULES.day), 0)
    await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 0 } })
    for (let i = 0; i < 6; i++) await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
    const free = await held.depart(1)
    expect((await held.depart(6)).grants).toHaveLength(3)
    await goBack(free)
    expect((await held.depart(6)).grants.map(({ id }) => id)).toEqual([free.grants[0]!.id])
  })

  test('a job that takes nothing of a limit begins no window of it', async () => {
    await begin(shapeOf({ algorithm: 'fixed-window', align: 'first', rate: '3/min' }), 0)
    const add = (mails: number) => held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails } })
    await add(1)
    const first = await held.depart(1)
    await advance(LATE_US)
    await add(0)
    expect((await held.depart(1)).grants).toHaveLength(1)
    await advance(50_000_000)
    await add(1)
    const fromUs = held.nowUs
    expect((await held.depart(1)).grants).toHaveLength(1)
    await goBack(first)
    for (let i = 0; i < 6; i++) await add(1)
    const { grants, nextUs } = await held.depart(6)
    expect(grants).toHaveLength(2)
    expect(nextUs).toBe(fromUs + 60_000_000)
  })

  test('a window finds the job that it begins with now behind many others', async () => {
    await begin(shapeOf({ algorithm: 'fixed-window', align: 'first', rate: '3/min' }), 2)
    const first = await held.depart(1)
    await advance(LATE_US)
    const [second] = (await held.depart(1)).grants
    for (let i = 0; i < 70; i++) await held.add({ group: { id: 'b' }, costs: { mails: 0 } })
    expect((await held.depart(70)).grants).toHaveLength(70)
    await goBack(first)
    for (let i = 0; i < 6; i++) await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
    const { grants, nextUs } = await held.depart(6)
    expect(grants).toHaveLength(2)
    expect(nextUs).toBe(second!.slotUs + 60_000_000)
  })

  test.each(['will only be failed', 'was granted before the limit was there'])(
    'a window that does not know all of its jobs stays, beside a job that %s',
    async (which) => {
      const shape = shapeOf({ algorithm: 'fixed-window', align: 'first', rate: '3/min' })
      const isFailed = which.endsWith('failed')
      await begin(isFailed ? shape : { groups: {} }, 1)
      if (!isFailed) {
        expect((await held.depart(1)).grants).toHaveLength(1)
        const limits = encodeShape(shape).fields.limits as string
        await held.backend.store.override({ limits }, 'test', 'test', undefined)
        await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
      }
      const first = await held.depart(1)
      if (isFailed) {
        await advance(LATE_US)
        const { id } = await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
        await redis.client().hset(`${held.base}${id}`, 'defa', 'failed')
        expect((await held.depart(1)).grants).toHaveLength(1)
      }
      await advance(LATE_US)
      await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
      const ended = await held.depart(1)
      await redis.client().lrem(`${held.base}active`, 1, ended.grants[0]!.id)
      await goBack(first)
      for (let i = 0; i < 6; i++) await held.add({ group: { id: 'a' }, keys: { model: 'm' }, costs: { mails: 1 } })
      const { grants, nextUs } = await held.depart(6)
      expect(grants).toHaveLength(1)
      expect(nextUs).toBe(first.grants[0]!.slotUs + 60_000_000)
    },
  )

  test('only windows at times of their own let a job start late, until they end', async () => {
    for (const [name, rule] of Object.entries(RULES)) {
      await begin(shapeOf(rule), 1)
      const reply = await held.depart(1)
      const [job] = heldJobs(reply)
      const isPlaced = name === 'day' || name === 'window since 1970'
      // A quarter of the life of its lock.
      expect(startByOf(job!), name).toBe(isPlaced ? START_US + 7_500_000 : undefined)
    }
    await begin(shapeOf(RULES.day), 1)
    await held.advanceTo(MIDNIGHT_US - LATE_US)
    expect(startByOf(heldJobs(await held.depart(1))[0]!)).toBe(MIDNIGHT_US)
  })
})

test('units of a limit that was reset meanwhile are not given back', async () => {
  await begin({ groups: {}, limits: [{ name: 'quota', ...RULES.day }] }, 8)
  const before = await held.depart(2)
  // As lua/verbs/reset-key.lua does.
  const control = `${held.base}meta:limit:quota`
  await redis.client().del(...(await redis.client().keys(`${control}:*`)))
  await redis.client().hset(control, 'resetAt', held.nowUs)
  expect((await held.depart(2)).grants).toHaveLength(2)
  await goBack(before)
  expect((await held.depart(6)).grants).toHaveLength(1)
})

test('the last slot of the rate of a queue is given back, also if the worker stays', async () => {
  await begin({ groups: {}, rate: '3/day', burst: 3 }, 6)
  for (let i = 0; i < 5; i++) {
    const reply = await held.depart(6)
    expect(reply.grants).toHaveLength(3)
    await advance(LATE_US)
    await goBack(part(reply, 1))
    await goBack(part(reply, 0, 1))
  }
  const reply = await held.depart(6)
  expect(reply.grants).toHaveLength(3)
  expect(reply.nextUs).toBeGreaterThan(held.nowUs + DAY_US / 4)
  await advance(LATE_US)
  await goBack(part(reply, 2))
  // At another rate, a unit is still one.
  await held.backend.store.override(
    { rate: encodeShape({ rate: '6/day' }).fields.rate as string },
    'test',
    'test',
    undefined,
  )
  expect((await held.depart(6)).grants).toHaveLength(1)
})

test('slots of the rate behind which others were granted are lost', async () => {
  await begin({ groups: {}, rate: '3/day', burst: 3 }, 6)
  const before = await held.depart(2)
  await advance(LATE_US)
  expect((await held.depart(1)).grants).toHaveLength(1)
  await goBack(before)
  expect((await held.depart(6)).grants).toEqual([])
})

test('a log gives back what was charged behind a few hundred charges, and nothing behind more', async () => {
  const limits = [{ name: 'quota', algorithm: 'sliding-window-log', rate: '1000/day' }] as QueueLimit[]
  await held.reset({ limits })
  await held.queue.addBulk(Array.from({ length: 560 }, () => ({ name: 'job', data: {} })))
  const jobs: HeldJob[] = []
  for (let i = 0; i < 560; i++) {
    jobs.push(...heldJobs(await held.depart(1)))
    await advance(10)
  }
  const client = redis.client()
  const [key] = await client.keys(`${held.base}meta:limit:quota:*`)
  const isTooEarly = (i: number) => i < 5
  const returning = jobs.filter((_, i) => isTooEarly(i) || (i >= 100 && i % 5 === 0))
  await held.backend.store.run('give-back', giveBackArguments(returning, ''))
  const staying = jobs.filter((job, i) => isTooEarly(i) || !returning.includes(job))
  const entries = staying.flatMap(({ slotUs }, i) => [String(i + 1), String(slotUs)])
  expect((await client.zrange(key!, '0', '-1', 'WITHSCORES')).slice(2)).toEqual(entries)
})
