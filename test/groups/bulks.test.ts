import { beforeEach, expect, test } from 'vitest'
import { GroupFullError, QueueFullError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const BY = { by: 'test', reason: 'test' }
const SHAPE = { rate: '1/h', capacity: 1000, groups: { rate: '1/h' } } as const

function job(group: string, n: number, opts: object = {}) {
  return { name: 'job', data: { n }, opts: { jobId: `${group}-${n}`, group: { id: group }, ...opts } }
}

/** The scripts that this queue sends from now on. */
async function sent(queue: ShapedQueue): Promise<string[]> {
  const backend = (await queue.getBackend().client) as unknown as {
    runCommand(name: string, args: unknown[]): Promise<unknown>
  }
  const run = backend.runCommand.bind(backend)
  const names: string[] = []
  backend.runCommand = (name, args) => {
    names.push(name.slice(name.lastIndexOf(':') + 1))
    return run(name, args)
  }
  return names
}

const SETS = ['prioritized', 'meta:groups:ready', 'meta:groups:limited', 'meta:groups:paused']

/** Where jobs and groups are, but for times. */
async function places(queue: ShapedQueue) {
  const base = queue.toKey('')
  const lines = (await client.keys(`${base}meta:group:jobs:*`)).map((key) => key.slice(base.length)).sort()
  const held = new Set(['meta:groups:limited', 'meta:groups:paused'])
  const found: Record<string, readonly string[]> = {}
  for (const key of [...SETS, ...lines])
    found[key] = await (held.has(key)
      ? client.zrange(base + key, '0', '-1')
      : client.zrange(base + key, '0', '-1', 'WITHSCORES'))
  const numbers = await client.hmget(`${base}meta:groups`, 'v', 't', 'seq')
  return { ...found, numbers, marked: await client.zscore(`${base}marker`, '0') }
}

/** A queue with a ready group, one that its rate holds, one that is paused, and one whose head has a low priority. */
async function busy(): Promise<ShapedQueue> {
  const queue = shop.queue(SHAPE)
  await queue.pauseGroup('paused', BY)
  for (const group of ['ready', 'limited', 'paused']) await queue.add('job', {}, job(group, 0).opts)
  await queue.add('job', {}, job('low', 0, { group: { id: 'low', priority: 9 } }).opts)
  const base = queue.toKey('')
  for (const [group, state] of [
    ['limited', 'limited'],
    ['paused', 'paused'],
    ['low', 'limited'],
  ] as const) {
    await client.zrem(`${base}meta:groups:ready`, group)
    await client.zadd(
      `${base}meta:groups:${state}`,
      state === 'paused' ? '+inf' : Date.now() * 1000 + 3_600_000_000,
      group,
    )
  }
  await client.del(`${base}marker`)
  return queue
}

let queue: ShapedQueue
beforeEach(async () => {
  queue = await busy()
})

test.each([
  [
    'the short script',
    'add-bulk',
    ['new', 'low', 'ready', 'limited', 'paused', 'new', 'other', 'ready'].map((group, i) => job(group, i + 1)),
  ],
  [
    'the full script',
    'add-bulk',
    ['new', 'low', 'ready', 'new'].map((group, i) => job(group, i + 1, { group: { id: group, priority: i } })),
  ],
])('a bulk puts jobs and groups where single adds put them: %s', async (_name, script, jobs) => {
  const one = await busy()
  for (const { opts } of jobs) await one.add('job', {}, opts)
  const scripts = await sent(queue)
  await queue.addBulk(jobs)
  expect(scripts).toEqual([script])
  expect(await places(queue)).toEqual(await places(one))
})

test('jobs that are there already are not added again', async () => {
  const before = await places(queue)
  const scripts = await sent(queue)
  const jobs = await queue.addBulk([job('ready', 0), job('low', 0)])
  expect(scripts).toEqual(['add-bulk'])
  expect(jobs.map(({ id }) => id)).toEqual(['ready-0', 'low-0'])
  expect({ ...(await places(queue)), marked: null }).toEqual(before)
})

test('a bulk for groups that are all held wakes no worker', async () => {
  await client.zrem(queue.toKey('meta:groups:ready'), 'ready')
  await client.zadd(queue.toKey('meta:groups:limited'), Date.now() * 1000 + 3_600_000_000, 'ready')
  await client.hdel(queue.toKey('meta:groups'), 'none-limited')
  await queue.addBulk([job('ready', 1), job('limited', 1)])
  expect(await client.zscore(queue.toKey('marker'), '0')).toBeNull()
})

test('a large bulk takes its claimed places, in its order', async () => {
  const scripts = await sent(queue)
  await queue.addBulk(
    Array.from({ length: 300 }, (_, n) => ({ name: 'job', data: { n }, opts: { group: { id: `g${n % 3}` } } })),
  )
  expect(scripts.filter((name) => name === 'add-bulk')).toHaveLength(6)
  const of = async (id: string) => (await queue.getGroupJobs(id, 0, 200)).map(({ data }) => data.n)
  expect(await of('g1')).toEqual(Array.from({ length: 100 }, (_, i) => 3 * i + 1))
})

test('a flow of more jobs than a command has room for puts each in line', async () => {
  const { connection, prefix } = redis
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  await queue.setShape({ capacity: 4000 }, BY)
  const child = (n: number) => ({ ...job(n < 300 ? 'one' : 'other', n), queueName: queue.name })
  await flows.add({ name: 'parent', queueName: queue.name, children: Array.from({ length: 600 }, (_, n) => child(n)) })
  expect([await queue.getGroupJobsCount('one'), await queue.getGroupJobsCount('other')]).toEqual([300, 300])
})

test('the bound of the queue is kept', async () => {
  await queue.setShape({ capacity: 6 }, BY)
  await expect(queue.addBulk([job('a', 1), job('b', 1), job('c', 1)])).rejects.toBeInstanceOf(QueueFullError)
  await queue.addBulk([job('a', 2), job('b', 2)])
  expect(await queue.getJobCountByTypes('prioritized')).toBe(6)
})

test('a bound that was set for one group is kept', async () => {
  await queue.setGroup('ready', { capacity: 2 }, BY)
  await expect(queue.addBulk([job('ready', 1), job('ready', 2)])).rejects.toBeInstanceOf(GroupFullError)
  await queue.addBulk([job('ready', 3), job('a', 1)])
  expect(await queue.getGroupJobsCount('ready')).toBe(2)
})

test('a parent in the same queue that a job releases goes into its own group', async () => {
  const base = queue.toKey('')
  await client.hset(`${base}child`, { name: 'child', data: '{}', opts: '{}', returnvalue: '1' })
  await client.zadd(`${base}completed`, 1, 'child')
  await client.hset(`${base}parent`, { name: 'parent', data: '{}', opts: '{"group":{"id":"ready"}}' })
  await client.zadd(`${base}waiting-children`, 1, 'parent')
  const parent = { id: 'parent', queue: queue.qualifiedName }
  await queue.addBulk([{ ...job('a', 1), opts: { jobId: 'child', group: { id: 'a' }, parent } as object }, job('b', 1)])
  expect((await queue.getGroupJobs('ready', 0, 9)).map(({ id }) => id)).toEqual(['parent', 'ready-0'])
  expect(await queue.getGroupJobsCount('a')).toBe(0)
})

test('one without a group goes before the others, as BullMQ releases it', async () => {
  const base = queue.toKey('')
  await queue.add('plain', {}, { jobId: 'plain' })
  await client.hset(`${base}child`, { name: 'child', data: '{}', opts: '{}', returnvalue: '1' })
  await client.zadd(`${base}completed`, 1, 'child')
  await client.hset(`${base}parent`, { name: 'parent', data: '{}', opts: '{}' })
  await client.zadd(`${base}waiting-children`, 1, 'parent')
  const parent = { id: 'parent', queue: queue.qualifiedName }
  const scripts = await sent(queue)
  await queue.addBulk([{ ...job('a', 1), opts: { jobId: 'child', group: { id: 'a' }, parent } as object }, job('b', 1)])
  expect(scripts).toEqual(['add-bulk'])
  expect(await client.lrange(`${base}wait`, 0, -1)).toEqual(['plain', 'parent'])
})

test('a large bulk that has no place in one of its groups adds nothing', async () => {
  await queue.setGroup('small', { capacity: 100 }, BY)
  await queue.add('job', {}, job('small', 0).opts)
  const before = await queue.getJobCountByTypes('prioritized')
  const bulk = Array.from({ length: 300 }, (_, n) => ({
    name: 'job',
    data: { n },
    opts: { group: { id: n % 3 === 0 ? 'small' : 'large' } },
  }))
  await expect(queue.addBulk(bulk)).rejects.toBeInstanceOf(GroupFullError)
  expect(await queue.getJobCountByTypes('prioritized')).toBe(before)
})

test.each([
  ['a rate alone, with the burst of all groups', { rate: '50/s' }],
  ['a burst that suffices', { burst: 5 }],
  ['a rate that has ended', { rate: '1/h', burst: 1 }, 1],
] as const)(
  'a large bulk of costly jobs is sent in parts if a group has %s of its own',
  async (_, own, ttlMs?: number) => {
    const queue = shop.queue({ capacity: 2000, groups: { rate: '100/s', burst: 10 } })
    await queue.setGroup('own', own, { ...BY, ...(ttlMs === undefined ? {} : { ttlMs }) })
    if (ttlMs !== undefined) await expect.poll(async () => (await queue.getGroup('own')).overrides).toEqual({})
    const names = await sent(queue)
    await queue.addBulk(Array.from({ length: 600 }, (_, n) => job('own', n, { cost: 2 })))
    expect(names.filter((name) => name.startsWith('add-bulk')).length).toBeGreaterThanOrEqual(3)
  },
)
