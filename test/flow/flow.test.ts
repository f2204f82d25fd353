import { FlowProducer } from 'bullmq'
import { expect, test } from 'vitest'
import {
  CostTooHighError,
  createShapedBackend,
  InvalidCostError,
  QueueFullError,
  ShapedFlowProducer,
  type ShapedQueue,
  TooLargeError,
} from '../../src/index.ts'
import { many, ownKeys, rejection, Taker } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

function producer(): ShapedFlowProducer {
  const { connection, prefix } = redis
  return shop.keep(new ShapedFlowProducer({ connection, prefix }))
}

/** A parent in one queue with children in others. */
function tree(parent: ShapedQueue, ...children: ShapedQueue[]) {
  return {
    name: 'parent',
    queueName: parent.name,
    children: children.map((queue, n) => ({ name: 'child', data: { n }, queueName: queue.name })),
  }
}

const places = async (...queues: ShapedQueue[]) => Promise.all(queues.map(async (queue) => (await queue.meter()).depth))

async function expectNoTrace(): Promise<void> {
  expect(await redis.client().keys(`${redis.prefix}:*:meta:flow:*`)).toEqual([])
}

test('a flow that fits is added whole, over its queues', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 2 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const { job, children: nodes } = await producer().add(tree(parents, children, children))
  expect(await job.getState()).toBe('waiting-children')
  expect(await nodes![1]!.job.getState()).toBe('waiting')
  expect(await job.getDependenciesCount()).toMatchObject({ unprocessed: 2 })
  expect(await places(parents, children)).toEqual([1, 2])
  await expectNoTrace()
})

test('one full queue refuses the whole flow, whichever it is, and nothing is added anywhere', async () => {
  const shapes = { rate: '1/h', capacity: 2 }
  const [parents, first, second] = [shop.queue(shapes), shop.queue(shapes), shop.queue(shapes)]
  const flows = producer()
  for (const full of [parents, first, second]) {
    for (const queue of [parents, first, second]) await queue.drain()
    await full.addBulk(many(2))
    const before = await places(parents, first, second)
    const error = await rejection<QueueFullError>(flows.add(tree(parents, first, second)))
    expect(error).toBeInstanceOf(QueueFullError)
    expect(error).toMatchObject({ queueName: full.name, depth: 2, capacity: 2, paused: false })
    expect(await places(parents, first, second)).toEqual(before)
    expect(await parents.getJobCounts('waiting-children')).toEqual({ 'waiting-children': 0 })
    await expectNoTrace()
  }
})

test('a flow needs a place for each of its jobs', async () => {
  const [parents, children] = [shop.queue({ capacity: 5 }), shop.queue({ capacity: 5 })]
  await parents.waitUntilReady()
  await children.addBulk(many(3))
  const flows = producer()
  const error = await rejection(flows.add(tree(parents, children, children, children)))
  expect(error).toMatchObject({ name: 'QueueFullError', queueName: children.name, depth: 3 })
  await flows.add(tree(parents, children, children))
  expect(await places(parents, children)).toEqual([1, 5])
})

test('more of a flow than a queue can ever hold is told as such', async () => {
  const [parents, children] = [shop.queue({ capacity: 5 }), shop.queue({ capacity: 1 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const error = await rejection(producer().add(tree(parents, children, children)))
  expect(error).toBeInstanceOf(TooLargeError)
  expect(error).toMatchObject({ queueName: children.name, jobs: 2, capacity: 1 })
  expect(await places(parents, children)).toEqual([0, 0])
})

test('flows that race for the places of one queue: as many as fit, each whole', async () => {
  const [parents, children] = [shop.queue(), shop.queue({ capacity: 7 })]
  await children.waitUntilReady()
  const producers = [producer(), producer()]
  const results = await Promise.allSettled(
    Array.from({ length: 12 }, (_, n) => producers[n % 2]!.add(tree(parents, children, children))),
  )
  expect(results.filter(({ status }) => status === 'fulfilled').length).toBe(3)
  expect(await parents.getJobCountByTypes('waiting-children')).toBe(3)
  expect(await children.getJobCountByTypes('waiting')).toBe(6)
})

test('a flow of which Redis refuses a job says why', async () => {
  const [parents, children] = [shop.queue(), shop.queue({ capacity: 1 })]
  await children.waitUntilReady()
  await redis.client().set(parents.toKey('events'), 'no stream')
  const error = await rejection(producer().add(tree(parents, children)))
  expect(error.message).toContain('WRONGTYPE')
})

test('several flows are added all or none', async () => {
  const [parents, children] = [shop.queue({ capacity: 5 }), shop.queue({ capacity: 5 })]
  await parents.waitUntilReady()
  await children.addBulk(many(2))
  const flows = producer()
  const two = [tree(parents, children, children), tree(parents, children, children)]
  expect(await rejection(flows.addBulk(two))).toMatchObject({ name: 'QueueFullError', queueName: children.name })
  expect(await places(parents, children)).toEqual([0, 2])
  const added = await flows.addBulk([tree(parents, children), tree(parents, children, children)])
  expect(added.map(({ children: nodes }) => nodes!.length)).toEqual([1, 2])
  expect(await places(parents, children)).toEqual([2, 5])
  await expectNoTrace()
})

test('jobs of a flow have costs', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 5, capacity: 10 })
  const taker = new Taker(shop, queue)
  await queue.waitUntilReady()
  const child = { name: 'child', queueName: queue.name, opts: { cost: 3 } }
  const flow = { name: 'parent', queueName: queue.name, opts: { cost: 2 }, children: [child] }
  const flows = producer()
  await flows.add(flow)
  await taker.complete(await taker.take())
  expect((await queue.meter()).level).toBeGreaterThan(2.99)
  await taker.take()
  expect((await queue.meter()).level).toBeGreaterThan(4.99)
  const tooHigh = { ...flow, children: [{ ...child, opts: { cost: 6 } }] }
  const error = await rejection(flows.add(tooHigh))
  expect(error).toBeInstanceOf(CostTooHighError)
  expect(error.message).toBe('cost 6 exceeds burst 5: set burst to at least 6')
  const wrong = { ...flow, children: [{ ...child, opts: { cost: -1 } }] }
  expect(await rejection(flows.add(wrong))).toBeInstanceOf(InvalidCostError)
  expect(await rejection(flows.addBulk([wrong]))).toBeInstanceOf(InvalidCostError)
  await expectNoTrace()
})

