import { fastify } from 'fastify'
import { expect, onTestFinished, test, vi } from 'vitest'
import { dashboard } from '../../packages/dashboard/src/index.ts'
import { readEvents } from '../../packages/dashboard/test/server/event-reader.ts'
import { createMetrics } from '../../packages/metrics/src/index.ts'
import type { Shape } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { PartReads } from '../../src/inspect/parts.ts'
import { QueueLists } from '../../src/inspect/queue-lists.ts'
import { headPrefix, shardPrefix, slotOfKey } from '../../src/redis/shards.ts'
import { fakeCluster, type Unanswered } from '../support/fake-cluster.ts'
import { useRedis } from '../support/redis.ts'
import { ShardShop } from './support/shop.ts'

const redis = useRedis(import.meta.url)
const { connection, prefix } = redis
const SHAPE = { rate: '600/s', burst: 6, capacity: 90 } as const

async function filled(name: string, shape: Shape = SHAPE) {
  const queue = new ShardShop({ connection, prefix }).queue(name, { shards: 3, shape })
  for (let shard = 0; shard < 3; shard++) await queue.add('job', {})
  onTestFinished(() => queue.obliterate({ force: true }))
  return queue
}

const clusterWithout = (away: Set<string>, unanswered?: Unanswered) =>
  fakeCluster(redis.client(), away, unanswered ? { unanswered } : {})

test('a part that does not answer is not waited for again, until it has', async () => {
  const reads = new PartReads(20)
  let answer: (value: string) => void = () => {}
  let asked = 0
  const ask = () => {
    asked += 1
    return new Promise<string>((resolve) => {
      answer = resolve
    })
  }
  const late = await reads.read('{a}:q:', ask)
  expect('error' in late && late.error.message).toContain('the node of {a}:q:* has not answered within 20 ms')
  expect(await reads.read('{a}:q:', ask)).toEqual(late)
  expect(await reads.read('{b}:q:', async () => 1)).toEqual({ value: 1 })
  expect(asked).toBe(1)
  answer('back')
  await new Promise(setImmediate)
  expect(await reads.read('{a}:q:', async () => 2)).toEqual({ value: 2 })
})

test('a node that did not answer is left alone for 5 s after the wait, whichever of its parts is asked for', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const reads = new PartReads(5000, (key) => key.slice(0, 3))
  const asked: string[] = []
  const read = (key: string) =>
    reads.read(key, () => {
      asked.push(key)
      return new Promise<never>(() => {})
    })
  const first = read('{a}:q:')
  await vi.advanceTimersByTimeAsync(5000)
  expect(await first).toHaveProperty('error')
  expect(await read('{a}:q:')).toEqual(await first)
  expect(await read('{a}:other:')).toHaveProperty('error')
  await vi.advanceTimersByTimeAsync(4999)
  expect(await read('{a}:q:')).toHaveProperty('error')
  expect(asked).toEqual(['{a}:q:'])
  await vi.advanceTimersByTimeAsync(1)
  const again = read('{a}:other:')
  await vi.advanceTimersByTimeAsync(5000)
  expect(await again).toHaveProperty('error')
  expect(asked).toEqual(['{a}:q:', '{a}:other:'])
})

/** Names of queues whose heads and first shards all have slots of their own, so that each can be on a node of its own. */
function namesApart(count: number): string[] {
  const [names, taken] = [[] as string[], new Set<number>()]
  for (let i = 0; names.length < count; i++) {
    const slots = [headPrefix(prefix, `many${i}`), shardPrefix(prefix, `many${i}`, 0)].map(slotOfKey)
    if (new Set(slots).size < slots.length || slots.some((slot) => taken.has(slot))) continue
    for (const slot of slots) taken.add(slot)
    names.push(`many${i}`)
  }
  return names
}

