import { afterAll, expect, test } from 'vitest'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, Workshop } from '../worker/support.ts'

// What is set for one group ends by itself, while its jobs are held by it.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())
const shop = new Workshop(redis)
const by = { by: 'test', reason: 'test' }

const SECOND_US = 1_000_000
const HOUR_MS = 3_600_000

function set(id: string, fields: object, ttlMs?: number): Promise<void> {
  return held.backend.store.changeGroup(id, fields, { by: 'test', reason: 'test' }, ttlMs)
}

const add = (id: string) => held.add({ group: { id } })

/** The slots of the departures, in s after the start of the clock. */
async function slots(): Promise<number[]> {
  return (await held.drain(1, 0)).map(({ slotUs }) => (slotUs - START_US) / SECOND_US)
}

/** Ends of settings are in whole ms. */
function expectSlots(found: readonly number[], expected: readonly number[]): void {
  expect(found).toHaveLength(expected.length)
  for (const [i, slot] of expected.entries()) expect(found[i]).toBeCloseTo(slot, 3)
}

test('a rate that was set for a time holds the group no longer than that', async () => {
  await held.reset({ groups: { rate: '1/s' } })
  await set('a', { rate: [1, HOUR_MS] }, 10_000)
  for (let i = 0; i < 3; i++) await add('a')
  // What the hour had not paid back yet is owed at the rate of the defaults.
  expectSlots(await slots(), [0, 11 - 10 / 3600, 12 - 10 / 3600])
})

test('a rate that ended while nothing left has counted until its end', async () => {
  await held.reset({ groups: { rate: '1/min', burst: 10 } })
  await set('a', { rate: [1, 1000] }, 5000)
  for (let i = 0; i < 10; i++) await add('a')
  expectSlots(await slots(), Array(10).fill(0))
  await held.advanceTo(START_US + 100 * SECOND_US)
  for (let i = 0; i < 7; i++) await add('a')
  // 5 in the first 5 s, and one for each minute after that.
  expectSlots(await slots(), [...Array(6).fill(100), 125.001])
})

test.each([
  ['alone', ['a'], 0],
  ['in a bulk', ['a', 'b', 'a', 'b'], 0],
  ['later', ['a'], 3_600_000],
])(
  'a group that was paused before its first job is paused once it has one that is added %s',
  async (_, groups, delay) => {
    const queue = shop.queue({ groups: {} })
    await queue.pauseGroup('a', by)
    const jobs = await queue.addBulk(groups.map((id) => ({ name: id, data: {}, opts: { group: { id }, delay } })))
    if (delay > 0) for (const job of jobs) await job.promote()
    const waiting = groups.includes('b') ? 1 : 0
    expect(await queue.getGroupsCountByStatus()).toEqual({ waiting, limited: 0, maxed: 0, paused: 1 })
    expect(await queue.getGroupsByStatus('paused', 0, 9)).toEqual(['a'])
    await queue.resumeGroup('a', by)
    expect(await queue.getGroupsCountByStatus()).toEqual({ waiting: waiting + 1, limited: 0, maxed: 0, paused: 0 })
  },
)

test('a worker that sleeps learns when the pause of a group ends that has its first job', async () => {
  const queue = shop.queue({ groups: {} })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await queue.add('b', {}, { group: { id: 'b' } })
  await departed.reach(1)
  await queue.pauseGroup('a', { ...by, ttlMs: 500 })
  await queue.add('a', {}, { group: { id: 'a' } })
  expect(await queue.getGroupsCountByStatus()).toMatchObject({ waiting: 0, paused: 1 })
  await departed.reach(2)
})

test('what was cleared leaves no debt of the time before it was set', async () => {
  await held.reset({ groups: { rate: '10/s' } })
  await add('a')
  expectSlots(await slots(), [0])
  await held.advanceTo(START_US + 30 * SECOND_US)
  await set('a', { rate: [50, 1000], burst: 2 })
  await held.advanceTo(START_US + 31 * SECOND_US)
  await held.backend.store.changeGroup('a', { rate: { clear: true }, burst: { clear: true } }, by, undefined)
  await add('a')
  await add('a')
  expectSlots(await slots(), [31, 31.1])
})

