import { Queue, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { ShapedFlowProducer, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

function bulk(group: string, count: number, opts: object = {}) {
  return Array.from({ length: count }, (_, i) => ({
    name: `${group}${i}`,
    data: { i },
    opts: { group: { id: group }, ...opts },
  }))
}

const namesOf = (departures: readonly { name: string }[]) => departures.map(({ name }) => name)

test('priorities count inside a group only', async () => {
  const queue = shop.queue({ rate: '200/s', groups: {} })
  await queue.add('late', {}, { group: { id: 'a', priority: 5 } })
  await queue.add('soon', {}, { group: { id: 'a', priority: 1 } })
  await queue.add('first', {}, { group: { id: 'a' } })
  expect((await queue.getGroupJobs('a')).map(({ name }) => name)).toEqual(['first', 'soon', 'late'])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect(namesOf(await departed.reach(3))).toEqual(['first', 'soon', 'late'])
})

test('jobs without a group are a group of weight 1, in their own order', async () => {
  const queue = shop.queue({ rate: '200/s', groups: {} })
  await queue.addBulk(bulk('a', 3))
  await queue.addBulk([
    { name: 'p', data: {}, opts: { priority: 3 } },
    ...['x', 'y'].map((name) => ({ name, data: {} })),
  ])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  const names = namesOf(await departed.reach(6))
  expect(names.filter((name) => name.startsWith('a'))).toEqual(['a0', 'a1', 'a2'])
  expect(names.filter((name) => !name.startsWith('a'))).toEqual(['x', 'y', 'p'])
  expect(names.slice(0, 2).some((name) => name.startsWith('a'))).toBe(true)
  expect(names.slice(0, 2).some((name) => !name.startsWith('a'))).toBe(true)
})

test("jobs without a group go first with ungrouped: 'first'", async () => {
  const queue = shop.queue({ rate: '200/s', groups: { ungrouped: 'first' } })
  await queue.addBulk([...bulk('a', 2), ...['x', 'y', 'z'].map((name) => ({ name, data: {} }))])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect(namesOf(await departed.reach(5))).toEqual(['x', 'y', 'z', 'a0', 'a1'])
})

test('a job that is retried comes back to its group, with and without a delay', async () => {
  const queue = shop.queue({ rate: '200/s', groups: { concurrency: 1 } })
  let failures = 0
  const worker = shop.worker(queue, async (job) => {
    if (job.name === 'a0' && job.attemptsMade < 2) {
      failures += 1
      throw new Error('again')
    }
  })
  const completed = eventsOf('completed', worker)
  // A backlog without a group does not hold the retries up.
  await queue.addBulk(Array.from({ length: 5 }, (_, i) => ({ name: `u${i}`, data: {} })))
  await queue.addBulk(bulk('a', 1, { attempts: 3 }))
  await queue.addBulk(bulk('b', 1, { attempts: 3, backoff: 50 }))
  await completed.reach(7)
  expect(failures).toBe(2)
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, active: 0, status: 'idle' })
})

test('a delayed job, a removed one, a promoted one and a duplicate', async () => {
  const queue = shop.queue({ rate: '200/s', groups: {} })
  const delayed = await queue.add('delayed', {}, { delay: 60_000, group: { id: 'a' } })
  const removed = await queue.add('removed', {}, { group: { id: 'a' } })
  await queue.add('once', {}, { group: { id: 'a' }, deduplication: { id: 'd' } })
  await queue.add('twice', {}, { group: { id: 'a' }, deduplication: { id: 'd' } })
  await removed.remove()
  await delayed.promote()
  expect(await queue.getGroupJobsCount('a')).toBe(2)
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect(namesOf(await departed.reach(2))).toEqual(['once', 'delayed'])
})

test('a job that the gateway takes back leaves its group', async () => {
  const queue = shop.queue({ rate: '200/s', groups: { capacity: 1 } })
  const [job] = await queue.addBulk(bulk('a', 1))
  expect(await queue.cancelJob(job?.id as string, { reason: 'test', remove: true })).toBe('removed')
  expect(await redis.client().keys(queue.toKey('meta:group*:a'))).toEqual([])
  await queue.addBulk(bulk('a', 1))
})

