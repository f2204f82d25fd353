import { afterAll, describe, expect, test } from 'vitest'
import type { QueueLimit, Shape } from '../../src/index.ts'
import { LimitClient } from '../../src/limits/limit-client.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { HeldQueue, START_US } from '../model/held-queue.ts'
import { storedMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'

// Only what a job was charged is given back when it cost less.
const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const other = new HeldQueue(redis, redis.client(), 'other')
afterAll(() => Promise.all([held.close(), other.close()]))

const SIZE = 10

const settle = (id: string | undefined, actual: number, attempt = 1) => {
  const args = [id as string, attempt, JSON.stringify({ '': actual }), '60000']
  return held.backend.store.run('settle-cost', args)
}

/** @returns how many jobs leave now */
const leave = async (queue = held) => (await queue.depart(1)).grants.length

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

describe('of a shared limit', () => {
  const limits = LimitClient.of(redis.client())
  let names = 0
  const sharedLimit = () => {
    names += 1
    const name = `shared${names}`
    const limit: QueueLimit = { ...WINDOW, name, shared: true, prefix: redis.prefix }
    return { limit, control: `${redis.prefix}:limit:{${name}}` }
  }

  /** Jobs of the two queues that share it, each of which costs all of it. */
  const begin = async (limit: QueueLimit, shape: Shape = {}) => {
    await held.reset({ limits: [limit], ...shape })
    await other.reset({ limits: [limit] })
    for (let i = 0; i < 2; i++) await other.add({ cost: SIZE })
    return held.add({ cost: SIZE })
  }

  test('a queue in shadow mode gives nothing back, as it may not have been charged', async () => {
    const { limit } = sharedLimit()
    const { id } = await begin(limit, { mode: 'shadow' })
    expect([await leave(other), await leave()]).toEqual([1, 1])
    await settle(id, 0)
    expect(await leave(other)).toBe(0)
  })

  test('a job that left while the switch of the limit was on shadow gives nothing back', async () => {
    const { limit, control } = sharedLimit()
    const setMode = (mode: string) => limits.run('set-limit-mode', [control], [mode, held.nowUs])
    const { id } = await begin(limit)
    await setMode('shadow')
    expect([await leave(other), await leave()]).toEqual([1, 1])
    await held.advanceTo(START_US + 1)
    await setMode('enforce')
    await settle(id, 0)
    expect(await leave(other)).toBe(0)
  })

  test('a job that left before the state was reset gives nothing back', async () => {
    const { limit, control } = sharedLimit()
    const { id } = await begin(limit)
    expect([await leave(), await leave(other)]).toEqual([1, 0])
    const [state] = await redis.client().keys(`${control}:f:*`)
    expect(await limits.run('reset-key', [control, state as string], [])).toBe(1)
    expect(await leave(other)).toBe(1)
    await settle(id, 0)
    expect(await leave(other)).toBe(0)
  })
})

test('a job that left while there were no groups gives nothing back to the limit of one group', async () => {
  const { limits } = encodeShape({ groups: {}, limits: [{ ...WINDOW, by: 'group' }] }).fields
  await held.reset({})
  const { store } = held.backend
  await store.override({ groups: '{}' }, 'ops', 'test', 1000)
  await store.override({ limits: limits as string }, 'ops', 'test', undefined)
  await held.advanceTo(START_US + 2_000_000)
  const opts = { cost: SIZE }
  const { id } = await held.add(opts)
  expect(await leave()).toBe(1)
  await store.override({ groups: '{}' }, 'ops', 'test', undefined)
  for (let i = 0; i < 2; i++) await held.add(opts)
  expect(await leave()).toBe(1)
  await settle(id, 0)
  expect(await leave()).toBe(0)
})

test('an attempt that was replaced by another gives nothing back: its slot is that of the other', async () => {
  await held.reset({ rate: { limit: 10, period: 30_000 }, burst: SIZE })
  const { id } = await held.add({ cost: SIZE })
  expect(await leave()).toBe(1)
  await held.advanceTo(START_US + 30_000_000)
  // It stalled: another worker starts it.
  const client = redis.client()
  await client.lrem(`${held.base}active`, 1, id as string)
  await client.rpush(`${held.base}wait`, id as string)
  expect(await leave()).toBe(1)
  await held.add({ cost: SIZE - 1 })
  expect(await settle(id, 0, 1)).toBe(0)
  expect(await leave()).toBe(0)
  expect(await settle(id, 0, 2)).toBe(1)
  expect(await leave()).toBe(1)
})

test('a credit wakes a worker; a cost that has come back already changes nothing, and what cost more wakes none', async () => {
  await held.reset({ rate: '10/s', burst: SIZE })
  const [old, last] = [await held.add({ cost: SIZE }), await held.add({ cost: SIZE })]
  await leave()
  await held.advanceTo(START_US + 1_500_000)
  await leave()
  const [client, listener] = [redis.client(), redis.client()]
  await client.zadd(`${held.base}meta:sleepers`, held.nowUs + 1_000_000, 'sleeper')
  const woken: string[] = []
  const channel = `${held.base}meta:wake`
  await listener.subscribe(channel)
  listener.on('message', (_channel, worker: string) => woken.push(worker))
  const heard = async () => {
    const end = new Promise((resolve) => listener.on('message', (_channel, worker) => worker === 'end' && resolve('')))
    await client.publish(channel, 'end')
    await end
    return woken.splice(0).filter((worker) => worker !== 'end')
  }
  const seq = async () => (await storedMeter(client, held.base)).seq
  const before = await seq()
  expect([await settle(old.id, 0), await heard(), await seq()]).toEqual([0, [], before])
  expect([await settle(last.id, SIZE + 1), await heard()]).toEqual([1, []])
  expect([await settle(last.id, 1), await heard()]).toEqual([1, ['sleeper']])
})
