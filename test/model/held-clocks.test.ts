import { afterAll, expect, test } from 'vitest'
import { encodeShape } from '../../src/shape/shape.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())

const heldWorkersMs = async () => Number(await client.hget(`${held.base}meta:meter`, 'heldWorkers')) / 1000

test('what holds the head is accounted up to the time at which nothing is accounted any more', async () => {
  const shape = { rate: '1000/s', burst: 1000 }
  await held.reset(shape)
  for (let i = 0; i < 5; i++) await held.add()
  expect((await held.depart(1)).grants).toHaveLength(1)
  // With room in the meter, the head has lacked a worker since.
  await held.advanceTo(held.nowUs + 3_000_000)
  const { fields } = encodeShape({ ...shape, mode: 'off' })
  await held.backend.store.run('declare-shape', [JSON.stringify(fields), '', 'test'])
  expect(await heldWorkersMs()).toBe(3000)
})

test.each([
  ['a limit', { limits: [{ name: 'hour', algorithm: 'fixed-window', rate: '1000/h' }] }],
  ['a rate', { rate: '1000/s', burst: 1000 }],
] as const)('that a head lacks a worker is accounted each second, with room in %s', async (_, shape) => {
  await held.reset(shape)
  for (let i = 0; i < 5; i++) await held.add()
  expect((await held.depart(1)).grants).toHaveLength(1)
  for (const [elapsedMs, accountedMs] of [
    [600, 0],
    [500, 1100],
    [600, 1100],
    [2000, 3700],
  ] as const) {
    await held.advanceTo(held.nowUs + elapsedMs * 1000)
    expect((await held.depart(1)).grants).toHaveLength(1)
    expect(await heldWorkersMs()).toBe(accountedMs)
  }
})
