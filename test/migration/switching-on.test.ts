import { Queue } from 'bullmq'
import { expect, test } from 'vitest'
import { QueueFullError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, excess, rounding, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const DEPTH = 200_000
const CHUNK = 20_000

/** What so many calls of BullMQ's add leave behind, written by Redis itself to keep the test short. */
const FILL = `
  local base, from, to, now = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
  for i = from, to do
    redis.call('HSET', base .. i, 'name', 'job' .. i, 'data', '{}', 'opts', '{}', 'timestamp', now, 'delay', 0, 'priority', 0)
    redis.call('LPUSH', base .. 'wait', i)
  end
  redis.call('SET', base .. 'id', to)
`

test('with 200,000 jobs waiting they drain in order, and new ones are refused until there is room', async () => {
  const stock = shop.keep(new Queue('deep', { connection: redis.connection, prefix: redis.prefix }))
  await stock.waitUntilReady()
  for (let from = 1; from <= DEPTH; from += CHUNK) {
    await client.eval(FILL, 1, stock.toKey(''), String(from), String(from + CHUNK - 1), String(Date.now()))
  }
  expect(await stock.getWaitingCount()).toBe(DEPTH)

  const capacity = DEPTH - 60
  const queue = shop.queueNamed('deep', { rate: '200/s', capacity })
  const refusal = await queue.add('new', {}).catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(QueueFullError)
  const { depth, retryAfterMs } = refusal as QueueFullError
  expect(depth).toBe(DEPTH)
  // 61 jobs have to leave first: 60 intervals of 5 ms, less what is granted ahead.
  expect(retryAfterMs).toBeGreaterThan(200)
  expect(retryAfterMs).toBeLessThanOrEqual(305)

  const worker = shop.worker(queue, async () => {}, { concurrency: 20 })
  const departed = departuresOf(worker)
  const added = await queue.addWhenFree('new', {}, { timeoutMs: 20_000 })
  expect(await added.getState()).toBe('waiting')
  await departed.reach(70)
  expect(departed.all.slice(0, 70).map(({ name }) => name)).toEqual(Array.from({ length: 70 }, (_, i) => `job${i + 1}`))
  const slots = departed.all.map(({ departureTimeUs }) => departureTimeUs)
  expect(excess(slots, 5000)).toBeLessThanOrEqual(rounding(5000))
  await worker.close()
})

test('a backlog that is turned on in shadow first tells what it would do, and holds nothing', async () => {
  const stock = shop.keep(new Queue('shadow', { connection: redis.connection, prefix: redis.prefix }))
  await stock.addBulk(Array.from({ length: 20 }, (_, i) => ({ name: `job${i}`, data: {} })))
  const queue = shop.queueNamed('shadow', { rate: '1/min', capacity: 5, mode: 'shadow' })
  await queue.add('over capacity', {})
  const worker = shop.worker(queue, async () => {}, { concurrency: 5 })
  await eventsOf('completed', worker).reach(21)
  const meter = await queue.meter()
  expect(meter.shadowDelayedTotal).toBe(20)
})
