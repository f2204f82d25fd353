import { expect, test } from 'vitest'
import { holdText } from '../../packages/cli/src/queue-text.ts'
import {
  InvalidLimitError,
  InvalidShapeError,
  type QueueLimit,
  type ShapedJob,
  type ShapedQueue,
} from '../../src/index.ts'
import { encodeQueueLimits } from '../../src/limits/queue-limits.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const bulk = (group: string | undefined, count: number, tokens: number) =>
  Array.from({ length: count }, () => ({
    name: group ?? 'none',
    data: {},
    opts: { costs: { tokens }, ...(group === undefined ? {} : { group: { id: group } }) },
  }))

const tokens = (rule: Partial<QueueLimit>): QueueLimit => ({ name: 'tokens', by: 'group', unit: 'tokens', ...rule })

test('each tenant keeps its tokens, over two workers, and all together the rate of the queue', async () => {
  const queue = shop.queue({ rate: '500/s', groups: {}, limits: [tokens({ rate: '100/s', burst: 10 })] })
  await queue.addBulk([...bulk('a', 20, 2), ...bulk('b', 20, 2), ...bulk('free', 20, 0), ...bulk(undefined, 10, 2)])
  const workers = [1, 2].map(() => shop.worker(queue, async () => {}, { concurrency: 10 }))
  const departures = await departuresOf(...workers).reach(70)
  const slotsOf = (name?: string) =>
    departures.filter((one) => !name || one.name === name).map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slotsOf(), 2000, 1)).toBeLessThanOrEqual(rounding(2000))
  for (const name of ['a', 'b', 'none']) {
    const slots = slotsOf(name)
    // A job of two tokens is two units: five may leave at once, then one each 20 ms.
    expect(excess(slots, 20_000, 5)).toBeLessThanOrEqual(rounding(20_000))
  }
})

test('what a request really took is settled in the tokens of its tenant', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '1000/day', burst: 100 })] })
  await queue.addBulk([...bulk('a', 1, 10), ...bulk('b', 1, 10)])
  const settle = async (job: ShapedJob) => void (await job.settleCost({ tokens: job.name === 'a' ? 100 : 1 }))
  const worker = shop.worker(queue, settle as never)
  await eventsOf('completed', worker).reach(2)
  const departed = departuresOf(worker)
  await queue.addBulk([...bulk('a', 1, 10), ...bulk('b', 2, 49)])
  await departed.reach(2)
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 1, heldBy: 'tokens' })
  expect(departed.all.map(({ name }) => name)).toEqual(['b', 'b'])
})

test('a job that goes before the one that waits for its tokens does not wait for those', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '10/day', burst: 10 })] })
  await queue.addBulk(
    [1, 2].map(() => ({ name: 'a', data: {}, opts: { costs: { tokens: 10 }, group: { id: 'a', priority: 1 } } })),
  )
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 1 })
  await queue.addBulk(
    [
      { name: 'late', priority: 2 },
      { name: 'free', priority: 0 },
    ].map(({ name, priority }) => ({
      name,
      data: {},
      opts: { costs: { tokens: 0 }, group: { id: 'a', priority } },
    })),
  )
  expect((await departed.reach(2)).map(({ name }) => name)).toEqual(['a', 'free'])
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 2, heldBy: 'tokens' })
})

test('a job that was removed holds its group no longer', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '10/day', burst: 10 })] })
  const jobs = await queue.addBulk([...bulk('a', 2, 10), ...bulk('a', 1, 0)])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 2 })
  await queue.remove(jobs[1]!.id as string)
  expect((await departed.reach(2)).map(({ id }) => id)).toEqual([jobs[0]!.id, jobs[2]!.id])
})

test('a retry takes its tokens again', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '1000/day', burst: 10 })] })
  await queue.add('a', {}, { costs: { tokens: 4 }, group: { id: 'a' }, attempts: 5 })
  const worker = shop.worker(queue, async () => {
    throw new Error('on purpose')
  })
  await eventsOf('failed', worker).reach(2)
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 1, heldBy: 'tokens' })
})

