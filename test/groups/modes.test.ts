import { expect, test } from 'vitest'
import type { QueueLimit } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { callsOf, departuresOf, eventsOf, gate, settled, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const change = { by: 'test', reason: 'a test' }

const two: QueueLimit = { name: 'running', by: 'model', algorithm: 'concurrency', concurrency: 2 }

// Where nothing is enforced any number of jobs runs, and counts once something is.
test.each([
  ['off', 'a group', { groups: { concurrency: 2 } }],
  ['off', 'a value', { groups: {}, limits: [two] }],
  ['shadow', 'a group', { groups: { concurrency: 2 } }],
  ['shadow', 'a value', { groups: {}, limits: [two] }],
] as const)('jobs that started while the mode was %s count for %s', async (mode, _what, shape) => {
  const queue = shop.queue(shape)
  const opts = { group: { id: 'g' }, ...('limits' in shape ? { keys: { model: 'm' } } : {}) }
  const add = (count: number) => queue.addBulk(Array.from({ length: count }, () => ({ name: 'job', data: {}, opts })))
  const run = Array.from({ length: 6 }, () => gate())
  shop.keep({
    close: async () => {
      for (const { open } of run) open()
    },
  })
  let begun = 0
  const worker = shop.worker(queue, async () => run[begun++]?.opened, { concurrency: 10 })
  const [calls, departed, completed] = [callsOf(worker), departuresOf(worker), eventsOf('completed', worker)]
  // So many run that the group is known to be full.
  await add(3)
  await departed.reach(2)
  await settled(queue, client, calls)
  await queue.setShape({ mode }, change)
  await departed.reach(3)
  await add(1)
  await departed.reach(4)
  run[0]?.open()
  await completed.reach(1)
  await queue.setShape({ mode: 'enforce' }, change)
  await add(2)
  await settled(queue, client, calls)
  // Three run: another one may start once two have ended.
  expect(departed.all).toHaveLength(4)
  run[1]?.open()
  await completed.reach(2)
  await settled(queue, client, calls)
  expect(departed.all).toHaveLength(4)
  run[2]?.open()
  await departed.reach(5)
})

test('a group that its rate holds goes at once in shadow mode', async () => {
  const queue = shop.queue({ groups: { rate: '1/h' } })
  await queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'job', data: {}, opts: { group: { id: 'g' } } })))
  const worker = shop.worker(queue, async () => undefined)
  const [calls, departed] = [callsOf(worker), departuresOf(worker)]
  await departed.reach(1)
  await settled(queue, client, calls)
  await queue.setShape({ mode: 'shadow' }, change)
  await departed.reach(3)
})