test('settings that end unseen, one after the other, refill no bucket faster than they allowed', async () => {
  await held.reset({ groups: { rate: '1/s', burst: 10 } })
  await set('a', { rate: [100, 1000] }, 10_000)
  await set('a', { weight: 2 }, 15_000)
  await held.advanceTo(START_US + 9.99 * SECOND_US)
  for (let i = 0; i < 20; i++) await add('a')
  expect((await held.depart(20)).grants).toHaveLength(10)
  await held.advanceTo(START_US + 15.5 * SECOND_US)
  expect((await held.depart(20)).grants).toHaveLength(6)
})

test('a group that is held until soon is not asked for again and again', async () => {
  await held.reset({ groups: {} })
  await add('a')
  await set('a', { limited: true }, 1000)
  await held.advanceTo(START_US + 0.97 * SECOND_US)
  const { grants } = await held.depart(1, 50_000)
  expectSlots(
    grants.map(({ slotUs }) => (slotUs - START_US) / SECOND_US),
    [1],
  )
})

test('a concurrency that was set for a time holds the group no longer than that', async () => {
  await held.reset({ groups: {} })
  await set('a', { concurrency: 1 }, 10_000)
  await set('b', { rate: [1, HOUR_MS] })
  for (const id of ['a', 'a', 'b', 'b']) await add(id)
  expect((await held.depart(4)).grants).toHaveLength(2)
  const { nextUs } = await held.depart(4)
  expect((nextUs! - START_US) / SECOND_US).toBeCloseTo(10, 3)
  await held.advanceTo(nextUs!)
  expect((await held.depart(4)).grants).toHaveLength(1)
})

test('a pause that ends sooner than the first slot of another group is felt in time', async () => {
  await held.reset({ groups: {} })
  await set('b', { rate: [1, HOUR_MS] })
  await set('a', { paused: true }, 10_000)
  for (const id of ['a', 'b', 'b']) await add(id)
  expectSlots(await slots(), [0, 10, 3600])
})

test('of many groups whose settings end together, each is released', async () => {
  await held.reset({ groups: {} })
  const ids = Array.from({ length: 40 }, (_, i) => `g${i}`)
  for (const id of ids) await set(id, { rate: [1, HOUR_MS] }, 10_000)
  for (const id of ids) for (let i = 0; i < 2; i++) await add(id)
  const found = await slots()
  expect(found.slice(0, 40)).toEqual(Array(40).fill(0))
  expectSlots(found.slice(40), Array(40).fill(10))
  expect(await redis.client().keys(`${held.base}meta:groups:*`)).toEqual([])
})

test('workers start the jobs when what was set for their group ends, and ask no more for it', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.setGroup('a', { rate: '1/hour' }, { ...by, ttlMs: 400 })
  await queue.pauseGroup('b', { ...by, ttlMs: 400 })
  await queue.addBulk(['a', 'a', 'b'].map((id) => ({ name: id, data: {}, opts: { group: { id } } })))
  const worker = shop.worker(queue, async () => {})
  const calls = callsOf(worker)
  const departed = departuresOf(worker)
  await departed.reach(3)
  expect(calls.all.length).toBeLessThan(12)
})