test('a job says that a limit of its group holds it, and when that lets it go', async () => {
  const queue = shop.queue({ rate: '100/s', groups: { rate: '100/s' }, limits: [tokens({ rate: '10/h', burst: 10 })] })
  const jobs = await queue.addBulk(bulk('a', 3, 10))
  await departuresOf(shop.worker(queue, async () => {})).reach(1)
  await expect.poll(() => queue.getGroupStatus('a')).toBe('limited')
  const inspector = inspectorOf(redis, shop)
  const { at, hold, startsAt, assumptions, group } = (await inspector.explain(queue.name, jobs[2]!.id!))!
  expect(hold).toMatchObject({ cause: 'limits', limit: 'tokens', group: 'a' })
  expect(holdText(hold!)).toBe('limit tokens of group a')
  expect(assumptions[0]).toBe('Limit "tokens" of group "a" allows it then, if the jobs ahead of it take as much.')
  const inMs = startsAt!.getTime() - at.getTime()
  expect(inMs).toBeGreaterThan(7_100_000)
  expect(inMs).toBeLessThanOrEqual(7_200_000)
  expect(group).toMatchObject({ id: 'a', heldBy: 'tokens' })
  const view = (await inspector.groups(queue.name, { count: 3 }))!
  expect(view.held).toMatchObject([{ id: 'a', status: 'limited', heldBy: 'tokens' }])
})

test.each<[string, Partial<QueueLimit>]>([
  ['key', { key: 'a' }],
  ['tiers', { tiers: { pro: { rate: '2/s' } } }],
])('a shared limit per group that has %s is refused', (field, more) => {
  const limits = [tokens({ rate: '1/s', shared: true, ...more })]
  expect(() => shop.queue({ groups: {}, limits })).toThrow(InvalidLimitError)
  expect(() => shop.queue({ groups: {}, limits })).toThrow(`leave ${field} out`)
})

const LIST = 'a name, or a list of 1 to 4 names, of 1 to 64 letters'

test.each<[unknown, string]>([
  [null, `must be ${LIST}`],
  [7, `must be ${LIST}`],
  [{ group: true }, `must be ${LIST}`],
  ['', `must be ${LIST}`],
  ['mo:del', `must be ${LIST}`],
  ['x'.repeat(65), `must be ${LIST}`],
  [[], `must be ${LIST}`],
  [['group', 'a', 'b', 'c', 'd'], `must be ${LIST}`],
  [['group', 3], `must be ${LIST}`],
  [['group', 'group'], 'has a name twice'],
  ['queue', "may not name 'queue'"],
  [['group', 'queue'], "may not name 'queue'"],
])('a limit by %j is refused', (by, why) => {
  const limit = { ...tokens({ rate: '1/s' }), by } as QueueLimit
  expect(() => shop.queue({ groups: {}, limits: [limit] })).toThrow(InvalidLimitError)
  expect(() => shop.queue({ groups: {}, limits: [limit] })).toThrow(`by of limit "tokens" ${why}`)
  expect(() => shop.queue({ groups: {}, limits: [limit] })).toThrow(`; got ${JSON.stringify(by)}`)
})

test('a shape has at most eight limits with by, beside any number of others', () => {
  const limits = (count: number, by?: 'group') =>
    Array.from({ length: count }, (_, i) => ({ name: `${by}${i}`, rate: '9/s', ...(by ? { by } : {}) }))
  shop.queue({ groups: {}, limits: [...limits(9), ...limits(8, 'group')] })
  expect(() => shop.queue({ groups: {}, limits: limits(9, 'group') })).toThrow(
    new InvalidLimitError('shape.limits may have at most 8 limits with by; got 9'),
  )
})

test('a list of one name means the same as the name', () => {
  const stored = (by: string | readonly string[]) => encodeQueueLimits([tokens({ rate: '1/s', by })])
  expect(stored(['group'])).toBe(stored('group'))
  expect(stored('group')).toMatch(/^\[\{"by":\["group"\],.*"rule":\{"name":"tokens","by":"group",/)
})

test('a queue without groups refuses a limit per group, and keeps its shape', async () => {
  expect(() => shop.queue({ limits: [tokens({ rate: '1/s' })] })).toThrow(InvalidShapeError)
  const queue = shop.queue({ rate: '10/s' })
  const before = await queue.getShape()
  const change = queue.setShape({ limits: [tokens({ rate: '1/s' })] }, { by: 'test', reason: 'test' })
  await expect(change).rejects.toBeInstanceOf(InvalidShapeError)
  expect(await queue.getShape()).toEqual(before)
})

test('limits come back as they were given, those of the queue first', async () => {
  const own: QueueLimit = { name: 'all', rate: '5/s' }
  const [first, second] = [
    tokens({ rate: '1/s' }),
    { ...tokens({ rate: '9/min' }), name: 'minute', unit: '{"by":["group"],' },
  ]
  const queue = shop.queue({ groups: {}, limits: [first, own, second] })
  expect(await queue.getShape()).toMatchObject({ limits: [own, first, second] })
  await queue.setShape({ limits: [own] }, { by: 'test', reason: 'test' })
  expect(await queue.getShape()).toMatchObject({ limits: [own] })
})

test('a job that could never leave under a limit of its group is refused', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '100/s', burst: 10 })] })
  await expect(queue.addBulk(bulk('a', 1, 11))).rejects.toThrow('tokens')
})