test('a worker that closes gives the jobs of groups back in their order', async () => {
  const queue = shop.queue({ rate: '20/s', horizonMs: 1000, groups: {}, maxLatenessMs: 60_000 })
  await queue.addBulk([...bulk('a', 4), ...bulk('b', 4)])
  const before = (await queue.getGroupJobs('a')).map(({ name }) => name)
  const worker = shop.worker(queue, async () => {}, { concurrency: 8 })
  const departed = departuresOf(worker)
  await departed.reach(1)
  await worker.close()
  const left = namesOf(departed.all).filter((name) => name.startsWith('a'))
  expect((await queue.getGroupJobs('a')).map(({ name }) => name)).toEqual(before.filter((name) => !left.includes(name)))
  expect(await queue.getJobCounts('active', 'prioritized')).toEqual({ active: 0, prioritized: 8 - departed.all.length })
  const rest = departuresOf(shop.worker(queue, async () => {}, { concurrency: 8 }))
  await rest.reach(8 - departed.all.length)
  const all = [...namesOf(departed.all), ...namesOf(rest.all)]
  for (const group of ['a', 'b']) {
    expect(all.filter((name) => name.startsWith(group))).toEqual(bulk(group, 4).map(({ name }) => name))
  }
})

test('a running job that is stalled frees its place and comes back to its group', async () => {
  const queue = shop.queue({ groups: { concurrency: 1 } })
  await queue.addBulk(bulk('a', 2))
  const client = redis.client()
  const held = gate()
  const dead = shop.keep(
    new ShapedWorker(queue.name, () => held.opened, {
      ...{ connection: redis.connection, prefix: redis.prefix, stalledInterval: 100 },
    }),
  )
  dead.on('error', () => {})
  await departuresOf(dead).reach(1)
  // Its lock is gone, as if its process had been killed long ago.
  const [id] = await queue.getActive()
  await client.del(queue.toKey(`${id?.id}:lock`))
  const other = shop.worker(queue, async () => {}, { stalledInterval: 100 })
  await eventsOf('completed', other).reach(2)
  held.open()
})

test('jobs of a stock producer are sorted in; a stock worker takes jobs of groups', async () => {
  const queue = shop.queue({ rate: '200/s', groups: {} })
  await queue.waitUntilReady()
  const stock = shop.keep(new Queue(queue.name, { connection: redis.connection, prefix: redis.prefix }))
  await stock.addBulk(bulk('a', 3) as never)
  await stock.add('p', {}, { priority: 2, group: { id: 'b' } } as object)
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 1 }))
  const names = namesOf(await departed.reach(4))
  expect(names.filter((name) => name !== 'p')).toEqual(['a0', 'a1', 'a2'])
  await shop.close()
  const again = shop.queueNamed(queue.name, { rate: '200/s', groups: {} })
  await again.addBulk(bulk('c', 3))
  const plain = shop.keep(
    new Worker(queue.name, async () => {}, { connection: redis.connection, prefix: redis.prefix }),
  )
  const done: string[] = []
  await new Promise<void>((resolve) => {
    plain.on('completed', (job) => {
      done.push(job.name)
      if (done.length === 3) resolve()
    })
  })
  expect(done).toEqual(['c0', 'c1', 'c2'])
})

test('of very many jobs of a stock producer, none leaves while its group is paused', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.waitUntilReady()
  await queue.pauseGroup('a')
  const stock = shop.keep(new Queue(queue.name, { connection: redis.connection, prefix: redis.prefix }))
  // More than one call files.
  await stock.addBulk([...bulk('a', 250), { name: 'plain', data: {} }] as never)
  const departed = departuresOf(shop.worker(queue, async () => {}, { concurrency: 10 }))
  expect(namesOf(await departed.reach(1))).toEqual(['plain'])
  await queue.resumeGroup('a')
  await departed.reach(251)
})

test('children of a flow belong to groups, and a full group refuses the flow', async () => {
  const queue = shop.queue({ rate: '200/s', capacity: 50, groups: { capacity: 2 } })
  await queue.waitUntilReady()
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const flow = (children: number) => ({
    name: 'parent',
    queueName: queue.name,
    data: {},
    opts: { group: { id: 'p' } },
    children: bulk('a', children).map((child) => ({ ...child, queueName: queue.name })),
  })
  await expect(flows.add(flow(3) as never)).rejects.toThrow('do not fit')
  await flows.add(flow(2) as never)
  expect(await queue.getGroupJobsCount('a')).toBe(2)
  await expect(flows.add(flow(1) as never)).rejects.toMatchObject({ groupId: 'a' })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect(namesOf(await departed.reach(3))).toEqual(['a0', 'a1', 'parent'])
})

