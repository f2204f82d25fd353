import { afterAll, expect, test } from 'vitest'
import { ShapedQueue } from '../../../src/index.ts'
import { useRedis } from '../../../test/support/redis.ts'
import { readQueueFacts } from '../src/running-worker.ts'

const redis = useRedis(import.meta.url)
const queue = new ShapedQueue('facts', {
  connection: redis.connection,
  prefix: redis.prefix,
  shape: { rate: '50/s', burst: 3 },
})
afterAll(() => queue.close())

test('a queue says what waits, and why it may have to', async () => {
  await queue.addBulk([
    { name: 'a', data: {} },
    { name: 'b', data: {}, opts: { priority: 1 } },
    { name: 'c', data: {}, opts: { delay: 60_000 } },
  ])
  const facts = { waiting: 2, paused: false, full: false, intervalMs: 20, burst: 3 }
  expect(await readQueueFacts(queue)).toEqual(facts)

  await queue.pause()
  expect(await readQueueFacts(queue)).toEqual({ ...facts, paused: true })
  await queue.resume()

  await queue.pauseUntil(new Date(Date.now() + 60_000), { reason: 'test' })
  expect(await readQueueFacts(queue)).toEqual({ ...facts, paused: true })
  await queue.clearPause()
  expect(await readQueueFacts(queue)).toEqual(facts)

  await queue.setShape({ rate: '1/min' }, { by: 'test', reason: 'test' })
  expect((await readQueueFacts(queue)).intervalMs).toBe(60_000)
})
