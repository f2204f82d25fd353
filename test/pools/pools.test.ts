import { afterEach, expect, test } from 'vitest'
import { audit } from '../../src/audit/audit.ts'
import {
  InvalidLimitError,
  InvalidShapeError,
  type QueueLimit,
  type Shape,
  ShapedQueue,
  ShapedWorker,
  UnsupportedOptionError,
} from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { ShardedQueue } from '../../src/sharding/index.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const options = { connection: redis.connection, prefix: redis.prefix }
const KEYS: QueueLimit = { name: 'keys', pool: ['a', 'b', 'c'], rate: '10/s' }
const BY = { by: 'ops', reason: 'test' }

const opened: { close(): Promise<void> }[] = []

afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close()
})

function queueOf(name: string, shape: Shape) {
  // On a busy machine late jobs would go back and depart twice.
  const queue = new ShapedQueue(name, { ...options, shape: { maxLatenessMs: 60_000, ...shape } })
  opened.push(queue)
  return queue
}

interface Left {
  readonly name: string
  readonly member: string | undefined
  readonly atUs: number
}

/** Runs jobs; those of `fails` throw at their first attempt. */
function workerOf(name: string, concurrency = 10, run = async (_job: { name: string; attemptsMade: number }) => {}) {
  const left: Left[] = []
  const worker = new ShapedWorker(
    name,
    async (job) => {
      const { pool, departureTimeUs = 0 } = job.departure ?? {}
      left.push({ name: job.name, member: pool?.keys, atUs: departureTimeUs })
      await run(job)
    },
    { ...options, concurrency },
  )
  opened.push(worker)
  return { worker, left }
}

function members(left: readonly Left[]): string {
  return left.map(({ member = '-' }) => member).join('')
}

async function until(left: readonly Left[], count: number) {
  await expect.poll(() => left.length, { timeout: 10_000, interval: 5 }).toBe(count)
}

const jobs = (count: number, opts = {}) => Array.from({ length: count }, (_, i) => ({ name: `${i}`, data: 0, opts }))

test('members take turns, and their sum is the bound of the queue', async () => {
  const queue = queueOf('turns', { limits: [KEYS], audit: 100 })
  await queue.addBulk(jobs(12))
  const { left } = workerOf('turns')
  await until(left, 12)
  expect(members(left)).toBe('abcabcabcabc')
  const [first, last] = [left[0]!.atUs, left.at(-1)!.atUs]
  expect(last - first).toBeGreaterThanOrEqual(300_000)
  const inspector = new Inspector({ connection: redis.connection, prefix: redis.prefix })
  const kept = await inspector.audit('turns')
  const { rows = [] } = (await inspector.limitValues('turns')) ?? {}
  expect(rows.map(({ limit, keys, most }) => [limit, keys.member, most]).toSorted()).toEqual([
    ['keys', 'a', 1],
    ['keys', 'b', 1],
    ['keys', 'c', 1],
  ])
  await inspector.close()
  expect(kept.map(({ members: its }) => its?.keys).join('')).toBe('abcabcabcabc')
  expect(audit(kept, { limits: [KEYS] })).toMatchObject({ broken: false, limits: [{ departures: 12, broken: false }] })
  const slower = { ...KEYS, rate: '5/s' }
  expect(audit(kept, { limits: [slower] })).toMatchObject({
    broken: true,
    limits: [{ keys: { member: 'a' }, broken: true }],
  })
})

test('a job that goes back, by a delay or a retry, departs with another member', async () => {
  const queue = queueOf('retries', { limits: [KEYS] })
  await queue.addBulk(jobs(3, { attempts: 2 }))
  const { left } = workerOf('retries', 1, async ({ name, attemptsMade }) => {
    if (name === '0' && attemptsMade === 0) throw new Error('again')
  })
  await until(left, 4)
  expect(members(left)).toBe('abca')
})

test('a job that takes nothing departs with no member', async () => {
  const queue = queueOf('free', { limits: [{ ...KEYS, unit: 'calls' }] })
  await queue.add('free', 0, { costs: { calls: 0 } })
  await queue.add('one', 0)
  const { left } = workerOf('free', 1)
  await until(left, 2)
  expect(members(left)).toBe('-a')
})

test.each(['shadow', 'off'] as const)(
  'in the mode %s of the limit nothing waits, and members take turns',
  async (mode) => {
    const name = `mode-${mode}`
    const queue = queueOf(name, { limits: [{ ...KEYS, mode, rate: '1/min' }] })
    await queue.addBulk(jobs(5))
    const { left } = workerOf(name)
    await until(left, 5)
    expect(members(left)).toBe('abcab')
  },
)