test('a call waits once for a node that does not answer, however many queues it reads', async () => {
  const names = namesApart(31)
  const real = redis.client()
  await real.hset(`${prefix}:sharded-queues`, Object.fromEntries(names.map((name) => [name, '1'])))
  const shards = names.map((name) => shardPrefix(prefix, name, 0))
  const bases = [...shards, ...names.map((name) => headPrefix(prefix, name))]
  const keys = bases.map((base, i) => `${base}:${names[i % names.length]}:meta:shape`)
  for (const key of keys) await real.hset(key, 'rate', '1')
  onTestFinished(async () => void (await real.del(`${prefix}:sharded-queues`, ...keys)))
  const asked: unknown[] = []
  const { client, slots } = clusterWithout(new Set(shards), (args) => {
    asked.push(...args)
    return new Promise(() => {})
  })
  for (const base of bases) slots[slotOfKey(base)] = [shards.includes(base) ? 'silent' : 'well']
  const found = await new Inspector({ connection: client, prefix }).status(names)
  expect(found.map((status) => status?.unread)).toEqual(names.map(() => [0]))
  const isAsked = (shard = '') => asked.some((arg) => String(arg).startsWith(shard))
  expect(shards.map(isAsked)).toEqual(names.map((_, i) => i < 30))
})

test('of names that no queue has, those asked for last are remembered', async () => {
  const away = new Set<string>()
  const lists = new QueueLists(clusterWithout(away).client, prefix, new PartReads(5000))
  const names = Array.from({ length: 1200 }, (_, i) => `none${i}`)
  for (let from = 0; from < names.length; from += 100) await lists.shardedAmong(names.slice(from, from + 100))
  away.add(`${prefix}:sharded-queues`)
  expect(await lists.shardedAmong(['none200', 'none1199'])).toEqual(new Map())
  await expect(lists.shardedAmong(['none199'])).rejects.toThrow('Connection is closed.')
})

test('a shard that is away is marked in its own queue, and views of other queues are as before', async () => {
  await filled('hurt')
  await filled('well')
  const away = new Set<string>()
  const { client, times } = clusterWithout(away)
  const inspector = new Inspector({ connection: client, prefix })
  const before = await inspector.status(['hurt', 'well'])
  expect(before.map((status) => status?.unread)).toEqual([undefined, undefined])
  expect(times).toEqual([])

  away.add(shardPrefix(prefix, 'hurt', 1))
  // The plain keys of a sharded queue are nowhere, and may belong to the node that is away.
  away.add(`${prefix}:hurt:`)
  const [hurt, well] = await inspector.status(['hurt', 'well'])
  expect(well).toMatchObject({ depth: 3, rate: '600/s' })
  expect(well?.unread).toBeUndefined()
  expect(hurt).toMatchObject({ depth: 2, rate: '600/s', capacity: 90, unread: [1] })
  expect(hurt?.shards?.map(({ shard }) => shard)).toEqual([0, 2])
  expect(await inspector.fullest(['hurt', 'well'], 2)).toEqual(['well', 'hurt'])
  await expect(inspector.jobs('hurt', 'waiting')).rejects.toThrow('Connection is closed.')
  expect(await inspector.jobs('well', 'waiting')).toHaveLength(3)

  away.add(headPrefix(prefix, 'hurt'))
  const [headless] = await inspector.status(['hurt'])
  expect(headless).toMatchObject({ depth: 2, shape: undefined, unread: ['head', 1] })
  expect(headless?.capacity).toBeLessThan(90)
  for (const shard of [0, 2]) away.add(shardPrefix(prefix, 'hurt', shard))
  const [unknown, still] = await inspector.status(['hurt', 'well'])
  expect(unknown).toMatchObject({ name: 'hurt', depth: 0, shape: undefined, shards: [], unread: ['head', 0, 1, 2] })
  expect(still).toMatchObject({ depth: 3, rate: '600/s' })
})

