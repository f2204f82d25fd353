import { afterAll, expect, test } from 'vitest'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
afterAll(() => held.close())

const limits = [{ name: 'tokens', by: 'group', unit: 'tokens', rate: '1/s', burst: 5 }] as const

test.each([
  ['a rate', { groups: { rate: '1/s', burst: 5 } }, 'a'],
  ['a limit per group', { groups: {}, limits }, 'a'],
  ['a limit per group, jobs without one', { groups: {}, limits }, undefined],
  ['a rate, with ageing', { groups: { rate: '1/s', burst: 5 }, priorityAgeingMs: 60_000 }, 'a'],
  ['a limit per group, with ageing', { groups: {}, limits, priorityAgeingMs: 60_000 }, 'a'],
] as const)('a job that cannot start in time holds up none of its group: %s', async (_, shape, id) => {
  await held.reset(shape)
  const add = async (priority: number, cost: number, deadlineMs?: number) => {
    const mustStartBefore = deadlineMs && { mustStartBefore: Math.floor(START_US / 1000) + deadlineMs }
    const place = id ? { group: { id, priority } } : { priority }
    return (await held.add({ cost, costs: { tokens: cost }, ...place, ...mustStartBefore })).id as string
  }
  // It could start at once when it was let in; then a more important one came.
  const late = await add(1, 5, 2000)
  const [first, last] = [await add(0, 5), await add(2, 1)]
  const found = await held.drain(1, 0)
  expect(found.map((one) => one.id)).toEqual([first, late, last])
  expect(await redis.client().hexists(`${held.base}${late}`, 'defa')).toBe(1)
  // It is failed at once, and takes nothing: the last one waits for its own cost alone.
  expect(found.map(({ slotUs }) => Math.round((slotUs - START_US) / 1000))).toEqual([0, 0, 1000])
})