test('a pause of a group stays when what was set for the group is cleared', async () => {
  const queue = shop.queue({ groups: { concurrency: 2 } })
  await queue.setGroup('a', { rate: '1/hour', concurrency: 1 }, { ...by, ttlMs: HOUR_MS })
  await queue.pauseGroup('a', by)
  await queue.addBulk([1, 2, 3].map(() => ({ name: 'a', data: {}, opts: { group: { id: 'a' } } })))
  const worker = shop.worker(queue, null)
  expect(await worker.getNextJob('token')).toBeUndefined()
  const clearing = queue.clearGroup('a', { ...by, fields: ['paused' as never] })
  await expect(clearing).rejects.toThrow("a group has no field 'paused' to be cleared")
  await queue.clearGroup('a', by)
  expect(await queue.getGroup('a')).toMatchObject({ status: 'paused', inForce: { concurrency: 2 } })
  expect(await worker.getNextJob('token')).toBeUndefined()
  expect(await redis.client().exists(queue.toKey('meta:groups:ends'))).toBe(0)
  await queue.resumeGroup('a', by)
  expect([await worker.getNextJob('token'), await worker.getNextJob('token')].map((job) => job?.name)).toEqual([
    'a',
    'a',
  ])
  expect(await worker.getNextJob('token')).toBeUndefined()
})

/** A worker that sleeps for a job that costs five tokens, of which one is left: in two minutes. */
async function sleepForDear(pause: () => Promise<void>): Promise<void> {
  await held.reset({ rate: '1/min', burst: 5, groups: {} })
  for (const id of ['c', 'a', 'c']) await add(id)
  await held.add({ group: { id: 'a' }, cost: 5 })
  await held.depart(2, 50_000)
  await pause()
  await held.advanceTo(held.nowUs + SECOND_US)
  expect(await held.depart(1, 50_000)).toMatchObject({ stop: 'closed', grants: [] })
}

const asks = async (worker = 'held') => Number(await redis.client().zscore(`${held.base}meta:sleepers`, worker))

test('a group that is resumed wakes the worker that sleeps for a dearer job behind it', async () => {
  await sleepForDear(() => set('c', { paused: true }))
  expect(await asks()).toBeGreaterThan(held.nowUs + 100 * SECOND_US)
  await set('c', { paused: { clear: true } })
  expect(await asks()).toBe(held.nowUs)
  expect((await held.depart(1, 50_000)).grants).toHaveLength(1)
})

test('a worker that sleeps for a dear job asks when the pause of a group before it ends', async () => {
  await sleepForDear(() => set('c', { paused: true }, 10_000))
  expect((await asks()) - START_US).toBeCloseTo(10 * SECOND_US, -4)
  await held.advanceTo(await asks())
  expect((await held.depart(1, 50_000)).grants).toHaveLength(1)
})

/** One group waits a day for tokens; jobs of the other cost none. */
async function waitForTokens(shape: object, free: number): Promise<void> {
  await held.reset({ limits: [{ name: 'tokens', unit: 'tokens', algorithm: 'fixed-window', rate: '1/day' }], ...shape })
  for (let i = 0; i < 3; i++) await held.add({ group: { id: 'llm' }, costs: { tokens: 1 } })
  for (let i = 0; i < free; i++) await held.add({ group: { id: 'mail' }, costs: { tokens: 0 } })
}

test.each([1, 5])(
  'a rate of its own, with a burst of %i, is all that a group waits for behind a limit in a unit',
  async (burst) => {
    await waitForTokens({ groups: { rate: '1/s', burst } }, 12)
    const found: number[] = []
    while (found.length < 13) {
      const { grants, wakeUs } = await held.depart(10, 50_000)
      for (const { slotUs } of grants) found.push((slotUs - START_US) / SECOND_US)
      await held.advanceTo(wakeUs as number)
    }
    expectSlots(found, [0, ...Array.from({ length: 12 }, (_, i) => Math.max(0, i + 1 - burst))])
  },
)