test('the page of a queue with a shard that is away is live and says so, and the events of others go on', async () => {
  await filled('lame')
  await filled('fine')
  const away = new Set<string>()
  const app = fastify()
  onTestFinished(() => app.close())
  await app.register(dashboard({ connection: clusterWithout(away).client, prefix }))
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  away.add(shardPrefix(prefix, 'lame', 1)).add(`${prefix}:lame:`)
  const lame = await (await fetch(`${url}/api/queues/lame`)).json()
  expect(lame).toMatchObject({ status: { depth: 2, unread: [1] }, history: [] })
  const list = await fetch(`${url}/api/queues/lame/jobs?state=waiting`)
  expect(await list.json()).toMatchObject({ status: 503, detail: 'Redis cannot be reached' })
  const readers = await Promise.all(
    ['lame', 'fine'].map((name) => readEvents(`${url}/api/events?queue=${name}&fleet=false`)),
  )
  for (const reader of readers) {
    for (let turn = 0; turn < 3; turn++) expect((await reader.next())?.event).toBe('queue')
    reader.close()
  }
})

test('on a cluster, the clock of the node with the keys counts, since any other may be away', async () => {
  const queue = await filled('timed', { ...SHAPE, groups: {} })
  const job = await queue.add('job', {}, { group: { id: 'a' } })
  const shard = shardPrefix(prefix, 'timed', Number(job.id?.split('-')[0]))
  const { client, times } = clusterWithout(new Set())
  for (const inspector of [prefix, shard].map((at) => new Inspector({ connection: client, prefix: at }))) {
    expect((await inspector.status(['timed']))[0]?.waiting).toBeGreaterThan(0)
    expect(await inspector.groups('timed')).toMatchObject({ waiting: 1 })
    expect(await inspector.group('timed', 'a')).toMatchObject({ waiting: 1 })
    expect(await inspector.groupOverrides('timed')).toEqual({})
    expect(await inspector.explain('timed', job.id as string)).toMatchObject({ state: 'prioritized' })
  }
  expect(times).toEqual([])
})

test('a list that cannot be read any more counts as it was', async () => {
  await filled('listed')
  const away = new Set<string>()
  const { client } = clusterWithout(away)
  const inspector = new Inspector({ connection: client, prefix })
  expect(await inspector.queues()).toEqual(['listed'])
  expect((await inspector.status(['listed']))[0]?.shards).toHaveLength(3)
  away.add(`${prefix}:sharded-queues`)
  expect(await inspector.queues()).toEqual(['listed'])
  expect((await inspector.status(['listed']))[0]?.shards).toHaveLength(3)
  // Nothing is known of it: it may be a sharded one.
  await expect(inspector.status(['other'])).rejects.toThrow('Connection is closed.')
})

test('metrics leave out a queue with an unread shard, rather than count back, and go on where they were', async () => {
  await filled('gap')
  await filled('rest')
  const away = new Set<string>()
  const metrics = createMetrics({ connection: clusterWithout(away).client, prefix, groups: 5 })
  onTestFinished(() => metrics.close())
  expect(await metrics.text()).toContain('sluice_accepted_total{queue="gap"} 3')
  away.add(shardPrefix(prefix, 'gap', 0))
  const hurt = await metrics.text()
  expect(hurt).toContain('sluice_accepted_total{queue="rest"} 3')
  expect(hurt).toContain('sluice_unread_queues{queue="gap"} 1')
  expect(hurt).not.toContain('sluice_accepted_total{queue="gap"}')
  for (const text of [headPrefix, shardPrefix].map((of) => of(prefix, 'gap', 1))) away.add(text)
  away.add(shardPrefix(prefix, 'gap', 2))
  const lost = await metrics.text()
  expect(lost).toMatch(/^sluice_up 1$/m)
  expect(lost).toContain('sluice_accepted_total{queue="rest"} 3')
  expect(lost).toContain('sluice_unread_queues{queue="gap"} 1')
  for (const text of [
    headPrefix,
    ...[0, 1, 2].map((shard) => (on: string, name: string) => shardPrefix(on, name, shard)),
  ])
    away.add(text(prefix, 'rest'))
  const none = await metrics.text()
  expect(none).toMatch(/^sluice_up 0$/m)
  expect(none).toContain('sluice_accepted_total{queue="rest"} 3')
  away.clear()
  const all = await metrics.text()
  expect(all).toContain('sluice_accepted_total{queue="gap"} 3')
  expect(all).not.toContain('sluice_unread_queues{')
})