test('jobs of a flow stand in the lines of their groups as if added one by one, in each of its queues', async () => {
  const [one, other] = [shop.queue({ rate: '200/s', groups: {} }), shop.queue({ rate: '200/s', groups: {} })]
  await Promise.all([one.waitUntilReady(), other.waitUntilReady()])
  const jobs = [
    { name: 'late', opts: { group: { id: 'a', priority: 5 } } },
    { name: 'b0', opts: { group: { id: 'b' } } },
    { name: 'a0', opts: { group: { id: 'a' } } },
    { name: 'plain', opts: {} },
    { name: 'head', opts: { lifo: true } },
    { name: 'a1', opts: { group: { id: 'a' } } },
    { name: 'delayed', opts: { group: { id: 'b' }, delay: 60_000 } },
    { name: 'b1', opts: { group: { id: 'b' } } },
  ].map((job) => ({ ...job, data: {} }))
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const children = jobs.flatMap((job) => [one, other].map((queue) => ({ ...job, queueName: queue.name })))
  const parent = { name: 'parent', data: {}, opts: { group: { id: 'a' } } }
  await flows.add({ ...parent, queueName: one.name, children: children as never })
  const alone = shop.queue({ rate: '200/s', groups: {} })
  for (const { name, data, opts } of jobs) await alone.add(name, data, opts)
  for (const group of ['a', 'b']) {
    const expected = namesOf(await alone.getGroupJobs(group))
    expect(expected).toHaveLength(group === 'a' ? 3 : 2)
    for (const queue of [one, other]) expect(namesOf(await queue.getGroupJobs(group))).toEqual(expected)
  }
  for (const queue of [one, other]) {
    const departed = departuresOf(shop.worker(queue, async () => {}))
    expect(namesOf(await departed.reach(7))).toContain('plain')
  }
})

test("jobs of a scheduler keep the template's group", async () => {
  const queue = shop.queue({ rate: '200/s', groups: {} })
  await queue.upsertJobScheduler('s', { every: 60_000 }, { name: 'tick', opts: { group: { id: 'a' } } })
  const departed = departuresOf(shop.worker(queue, async () => {}))
  const [first] = await departed.reach(1)
  const job = await queue.getJob(first?.id as string)
  expect(job?.opts).toMatchObject({ group: { id: 'a' } })
})

test('a worker limits the group of a job, which goes back and uses no attempt', async () => {
  const queue = shop.queue({ groups: {} })
  let refusals = 0
  const worker = shop.worker(queue, async (job) => {
    if (job.name === 'a0' && refusals === 0) {
      refusals += 1
      await worker.rateLimitGroup(job, 300)
      throw Worker.RateLimitError()
    }
  })
  const completed = eventsOf('completed', worker)
  await queue.addBulk([...bulk('a', 2), ...bulk('b', 2)])
  await completed.until((all) => all.filter(({ name }) => name.startsWith('b')).length === 2)
  expect(await queue.getGroupStatus('a')).toBe('limited')
  await completed.reach(4)
  const [a0] = (await queue.getCompleted()).filter(({ name }) => name === 'a0')
  expect(a0?.attemptsMade).toBe(1)
})

test.each([
  ['paced', { rate: '1000/s' }],
  ['fetched by the ends of others', {}],
])('groups without jobs leave no key behind: %s', async (_how, shape) => {
  const queue = shop.queue({ ...shape, groups: { concurrency: 2 } })
  await queue.addBulk(Array.from({ length: 30 }, (_, i) => ({ name: 'j', data: {}, opts: { group: { id: `g${i}` } } })))
  const worker = shop.worker(queue, async () => {}, { concurrency: 10 })
  await eventsOf('completed', worker).reach(30)
  await worker.close()
  const keys = await redis.client().keys(`${queue.toKey('')}meta:group*`)
  expect(keys).toEqual([queue.toKey('meta:groups')])
})