test('default costs of the queues of a flow count, and are checked', async () => {
  const queue = shop.queue({ rate: '1/h', burst: 5, capacity: 10 })
  await queue.waitUntilReady()
  const flows = producer()
  const defaults = (cost: unknown) => ({ queuesOptions: { [queue.name]: { defaultJobOptions: { cost } as object } } })
  const flow = { name: 'job', queueName: queue.name }
  expect(await rejection(flows.add(flow, defaults(6)))).toBeInstanceOf(CostTooHighError)
  expect(await rejection(flows.add(flow, defaults('2')))).toBeInstanceOf(InvalidCostError)
  const { job } = await flows.add(flow, defaults(2))
  expect(job.opts).toMatchObject({ cost: 2 })
})

test('a flow whose jobs exist already passes full queues', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 1 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const flow = {
    ...{ name: 'parent', queueName: parents.name, opts: { jobId: 'p' } },
    children: [{ name: 'child', queueName: children.name, opts: { jobId: 'c' } }],
  }
  const flows = producer()
  await flows.add(flow)
  await flows.add(flow)
  expect(await places(parents, children)).toEqual([1, 1])
  const other = { ...flow, opts: { jobId: 'p2' } }
  expect(await rejection(flows.add(other))).toMatchObject({ name: 'QueueFullError', queueName: parents.name })
})

test('one id twice in a flow takes one place', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 1 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const child = { name: 'child', queueName: children.name, opts: { jobId: 'c' } }
  await producer().add({ name: 'parent', queueName: parents.name, children: [child, child] })
  expect(await places(parents, children)).toEqual([1, 1])
})

test('a parent whose children exist and are done already is released', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 5 })]
  const taker = new Taker(shop, children)
  await parents.waitUntilReady()
  await children.add('child', {}, { jobId: 'done' })
  await taker.complete(await taker.take())
  const flow = {
    ...{ name: 'parent', queueName: parents.name },
    children: [{ name: 'child', queueName: children.name, opts: { jobId: 'done' } }],
  }
  const { job } = await producer().add(flow)
  expect(await job.getState()).toBe('waiting')
  expect(await places(parents, children)).toEqual([1, 0])
})

test('children of all kinds keep their kind', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 4 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const child = (opts: object) => ({ name: 'child', queueName: children.name, opts })
  await producer().add({
    ...{ name: 'parent', queueName: parents.name },
    children: [child({}), child({ delay: 60_000 }), child({ priority: 2 })],
  })
  expect(await children.getJobCounts('waiting', 'delayed', 'prioritized')).toEqual({
    ...{ waiting: 1, delayed: 1, prioritized: 1 },
  })
})

test("a flow over queues without a shape is BullMQ's own", async () => {
  const [parents, children] = [shop.queue(), shop.queue()]
  const { job } = await producer().add(tree(parents, children))
  expect(await job.getState()).toBe('waiting-children')
  expect([await ownKeys(parents), await ownKeys(children)]).toEqual([[], []])
})

test('a parent in a full queue comes back when its children are done', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue()]
  const taker = new Taker(shop, children)
  await parents.waitUntilReady()
  const { job } = await producer().add(tree(parents, children))
  expect(await parents.offer('job', {})).toMatchObject({ accepted: false, depth: 1 })
  await taker.complete(await taker.take())
  expect(await job.getState()).toBe('waiting')
})

test('a stock FlowProducer with our backend obeys the stored shapes', async () => {
  const [parents, children] = [shop.queue({ capacity: 1 }), shop.queue({ capacity: 1 })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const { connection, prefix } = redis
  const flows = shop.keep(new FlowProducer({ connection, prefix }, createShapedBackend))
  expect(await rejection(flows.add(tree(parents, children, children)))).toBeInstanceOf(TooLargeError)
  await flows.add(tree(parents, children))
  expect(await rejection(flows.add(tree(parents, children)))).toBeInstanceOf(QueueFullError)
  expect(await places(parents, children)).toEqual([1, 1])
})

test('a worker runs a flow: children first, then their parent', async () => {
  const [parents, children] = [shop.queue({ rate: '500/s' }), shop.queue({ rate: '500/s' })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const ran: string[] = []
  const workers = [parents, children].map((queue) => shop.worker(queue, async ({ name }) => void ran.push(name)))
  const completed = eventsOf('completed', ...workers)
  await producer().add(tree(parents, children, children))
  await completed.reach(3)
  expect(ran).toEqual(['child', 'child', 'parent'])
})
