import { expect, test } from 'vitest'
import type { QueueLimit, ShapedQueue, ShapedWorker } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, gate, settled, Workshop } from '../worker/support.ts'

// The limits of a queue change while more lanes wait in the line of a cell than one call looks at.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const GROUPS = 20
const EACH = 3
const hourly: QueueLimit = { name: 'calls', by: 'model', rate: '1/h' }
const quick: QueueLimit = { ...hourly, rate: '10000/s' }
const places: QueueLimit = { name: 'calls', by: 'model', algorithm: 'concurrency', concurrency: 1 }
const change = { by: 'test', reason: 'a test' }

/** Lanes of all groups wait in one line, once the worker has come to rest. */
async function fill(queue: ShapedQueue, worker: ShapedWorker) {
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await queue.addBulk(
    Array.from({ length: EACH * GROUPS }, (_, i) => ({
      name: `g${i % GROUPS}`,
      data: {},
      opts: { group: { id: `g${i % GROUPS}` }, keys: { model: 'm' } },
    })),
  )
  await departed.reach(1)
  await settled(queue, client, calls)
  return departed
}

test.each([
  ['the queue has no limits any more', { limits: null }],
  ['the queue is in shadow mode', { mode: 'shadow' }],
] as const)('once %s, all groups take turns', async (_what, shape) => {
  const queue = shop.queue({ groups: {}, limits: [hourly] })
  const departed = await fill(
    queue,
    shop.worker(queue, async () => undefined),
  )
  await queue.setShape(shape, change)
  await departed.reach(EACH * GROUPS)
  const turn = departed.all.slice(1, GROUPS + 1).map(({ name }) => name)
  expect(new Set(turn).size).toBeGreaterThanOrEqual(GROUPS - 1)
})

test('what was set for a value counts for the algorithm for which it was set', async () => {
  const queue = shop.queue({ groups: {}, limits: [hourly] })
  await queue.setLimit('calls', 'm', { rate: '1000/h' }, change)
  await queue.setShape({ limits: [places] }, change)
  expect((await queue.getLimit('calls', 'm')).remaining).toBe(1)
  await queue.setLimit('calls', 'm', { concurrency: 2 }, change)
  await queue.setShape({ limits: [{ ...hourly, algorithm: 'fixed-window', rate: '5/h' }] }, change)
  expect((await queue.getLimit('calls', 'm')).remaining).toBe(1000)
})

test.each([
  ['places to a rate', places, quick],
  ['a rate to places', hourly, places],
])('a limit changes from %s', async (_what, before, after) => {
  const queue = shop.queue({ groups: {}, limits: [before] })
  const open = gate()
  const worker = shop.worker(queue, () => open.opened, { concurrency: 3 })
  const failed = eventsOf('failed', worker)
  const departed = await fill(queue, worker)
  await queue.setShape({ limits: [after] }, change)
  open.open()
  await departed.reach(EACH * GROUPS)
  expect(failed.all).toEqual([])
})
