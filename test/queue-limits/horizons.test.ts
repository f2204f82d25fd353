import { afterAll, beforeEach, expect, test } from 'vitest'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { storedMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const far = new HeldQueue(redis, client, 'far')
const near = new HeldQueue(redis, client, 'near')
afterAll(() => Promise.all([far.close(), near.close()]))

const prefix = `${redis.prefix}:shared`
const SWITCH = `${prefix}:limit:{upstream}:switch`
const LIMIT: QueueLimit = { name: 'upstream', rate: '100/s', burst: 1, shared: true, prefix }
const MS = 1000
const S = 1_000_000
let startUs = 0

/** Both at that time, µs since the start. */
async function at(us: number): Promise<void> {
  await far.advanceTo(startUs + us)
  near.nowUs = far.nowUs
}

/** Slots that are granted to one of them, µs since the start. */
async function slots(queue: HeldQueue, jobs: number, horizonUs: number): Promise<number[]> {
  const { grants } = await queue.depart(jobs, horizonUs)
  return grants.map(({ slotUs }) => slotUs - startUs)
}

async function begin(...limits: QueueLimit[]): Promise<void> {
  await far.reset({ rate: '1/s', limits })
  await near.reset({ limits })
  for (const queue of [far, near]) await queue.queue.addBulk(Array.from({ length: 20 }, () => ({ name: '', data: {} })))
  // Redis forgets the switch by its own clock.
  startUs = Date.now() * 1000
  await at(0)
}

beforeEach(async () => {
  const keys = await client.keys(`${prefix}*`)
  if (keys.length > 0) await client.unlink(...keys)
})

test('a queue is granted as far ahead as another one that shares its limit', async () => {
  await begin(LIMIT)
  expect(await slots(far, 20, 3 * S)).toEqual([0, S, 2 * S, 3 * S])
  expect(await slots(near, 3, 50 * MS)).toEqual([])
  await at(15 * MS)
  const reply = await near.depart(3, 50 * MS)
  expect(reply.grants.map(({ slotUs }) => slotUs - startUs)).toEqual([3 * S + 10 * MS])
  expect(reply).toMatchObject({ stop: 'closed', spanUs: 50 * MS, leadUs: 3 * S - 50 * MS })
  // It is up when the next two slots are that near, one for each place that it has left.
  expect(reply.wakeUs).toBe(startUs + 30 * MS)
})

test('nothing is granted ahead to a worker that starts jobs at once', async () => {
  await begin(LIMIT)
  await slots(far, 20, 3 * S)
  await at(3 * S + 9 * MS)
  expect(await slots(near, 3, 0)).toEqual([])
  await at(3 * S + 10 * MS)
  expect(await slots(near, 3, 0)).toEqual([3 * S + 10 * MS])
})

test('no worker is granted farther ahead than a quarter of what its locks last', async () => {
  await begin(LIMIT)
  await slots(far, 20, 10 * S)
  await at(2.5 * S + 9 * MS)
  expect(await slots(near, 3, 50 * MS)).toEqual([])
  await at(2.5 * S + 10 * MS)
  expect(await slots(near, 3, 50 * MS)).toEqual([10 * S + 10 * MS])
})

test('a queue with a rate reckons with what it is granted ahead, should Redis lose its state', async () => {
  await begin({ ...LIMIT, rate: '5/s' })
  expect(await slots(near, 20, 3 * S)).toHaveLength(16)
  await at(200 * MS)
  expect(await slots(far, 1, 50 * MS)).toEqual([3200 * MS])
  expect((await storedMeter(client, far.base)).horizon).toBe(String(3 * S))
})

test('what was granted ahead is known for a minute, and written again when half of that is over', async () => {
  await begin(LIMIT)
  const noted = async () => (await client.get(SWITCH))?.split(' ').slice(-2).map(Number)
  await slots(far, 20, 3 * S)
  expect(await noted()).toEqual([3 * S, startUs])
  await at(29 * S)
  expect(await slots(far, 1, 3 * S)).toHaveLength(1)
  expect(await slots(far, 1, 3 * S)).toHaveLength(1)
  expect(await noted()).toEqual([3 * S, startUs])
  await at(31 * S)
  await slots(far, 2, 3 * S)
  expect(await noted()).toEqual([3 * S, startUs + 31 * S])
  await at(91 * S)
  expect(await near.depart(10, 50 * MS)).toMatchObject({ leadUs: 3 * S - 50 * MS })
  await at(91 * S + 200 * MS)
  expect(await near.depart(10, 50 * MS)).toMatchObject({ leadUs: 0 })
  expect(await noted()).toEqual([50 * MS, startUs + 91 * S + 200 * MS])
})

test('nothing is noted of a limit that holds one queue alone, or running jobs, or nothing ahead', async () => {
  const { shared: _, prefix: __, ...own } = LIMIT
  await begin(own)
  expect(await slots(far, 20, 3 * S)).toHaveLength(4)
  await begin({ name: 'upstream', algorithm: 'concurrency', concurrency: 50, shared: true, prefix })
  expect(await slots(far, 20, 3 * S)).toHaveLength(4)
  expect(await client.exists(SWITCH)).toBe(0)
  await client.unlink(`${prefix}:limit:{upstream}`)
  await begin(LIMIT)
  expect(await slots(near, 1, 50 * MS)).toEqual([0])
  expect(await client.exists(SWITCH)).toBe(0)
  await slots(near, 1, 50 * MS)
  expect(await client.exists(SWITCH)).toBe(1)
})