test.each<[string, (queue: ShapedQueue) => Promise<unknown>]>([
  ['a drain', (queue) => queue.drain()],
  ['a clean', (queue) => queue.clean(0, 0, 'prioritized')],
])('%s frees the groups that were held by what it removes', async (_, remove) => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '10/day', burst: 10 })] })
  await queue.addBulk(bulk('a', 2, 10))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 1 })
  await remove(queue)
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'idle', waiting: 0 })
  await queue.addBulk(bulk('a', 1, 0))
  expect(await departed.reach(2)).toHaveLength(2)
})

test.each<[string, 'wait' | 'prioritized', number]>([
  ['the wait list', 'wait', 0],
  ['a priority', 'prioritized', 1],
])('a clean of %s frees jobs without a group too', async (_, state, priority) => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '10/day', burst: 10 })] })
  const jobs = bulk(undefined, 2, 10).map((job) => ({ ...job, opts: { ...job.opts, priority } }))
  await queue.addBulk(jobs)
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  await expect.poll(() => queue.getGroupsCountByStatus()).toMatchObject({ limited: 1 })
  const [dear] = await queue.getJobs([state])
  const later = await queue.add('cheap', {}, { costs: { tokens: 0 }, priority: 2 })
  await dear!.remove()
  await departed.reach(2)
  await queue.addBulk(jobs.slice(1))
  await expect.poll(() => queue.getGroupsCountByStatus()).toMatchObject({ limited: 1 })
  await queue.clean(0, 0, state)
  await queue.add('cheap', {}, { costs: { tokens: 0 } })
  expect((await departed.reach(3)).map(({ name }) => name)).toEqual(['none', later.name, 'cheap'])
})

test('a job without a group that goes before the one that waits for its tokens does not wait for those', async () => {
  const queue = shop.queue({ groups: {}, limits: [tokens({ rate: '10/day', burst: 10 })] })
  await queue.addBulk(bulk(undefined, 2, 10))
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await departed.reach(1)
  await expect.poll(() => queue.getGroupsCountByStatus()).toMatchObject({ limited: 1 })
  await queue.add('first', {}, { costs: { tokens: 0 }, lifo: true })
  expect((await departed.reach(2)).map(({ name }) => name)).toEqual(['none', 'first'])
})

test('a job without a group that takes none of a unit goes before a group that waits for the unit', async () => {
  const queue = shop.queue({ groups: {}, limits: [{ name: 'tokens', unit: 'tokens', rate: '10/day', burst: 10 }] })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  await queue.addBulk(bulk(undefined, 1, 1))
  await departed.reach(1)
  // Those without a group have had their turn.
  await queue.addBulk([...bulk('a', 1, 10), ...bulk(undefined, 1, 0)])
  expect((await departed.reach(2)).map(({ name }) => name)).toEqual(['none', 'none'])
})

test('a group that takes none of a unit goes before any number of groups that wait for the unit', async () => {
  const queue = shop.queue({ groups: {}, limits: [{ name: 'tokens', unit: 'tokens', rate: '10/day', burst: 10 }] })
  await queue.addBulk(Array.from({ length: 150 }, (_, i) => bulk(`waits-${i}`, 1, 10)).flat())
  await queue.addBulk(bulk('free', 1, 0))
  const departures = await departuresOf(shop.worker(queue, async () => {})).reach(2)
  expect(departures.map(({ name }) => name)).toEqual(['waits-0', 'free'])
})
