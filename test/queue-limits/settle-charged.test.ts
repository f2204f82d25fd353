import { afterAll, expect, test } from 'vitest'
import type { QueueLimit, Shape } from '../../src/index.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

// Only what a job was charged is given back when it cost less.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const SIZE = 10

const settle = (id: string | undefined, actual: number, attempt = 1) => {
  const args = [id as string, attempt, JSON.stringify({ '': actual }), '60000']
  return held.backend.store.run('settle-cost', args)
}

/** @returns how many jobs leave now */
const leave = async (jobs = 1) => (await held.depart(jobs)).grants.length

const WINDOW: QueueLimit = { name: 'limit', algorithm: 'fixed-window', rate: '10/day' }

test.each<[string, Shape]>([
  ['the rate', { rate: '10/h', burst: SIZE }],
  ['a window', { limits: [WINDOW] }],
  ['the rate of groups', { groups: { rate: '10/h', burst: SIZE } }],
])('a job that left before the first shape gives nothing back: %s', async (_what, shape) => {
  await held.reset(shape)
  const opts = { cost: SIZE, ...(shape.groups ? { group: { id: 'a' } } : {}) }
  const { id } = await held.add(opts)
  // One that a worker took while there was no shape.
  await redis.client().copy(`${held.base}${id}`, `${held.base}old`)
  await redis.client().hset(`${held.base}old`, { ats: 1, processedOn: Math.floor(START_US / 1000) - 1000 })
  // What has come back since then is no credit.
  await held.add({ ...opts, cost: SIZE - 1 })
  expect(await leave()).toBe(1)
  await settle('old', 0)
  expect(await leave()).toBe(0)
})
