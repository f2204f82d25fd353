import { expect, test } from 'vitest'
import {
  CostTooHighError,
  InvalidInputError,
  NoGroupsError,
  QueueFullError,
  type QueueUnavailableError,
  type ShapedQueue,
  TooLargeError,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'
import { many, refusal, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

/** Resolves when that queue has claimed the places of a bulk; until `then` is done the bulk goes no further. */
function claimedBy(queue: ShapedQueue, then = async () => {}): Promise<void> {
  const { store } = queue.getBackend()
  const run = store.run.bind(store)
  return new Promise((resolve) => {
    store.run = async (name, args) => {
      const answer = await run(name, args)
      if (name === 'claim-places' && args[2] === 'claim') {
        resolve()
        await then()
      }
      return answer
    }
  })
}

const waiting = (queue: ShapedQueue) => queue.getJobCountByTypes('waiting')

test('a bulk that fits is added in its order', async () => {
  const queue = shop.queue({ capacity: 5 })
  const jobs = await queue.addBulk(many(5))
  expect(jobs.map(({ data }) => data.n)).toEqual([0, 1, 2, 3, 4])
  expect((await queue.getWaiting()).map(({ data }) => data.n)).toEqual([0, 1, 2, 3, 4])
  expect(await queue.getJob(jobs[2]!.id!)).toMatchObject({ data: { n: 2 } })
})

test('a bulk keeps the kinds of its jobs', async () => {
  const queue = shop.queue({ capacity: 4 })
  await queue.addBulk([
    { name: 'plain', data: {} },
    { name: 'first', data: {}, opts: { lifo: true } },
    { name: 'later', data: {}, opts: { delay: 60_000 } },
    { name: 'urgent', data: {}, opts: { priority: 2 } },
  ])
  expect(await queue.getJobCounts('waiting', 'delayed', 'prioritized')).toEqual({
    ...{ waiting: 2, delayed: 1, prioritized: 1 },
  })
  expect((await new Taker(shop, queue).take()).name).toBe('first')
})

test('an empty bulk is nothing', async () => {
  expect(await shop.queue({ capacity: 1 }).addBulk([])).toEqual([])
})

test.each([20, 250])('a bulk of %i that does not fit is refused whole', async (size) => {
  const queue = shop.queue({ rate: '100/s', capacity: size + 5 })
  await queue.addBulk(many(6))
  const error = await rejection<QueueFullError>(queue.addBulk(many(size)))
  expect(error).toBeInstanceOf(QueueFullError)
  expect(error).toMatchObject({ depth: 6, capacity: size + 5 })
  expect(await waiting(queue)).toBe(6)
  await queue.addBulk(many(size - 1))
  expect(await waiting(queue)).toBe(size + 5)
})

test.each([21, 301])('a bulk of %i jobs for a queue that holds less can never be added', async (size) => {
  const queue = shop.queue({ capacity: 20 })
  const error = await rejection<TooLargeError>(queue.addBulk(many(size)))
  expect(error).toBeInstanceOf(TooLargeError)
  expect(error).toMatchObject({ name: 'TooLargeError', jobs: size, capacity: 20, queueName: queue.name })
  expect(error.message).toContain(`${size} jobs at once do not fit into queue "${queue.name}", which holds 20`)
  expect(await waiting(queue)).toBe(0)
})

test('two large bulks that race for the places of one: one is added whole, the other not at all', async () => {
  const shape = { capacity: 500 }
  const queues = [shop.queue(shape)]
  queues.push(shop.queueNamed(queues[0]!.name, shape))
  const results = await Promise.allSettled(queues.map((queue) => queue.addBulk(many(450))))
  expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  expect(await waiting(queues[0]!)).toBe(450)
  await queues[0]!.addBulk(many(50))
  await refusal(queues[0]!)
})

test('jobs that others add while a large bulk comes in do not take its places', async () => {
  const queue = shop.queue({ capacity: 600 })
  const other = shop.queueNamed(queue.name, { capacity: 600 })
  await Promise.all([queue.waitUntilReady(), other.waitUntilReady()])
  const claimed = claimedBy(queue)
  // One id comes twice: it takes one place.
  const jobs = many(601).map((job) => ({ ...job, opts: { jobId: `job-${Math.max(1, job.data.n)}` } }))
  let isIn = false
  const bulk = queue.addBulk(jobs).finally(() => {
    isIn = true
  })
  await claimed
  while (!isIn) expect(await other.offer('job', {})).toMatchObject({ accepted: false })
  expect((await bulk).length).toBe(601)
  expect(await waiting(queue)).toBe(600)
})

test('a bulk whose lease is over does not lift the queue over its capacity', async () => {
  const queue = shop.queue({ capacity: 600 })
  const other = shop.queueNamed(queue.name, { capacity: 600 })
  await Promise.all([queue.waitUntilReady(), other.waitUntilReady()])
  const claimed = claimedBy(queue, async () => {
    await redis.client().del(queue.toKey('meta:claims'))
    await redis.client().hdel(queue.toKey('meta:shape'), 'claimed', 'claimedUntil')
    await other.addBulk(many(100))
  })
  const bulk = rejection(queue.addBulk(many(600)))
  await claimed
  expect(await bulk).toBeInstanceOf(QueueFullError)
  expect(await waiting(queue)).toBe(600)
})

test('a producer that never declared or saw the shape adds a large bulk whole or not at all', async () => {
  const queue = shop.queue({ capacity: 300 })
  await queue.addBulk(many(30))
  const stranger = shop.queueNamed(queue.name)
  expect(await rejection(stranger.addBulk(many(290)))).toBeInstanceOf(QueueFullError)
  expect(await waiting(queue)).toBe(30)
})

test('places that a bulk claimed and did not use are free again', async () => {
  const queue = shop.queue({ capacity: 260 })
  const doubled = [...many(125), ...many(125)].map((job) => ({ ...job, opts: { jobId: `job-${job.data.n}` } }))
  await queue.addBulk(doubled)
  expect(await waiting(queue)).toBe(125)
  await queue.addBulk(many(135))
  await refusal(queue)
})

test('a large bulk of jobs that exist passes a full queue', async () => {
  const queue = shop.queue({ capacity: 250 })
  const jobs = many(250).map((job) => ({ ...job, opts: { jobId: `job-${job.data.n}` } }))
  await queue.addBulk(jobs)
  await refusal(queue)
  expect((await queue.addBulk(jobs)).length).toBe(250)
  expect(await waiting(queue)).toBe(250)
})

test('a large bulk needs places only for the jobs that are new, each once', async () => {
  const queue = shop.queue({ capacity: 500 })
  const withIds = (from: number, to: number) =>
    many(to)
      .slice(from)
      .map((job) => ({ ...job, opts: { jobId: `job-${job.data.n}` } }))
  const deduplicated = many(3).map((job) => ({ ...job, opts: { deduplication: { id: 'one' } } }))
  await queue.addBulk(withIds(0, 250))
  const twice = [...withIds(0, 499), ...withIds(400, 499)]
  const error = await rejection(queue.addBulk([...twice, ...deduplicated, ...many(1)]))
  expect(error).toMatchObject({ depth: 250, capacity: 500, message: expect.stringContaining('251 needed') })
  expect(await waiting(queue)).toBe(250)
  await queue.addBulk([...twice, ...deduplicated])
  expect(await waiting(queue)).toBe(500)
})

test('places claimed by a producer that died are free when its lease is over', async () => {
  const queue = shop.queue({ capacity: 300 })
  await queue.waitUntilReady()
  const { store } = queue.getBackend()
  const jobs = Array.from({ length: 300 }, (_, n) => [`job-${n}`, '', 1, '', 1]).flat()
  await store.run('claim-places', [store.memory.identity, 'of the dead', 'claim', 10_000, '', ...jobs])
  const error = await refusal(queue)
  expect(error).toMatchObject({ depth: 300, capacity: 300 })
  const client = redis.client()
  await client.hset(store.key, 'claimedUntil', String((Date.now() - 1000) * 1000))
  await queue.add('job', {})
  expect((await queue.meter()).depth).toBe(1)
})

test('one job of a bulk that costs more than the burst refuses the bulk, also in a later part', async () => {
  const queue = shop.queue({ rate: '50/s', burst: 2, capacity: 1000 })
  const jobs = [...many(220), ...many(1, { cost: 3 })]
  expect(await rejection(queue.addBulk(jobs.slice(-3)))).toBeInstanceOf(CostTooHighError)
  expect(await rejection(queue.addBulk(jobs))).toBeInstanceOf(CostTooHighError)
  expect(await waiting(queue)).toBe(0)
})

test.each([
  ['limits', { limits: [{ name: 'tokens', unit: 'tokens', rate: '100/min' }] }, { costs: { tokens: 1000 } }],
  ['a capacity', { capacity: 1000 }, { group: { id: 'a' } }],
  ['a rate', { rate: '10/s' }, { group: { id: 'a' } }],
] as const)('a job in a later part that a queue with %s refuses keeps out the bulk', async (_, shape, opts) => {
  const queue = shop.queue(shape)
  const bulk = many(250).map((job, i) => (i === 240 ? { ...job, opts } : job))
  const error = await rejection(queue.addBulk(bulk))
  expect(error).toBeInstanceOf('group' in opts ? NoGroupsError : CostTooHighError)
  expect(await waiting(queue)).toBe(0)
})

test.each([
  ['a delay that is no number', { opts: { delay: Number.NaN } }],
  ['a priority that is none', { opts: { priority: Number.NaN } }],
  ['a delay that never ends', { opts: { delay: Number.POSITIVE_INFINITY } }],
  ['a date as its timestamp', { opts: { timestamp: new Date() } }],
  ['a backoff without a number', { opts: { backoff: { type: 'fixed', delay: Number.NaN } } }],
  ['a deduplication for part of a ms', { opts: { deduplication: { id: 'a', ttl: 1.5 } } }],
  ['a deduplication that no JSON holds', { opts: { deduplication: { id: '\ud800' } } }],
  ['options that are a text', { opts: 'later' }],
  ['no name', { name: undefined }],
])('a job with %s keeps out the bulk', async (_, wrong) => {
  const queue = shop.queue({ capacity: 10 })
  const [job] = many(1)
  const error = await rejection(queue.addBulk([...many(2), { ...job, ...wrong } as never]))
  expect(error).toBeInstanceOf(InvalidInputError)
  expect(await queue.count()).toBe(0)
  for (const list of [undefined, 'jobs', [null]]) {
    expect(await rejection(queue.addBulk(list as never))).toBeInstanceOf(InvalidInputError)
  }
})

test('a job whose parent is missing keeps out the bulk', async () => {
  const queue = shop.queue({ capacity: 10 })
  const jobs = [...many(2), ...many(1, { parent: { id: 'gone', queue: queue.qualifiedName } })]
  const error = await rejection(queue.addBulk(jobs))
  expect(error.message).toBe(`Missing key for parent job ${queue.toKey('gone')}. addJob`)
  expect(await queue.count()).toBe(0)
})

test('a bulk may have the parent of its later jobs, but not of earlier ones', async () => {
  const queue = shop.queue({ capacity: 10 })
  const parent = { id: 'parent', queue: queue.qualifiedName }
  const [first, child] = await queue.addBulk([
    { name: 'parent', data: {}, opts: { jobId: 'parent' } },
    { name: 'child', data: {}, opts: { parent } },
  ])
  expect(first?.id).toBe('parent')
  expect(child?.parentKey).toBe(queue.toKey('parent'))
  const before = [{ name: 'child', data: {}, opts: { parent: { ...parent, id: 'later' } } }]
  const later = { name: 'parent', data: {}, opts: { jobId: 'later' } }
  expect((await rejection(queue.addBulk([...before, later]))).message).toMatch('Missing key for parent')
  expect(await queue.count()).toBe(2)
})

test.each([
  ['a queue', { rate: '50/s', burst: 3 }, { burst: 2 }, {}],
  ['a group', { groups: { rate: '50/s', burst: 3 } }, { groups: { rate: '50/s', burst: 2 } }, { group: { id: 'a' } }],
] as const)(
  'a bulk of which a later part is refused says which of its jobs are in: %s',
  async (_what, shape, change, opts) => {
    const queue = shop.queue({ capacity: 1000, ...shape })
    const other = shop.queueNamed(queue.name)
    await other.waitUntilReady()
    const claimed = claimedBy(queue, () => other.setShape(change, { by: 'test', reason: 'test' }))
    // The second part of six is refused, while three more are on their way.
    const jobs = many(300).map((job) => ({ ...job, opts: { cost: job.data.n === 60 ? 3 : 1, ...opts } }))
    const bulk = rejection<CostTooHighError>(queue.addBulk(jobs))
    await claimed
    const { addedIds = [], ...error } = await bulk
    expect(error).toMatchObject({ name: 'CostTooHighError', cost: 3, burst: 2 })
    const present = await queue.getJobs(['waiting', 'prioritized'])
    expect(addedIds.map((id) => present.find((job) => job.id === id)?.data.n)).toEqual(
      jobs.map(({ data: { n } }) => (n < 50 || (n >= 100 && addedIds[n] !== undefined) ? n : undefined)),
    )
    expect(addedIds.filter(Boolean)).toHaveLength(present.length)
    expect(addedIds.slice(50, 100)).toEqual(Array(50).fill(undefined))
  },
)

/** Fails the commands of a queue that this is true of. */
async function failing(queue: ShapedQueue, why: (args: readonly unknown[]) => string | undefined): Promise<void> {
  const its = (await queue.getBackend().client) as unknown as {
    runCommand(name: string, args: unknown[]): Promise<unknown>
  }
  const run = its.runCommand.bind(its)
  its.runCommand = async (name, args) => {
    const message = why(args)
    if (message !== undefined) throw new Error(message)
    return run(name, args)
  }
}

test('a bulk of which a part is lost with its connection does not know of that part alone', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await queue.waitUntilReady()
  const third = (args: readonly unknown[]) => args.some((arg) => String(arg).includes('"n":120'))
  await failing(queue, (args) => (third(args) ? 'Connection is closed.' : undefined))
  const error = await rejection<QueueUnavailableError>(queue.addBulk(many(300)))
  expect(error).toMatchObject({ name: 'QueueUnavailableError', mayBeStored: true })
  const { addedIds = [] } = error
  expect(addedIds.slice(100, 150)).toEqual(Array(50).fill(null))
  const present = await queue.getWaiting()
  expect(addedIds.filter(Boolean)).toEqual(present.map(({ id }) => id))
  expect(addedIds.slice(0, 100).every(Boolean)).toBe(true)
})

test('a bulk that is in has not failed if its claim cannot be released', async () => {
  const queue = shop.queue({ capacity: 1000 })
  await queue.waitUntilReady()
  await failing(queue, (args) => (args.includes('release') ? 'OOM command not allowed' : undefined))
  expect(await queue.addBulk(many(300))).toHaveLength(300)
})