test('places of a pool are those of its members', async () => {
  const queue = queueOf('places', {
    limits: [{ name: 'keys', pool: ['a', 'b'], algorithm: 'concurrency', concurrency: 2 }],
  })
  await queue.addBulk(jobs(6))
  const open: (() => void)[] = []
  const { left } = workerOf('places', 10, () => new Promise<void>((resolve) => open.push(resolve)))
  await until(left, 4)
  expect(members(left)).toBe('abab')
  expect((await queue.getLimit('keys', 'a')).remaining).toBe(0)
  await new Promise((resolve) => setTimeout(resolve, 100))
  expect(left).toHaveLength(4)
  open[1]!()
  await until(left, 5)
  expect(left[4]!.member).toBe('b')
  for (;;) {
    for (const one of open.splice(0)) one()
    if (left.length === 6 && open.length === 0) break
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
})

test('members are held, set apart, added and removed at run time', async () => {
  const queue = queueOf('changed', { limits: [{ ...KEYS, rate: '1/min' }] })
  await queue.setLimit('keys', 'b', { held: true }, BY)
  await queue.setLimit('keys', 'c', { rate: null }, BY)
  await queue.addBulk(jobs(6))
  const { left } = workerOf('changed', 1)
  await until(left, 6)
  expect(members(left)).toBe('accccc')
  expect(await queue.getLimit('keys', 'b')).toMatchObject({
    ...{
      keys: { member: 'b' },
      inForce: { held: true, rate: '1/min' },
      overrides: { held: { by: 'ops' } },
      remaining: 1,
    },
  })
  await queue.clearLimit('keys', 'c', BY)
  await queue.addBulk(jobs(3))
  await until(left, 7)
  expect(left[6]!.member).toBe('c')
  await queue.clearLimit('keys', 'b', BY)
  await until(left, 8)
  expect(left[7]!.member).toBe('b')
  await queue.setShape({ limits: [{ ...KEYS, pool: ['d'], rate: '1/min' }] }, BY)
  await until(left, 9)
  expect(left[8]!.member).toBe('d')
  await expect(queue.getLimit('keys', 'a')).rejects.toThrow('the pool of limit "keys" has no member "a"; it has d')
})

test('a hold ends on time', async () => {
  const queue = queueOf('ends', { limits: [{ ...KEYS, pool: ['a'] }] })
  await queue.setLimit('keys', 'a', { held: true }, { ...BY, ttlMs: 300 })
  const { overrides, retryAfterMs } = await queue.getLimit('keys', 'a')
  expect(retryAfterMs).toBeGreaterThan(100)
  await queue.add('one', 0)
  const { left } = workerOf('ends')
  await until(left, 1)
  expect(left[0]!.atUs).toBeGreaterThanOrEqual(Number(overrides.held?.until) * 1000)
  expect((await queue.getLimit('keys', 'a')).overrides).toEqual({})
})

test('a job starts as soon as the slower rates of all members end', async () => {
  const queue = queueOf('slow', { limits: [{ ...KEYS, pool: ['a', 'b'] }] })
  const { left } = workerOf('slow')
  for (const member of ['a', 'b']) await queue.setLimit('keys', member, { rate: '1/h' }, { ...BY, ttlMs: 1000 })
  const { overrides } = await queue.getLimit('keys', 'a')
  await queue.addBulk(jobs(3))
  await until(left, 3)
  const endsUs = Number(overrides.rate?.until) * 1000
  expect(left[2]!.atUs).toBeGreaterThanOrEqual(endsUs)
  expect(left[2]!.atUs).toBeLessThan(endsUs + 500_000)
})

test('a worker that is full has another one start the job as soon as they end', async () => {
  const queue = queueOf('full', { rate: '2/s', limits: [{ ...KEYS, pool: ['a'], burst: 2 }] })
  await queue.setLimit('keys', 'a', { rate: '1/h' }, { ...BY, ttlMs: 2000 })
  const { overrides } = await queue.getLimit('keys', 'a')
  await queue.addBulk(jobs(3))
  let end = () => {}
  const long = new Promise<void>((resolve) => {
    end = resolve
  })
  const run = async ({ name }: { name: string }) => (name === '1' ? long : undefined)
  const workers = [workerOf('full', 1, run), workerOf('full', 1, run)]
  const all = () => workers.flatMap(({ left }) => left)
  await expect
    .poll(() => all().length, { timeout: 10_000, interval: 5 })
    .toBe(3)
    .finally(end)
  const last = all().find(({ name }) => name === '2')!
  expect(last.atUs).toBeGreaterThanOrEqual(Number(overrides.rate?.until) * 1000)
})

test('what a job cost more or less is charged to its member', async () => {
  const limit: QueueLimit = { name: 'keys', pool: ['a', 'b'], rate: '1/min', burst: 10, unit: 'tokens' }
  const queue = queueOf('settled', { limits: [limit] })
  await queue.addBulk(jobs(2, { costs: { tokens: 4 } }))
  const worker = new ShapedWorker(
    'settled',
    (job) => job.settleCost({ tokens: job.departure?.pool?.keys === 'a' ? 7 : 1 }),
    { ...options, concurrency: 1 },
  )
  opened.push(worker)
  await expect.poll(() => queue.getCompletedCount()).toBe(2)
  expect((await queue.getLimit('keys', 'a')).remaining).toBe(3)
  expect((await queue.getLimit('keys', 'b')).remaining).toBe(9)
  await queue.chargeLimit('keys', 'b', 5)
  expect((await queue.getLimit('keys', 'b')).remaining).toBe(4)
})

test('a job of a removed member settles nothing', async () => {
  const limit: QueueLimit = { name: 'keys', pool: ['a', 'b'], rate: '1/min', burst: 10, unit: 'tokens' }
  const queue = queueOf('removed', { limits: [limit] })
  await queue.add('one', 0, { costs: { tokens: 4 } })
  const worker = new ShapedWorker(
    'removed',
    async (job) => {
      await queue.setShape({ limits: [{ ...limit, pool: ['b'] }] }, BY)
      await job.settleCost({ tokens: 9 })
    },
    options,
  )
  opened.push(worker)
  await expect.poll(() => queue.getCompletedCount()).toBe(1)
  expect((await queue.getLimit('keys', 'b')).remaining).toBe(10)
})

test('a group keeps its member while that conforms', async () => {
  const limit: QueueLimit = { ...KEYS, rate: '1/min', burst: 10, sticky: 'group' }
  const queue = queueOf('sticky', { groups: {}, limits: [limit] })
  await queue.addBulk(
    ['x', 'y', 'z', 'w'].flatMap((id) => jobs(2).map((job) => ({ ...job, name: id, opts: { group: { id } } }))),
  )
  const { left } = workerOf('sticky', 1)
  await until(left, 8)
  const pairs = new Set(left.map(({ name, member }) => `${name} ${member}`))
  expect(pairs.size).toBe(4)
  expect(new Set(left.map(({ member }) => member)).size).toBeGreaterThan(1)
})

test('wrong pools are refused', () => {
  const wrong = (limit: object, groups?: object) => () =>
    new ShapedQueue('wrong', { ...options, shape: { limits: [{ ...KEYS, ...limit }], ...groups } as Shape })
  const of = (why: string) => `limit "keys" has a pool and ${why}: leave one of them out`
  expect(wrong({ pool: [] })).toThrow(InvalidLimitError)
  expect(wrong({ pool: ['a b'] })).toThrow('must be a list of 1 to 100 names')
  expect(wrong({ pool: 'a' })).toThrow('got "a"')
  expect(wrong({ pool: ['a', 'a'] })).toThrow('pool of limit "keys" has "a" twice')
  expect(wrong({ by: 'group' }, { groups: {} })).toThrow(of('by, but a job names no member'))
  expect(wrong({ shared: true })).toThrow(of('shared, but members are those of one queue'))
  expect(wrong({ tiers: { gold: { rate: '1/s' } } })).toThrow(of('tiers, but a member is set apart with setLimit'))
  expect(wrong({ reservedShare: 0.5 })).toThrow(of('reservedShare, but no limiter takes of it'))
  expect(wrong({ sticky: 'job' })).toThrow("sticky must be 'group'")
  expect(wrong({ sticky: 'group' })).toThrow(InvalidShapeError)
  expect(wrong({ pool: undefined, sticky: 'group' })).toThrow('has sticky, which is about members: set pool')
  expect(() => new ShardedQueue('wrong', { ...options, shards: 2, shape: { limits: [KEYS] } })).toThrow(
    UnsupportedOptionError,
  )
})

test('what is set for members is checked', async () => {
  const queue = queueOf('checked', { limits: [KEYS, { name: 'model', by: 'model', rate: '1/s' }] })
  await expect(queue.setLimit('keys', 'x', { held: true }, BY)).rejects.toThrow('has no member "x"')
  await expect(queue.setLimit('keys', 'a', { held: false as never }, BY)).rejects.toThrow('held must be true')
  await expect(queue.setLimit('keys', 'a', { tier: 'gold' }, BY)).rejects.toThrow('has no tier "gold"')
  await expect(queue.setLimit('model', 'x', { held: true }, BY)).rejects.toThrow('limit "model" of gcra has no held')
  await expect(queue.getLimit('none', 'x')).rejects.toThrow('has no limit "none" with by or pool; it has keys, model')
})
