import type { FlowJob } from 'bullmq'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'

// The script cache is shared by all clients of a server: emptying it needs one of its own.
let service: RedisService
let names = 0
const opened: { close(): Promise<unknown> }[] = []

beforeAll(async () => {
  service = await startRedis({ ignoreGiven: true })
})

afterEach(async () => {
  await Promise.all(opened.splice(0).map((thing) => thing.close()))
})

afterAll(() => service.stop())

function keep<T extends { close(): Promise<unknown> }>(thing: T): T {
  opened.push(thing)
  return thing
}

const connection = () => ({ host: service.host, port: service.port, maxRetriesPerRequest: null })

async function flushScripts(): Promise<void> {
  const client = new Redis(connection())
  await client.script('FLUSH')
  client.disconnect()
}

async function newQueue(): Promise<ShapedQueue> {
  names += 1
  const queue = keep(new ShapedQueue(`q${names}`, { connection: connection(), shape: { capacity: 10 } }))
  await queue.waitUntilReady()
  return queue
}

const tree = (parent: ShapedQueue, ...children: ShapedQueue[]): FlowJob => ({
  ...{ name: 'parent', queueName: parent.name },
  ...(children.length > 0 && { children: children.map((queue) => ({ name: 'child', queueName: queue.name })) }),
})

/** Flows in an order that leaves some scripts known to the connection and others not. */
const FLUSHES: [string, (one: ShapedQueue, other: ShapedQueue) => [FlowJob, FlowJob]][] = [
  ['the same flow again', (one) => [tree(one, one), tree(one, one)]],
  [
    'a child of a kind that was not added before',
    (one) => {
      const delayed = { name: 'child', queueName: one.name, opts: { delay: 60_000 } }
      return [tree(one, one), { ...tree(one), children: [delayed] }]
    },
  ],
  ['more queues than before', (one, other) => [tree(one, one), tree(one, other)]],
  ['children where there were none', (one, other) => [tree(one), tree(one, other)]],
]

test.each(FLUSHES)('SCRIPT FLUSH before a flow: %s', async (_name, flowsOf) => {
  const [one, other] = [await newQueue(), await newQueue()]
  const [before, after] = flowsOf(one, other)
  const flows = keep(new ShapedFlowProducer({ connection: connection() }))
  await flows.add(before)
  await flushScripts()
  const { job } = await flows.add(after)
  expect(await job.getState()).toBe('waiting-children')
  expect(await job.getDependenciesCount()).toMatchObject({ unprocessed: 1 })
  const first = 1 + (before.children?.length ?? 0)
  expect((await one.meter()).depth + (await other.meter()).depth).toBe(first + 2)
})

test('SCRIPT FLUSH before every kind of admission', async () => {
  const queue = await newQueue()
  const admissions = [
    () => queue.add('plain', {}),
    () => queue.add('delayed', {}, { delay: 60_000 }),
    () => queue.add('prioritized', {}, { priority: 1 }),
    () => queue.addBulk([{ name: 'bulk', data: {} }]),
    () => queue.upsertJobScheduler('s', { every: 3_600_000 }, { name: 'tick' }),
    () => queue.setShape({ burst: 2 }, { by: 'test', reason: 'test' }),
    () => queue.pauseUntil(Date.now() + 60_000, { reason: 'test' }),
  ]
  for (const admit of admissions) {
    await flushScripts()
    await admit()
  }
  expect(await queue.meter()).toMatchObject({ depth: 5, pauseReason: 'test', shape: { burst: 2 } })
})