test('a group that takes no tokens is found behind more groups that wait for them than one call looks at', async () => {
  await waitForTokens({ groups: {} }, 0)
  for (let i = 0; i < 150; i++) await held.add({ group: { id: `llm${i}` }, costs: { tokens: 1 } })
  await held.depart(1, 50_000)
  for (let i = 0; i < 20; i++) await held.add({ group: { id: 'mail' }, costs: { tokens: 0 } })
  await set('mail', { weight: 0.01 })
  let [granted, calls] = [0, 0]
  for (; granted < 20 && calls < 20; calls++) {
    const { grants, wakeUs } = await held.depart(10, 50_000)
    granted += grants.length
    await held.advanceTo((wakeUs as number | undefined) ?? held.nowUs)
  }
  expect(granted).toBe(20)
  expect(calls).toBeLessThan(8)
  expect(held.nowUs - START_US).toBeLessThan(SECOND_US)
  // Nothing is left for them: one of the held groups may have another first job meanwhile.
  for (let i = 0; i < 4; i++) await held.advanceTo((await held.depart(10, 50_000)).wakeUs as number)
  expect(held.nowUs - START_US).toBeGreaterThan(SECOND_US)
  await held.add({ group: { id: 'llm7', priority: 0 }, costs: { tokens: 0 } })
  await held.queue.remove(String((await heads('llm7'))[0]))
  for (calls = 0, granted = 0; granted < 1 && calls < 8; calls++) {
    const { grants, wakeUs } = await held.depart(10, 50_000)
    granted += grants.length
    await held.advanceTo((wakeUs as number | undefined) ?? held.nowUs)
  }
  expect(granted).toBe(1)
})

const heads = (id: string) => redis.client().zrange(`${held.base}meta:group:jobs:${id}`, '0', '-1')

test('a queue is called for a limit that others share although a job that takes none of it waits for another', async () => {
  const daily = { algorithm: 'fixed-window', rate: '1/day' } as const
  const tokens = { name: 'tokens', unit: 'tokens', shared: true, prefix: redis.prefix, key: 'acme', ...daily }
  await held.reset({ groups: {}, limits: [tokens, { name: 'images', unit: 'images', ...daily }] })
  for (let i = 0; i < 2; i++) {
    await held.add({ group: { id: 'llm' }, costs: { tokens: 1, images: 0 } })
    await held.add({ group: { id: 'art' }, costs: { tokens: 0, images: 1 } })
  }
  await held.depart(10, 50_000)
  const called = await redis.client().keys(`${redis.prefix}*:queues`)
  expect(called).toHaveLength(1)
  expect(await redis.client().smembers(called[0]!)).toEqual([held.base])
})

const departAs = (workerId: string) => held.departAs(workerId, { jobs: 1, horizonUs: 50_000 })

test('a full worker wakes one that sleeps for a limit in a unit if more jobs take none of it', async () => {
  await waitForTokens({ groups: {} }, 0)
  await departAs('full')
  await departAs('sleeps')
  for (let i = 0; i < 2; i++) await held.add({ group: { id: 'mail' }, costs: { tokens: 0 } })
  await redis.client().zadd(`${held.base}meta:sleepers`, START_US + 9 * SECOND_US, 'sleeps')
  expect(await departAs('full')).toMatchObject({ stop: 'full', grants: [{}] })
  expect(await asks('sleeps')).toBe(held.nowUs)
  expect((await departAs('sleeps')).grants).toHaveLength(1)
})

test('what the others sleep for is the job whose turn it is, not the oldest one', async () => {
  await held.reset({ rate: '1/min', burst: 5, groups: {} })
  await set('paused', { paused: true })
  for (const id of ['paused', 'a', 'a']) await add(id)
  await held.add({ group: { id: 'a' }, cost: 5 })
  await departAs('full')
  await held.advanceTo(held.nowUs + 1000)
  await departAs('full')
  await departAs('sleeps')
  await add('c')
  await redis.client().zadd(`${held.base}meta:sleepers`, START_US + 100 * SECOND_US, 'sleeps')
  await departAs('full')
  const sleptFor = JSON.parse((await redis.client().hget(`${held.base}meta:meter`, 'sleptFor'))!)
  expect(sleptFor[1]).toBe(5)
})
