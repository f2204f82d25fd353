import { expect, onTestFinished, test } from 'vitest'
import { ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'
import { many, rejection, Taker } from './support.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const shop = new Workshop(redis)

const PART = 60
const HOUR_MS = 3_600_000

interface Script {
  readonly name: string
  readonly args: readonly unknown[]
}

/** Notes each script that this queue sends, and does something before it. */
async function watchScripts(queue: ShapedQueue, before: (script: Script) => unknown = () => {}): Promise<Script[]> {
  const its = (await queue.getBackend().client) as unknown as {
    runCommand(name: string, args: unknown[]): Promise<unknown>
  }
  const run = its.runCommand.bind(its)
  const sent: Script[] = []
  its.runCommand = async (name, args) => {
    const script = { name, args }
    sent.push(script)
    await before(script)
    return run(name, args)
  }
  return sent
}

async function counts(queue: ShapedQueue) {
  return queue.getJobCounts('wait', 'prioritized', 'delayed', 'active')
}

/** Keys of jobs, and what a drain has put aside. */
async function leftovers(queue: ShapedQueue): Promise<string[]> {
  const keys = await client.keys(`${queue.toKey('')}*`)
  return keys.filter((key) => /:meta:draining|:[0-9a-f-]{26,}|:\d+$|:job-/i.test(key.slice(queue.toKey('').length - 1)))
}

async function fill(queue: ShapedQueue): Promise<void> {
  await queue.addBulk(many(PART + 40))
  await queue.addBulk(many(PART + 40, { priority: 3 }))
  await queue.addBulk(many(PART + 40, { delay: HOUR_MS }))
}

test.each([
  ['with a shape', { rate: '1/h', capacity: 10_000 }],
  ['without a shape', undefined],
])('a queue %s is drained in parts', async (_name, shape) => {
  const queue = shop.queue(shape)
  await fill(queue)
  const sent = await watchScripts(queue)
  await queue.drain()
  expect(await counts(queue)).toEqual({ wait: 0, prioritized: 0, delayed: PART + 40, active: 0 })
  await queue.drain(true)
  expect(await counts(queue)).toEqual({ wait: 0, prioritized: 0, delayed: 0, active: 0 })
  expect(await leftovers(queue)).toEqual([])
  // Two beginnings, a part for each 60 jobs or less of a kind, and two that found nothing more.
  expect(sent.filter(({ name }) => name.includes('drain-part'))).toHaveLength(2 + 3 * 2 + 2)

  await queue.addBulk(many(PART))
  await queue.drain()
  expect(await queue.count()).toBe(0)
  // BullMQ's script may be sent twice, and would remove what was added meanwhile.
  expect(sent.filter(({ name }) => /^drain/.test(name))).toEqual([])
})

test('an obliterate of a queue that another program resumed meanwhile is refused, and the shape stays', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 10 })
  await queue.addBulk(many(3))
  // Its meta is empty then, as with skipMetasUpdate.
  await watchScripts(queue, async ({ name }) => {
    if (name.endsWith(':obliterate')) await client.del(queue.toKey('meta'))
  })
  expect((await rejection(queue.obliterate())).message).toMatch('non-paused')
  expect(await queue.count()).toBe(3)
  expect((await queue.getShape())?.capacity).toBe(10)
})

test('an obliterate removes 250 jobs at a time, or fewer if it is told to', async () => {
  const queue = shop.queue()
  const sent = await watchScripts(queue)
  for (const [opts, count] of [[{ force: true }, 250] as const, [{ force: true, count: 100 }, 100] as const]) {
    await queue.addBulk(Array.from({ length: 600 }, () => ({ name: 'job', data: {} })))
    sent.length = 0
    await queue.obliterate(opts)
    const removals = sent.filter(({ name }) => name.endsWith(':obliterate'))
    expect(removals.map(({ args }) => args[2])).toEqual(Array.from({ length: Math.ceil(601 / count) }, () => count))
    expect(await client.keys(`${queue.toKey('')}*`)).toEqual([])
  }
})

test('jobs that are added while a queue is drained stay, and those that run go on', async () => {
  const queue = shop.queue({ rate: '1000/s' })
  await queue.addBulk(many(3 * PART))
  const taker = new Taker(shop, queue)
  const running = await taker.take()
  const other = shop.queueNamed(queue.name)
  let parts = 0
  await watchScripts(queue, async ({ name, args }) => {
    if (name.includes('drain-part') && args[2] === 'go') await other.add(`late-${++parts}`, {}, { lifo: parts === 2 })
  })
  await queue.drain()
  expect(await counts(queue)).toMatchObject({ wait: parts, active: 1 })
  await taker.complete(running)
  const departures = departuresOf(shop.worker(queue, async () => undefined))
  expect((await departures.reach(parts)).map(({ name }) => name)).toEqual(['late-2', 'late-1', 'late-3', 'late-4'])
})

test('the next iteration of a scheduler stays, whether it waits or is delayed', async () => {
  const queue = shop.queue({ rate: '1/h' })
  await queue.addBulk(many(PART + 1))
  await queue.upsertJobScheduler('soon', { every: HOUR_MS })
  await queue.upsertJobScheduler('later', { every: HOUR_MS, startDate: Date.now() + HOUR_MS })
  await queue.drain(true)
  expect(await counts(queue)).toMatchObject({ wait: 1, delayed: 1 })
  expect((await queue.getJobs(['wait', 'delayed'])).map(({ repeatJobKey }) => repeatJobKey).toSorted()).toEqual([
    'later',
    'soon',
  ])
  expect((await new Taker(shop, queue).take()).repeatJobKey).toBe('soon')
})

test('a drain that is broken off is ended by the next one', async () => {
  const queue = shop.queue({ rate: '1/h' })
  await queue.addBulk(many(3 * PART))
  const failing = shop.queueNamed(queue.name)
  let parts = 0
  await watchScripts(failing, ({ name, args }) => {
    if (name.includes('drain-part') && args[2] === 'go' && ++parts === 2) throw new Error('killed')
  })
  expect((await rejection(failing.drain())).message).toBe('killed')
  await queue.add('later', {})
  expect(await queue.count()).toBe(1)
  await queue.drain()
  expect(await queue.count()).toBe(0)
  expect(await leftovers(queue)).toEqual([])
})

test('the children of a flow that go take its parent with them', async () => {
  const queue = shop.queue({ rate: '1/h' })
  const flows = new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })
  onTestFinished(() => flows.close())
  const node = { queueName: queue.name, data: {} }
  const children = Array.from({ length: PART + 10 }, (_, n) => ({ ...node, name: `child-${n}` }))
  await flows.add({ ...node, name: 'parent', children })
  await queue.drain()
  expect(await queue.getJobCounts('wait', 'waiting-children')).toEqual({ wait: 0, 'waiting-children': 0 })
})
