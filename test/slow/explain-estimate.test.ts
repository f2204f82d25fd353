import { expect, test } from 'vitest'
import type { Explanation } from '../../src/inspect/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { many } from '../queue/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)

test('of 1,000 jobs of a steady queue the estimate is off by at most 5 % of the wait, in the median', async () => {
  const queue = shop.queue({ rate: '40/s' }, { streams: { events: { maxLen: 100 } } })
  const inspector = inspectorOf(redis, shop)
  const script = new URL('../worker/programs/paced-worker.ts', import.meta.url)
  // In a process of its own: explaining a job takes as long as starting several.
  const args = [queue.name, redis.prefix, JSON.stringify(redis.connection), '30']
  const worker = processes.fork<{ type: 'ready' } | { type: 'departed'; id: string; departureTimeUs: number }>(script, {
    args,
  })
  await worker.waitFor('ready')
  const ahead = 100
  await queue.addBulk(many(ahead))
  worker.send('run')
  const departed = () => worker.messages.filter((message) => message.type === 'departed')
  const reach = (count: number) => worker.waitFor('departed', () => departed().length >= count, 60_000)
  const estimates: Explanation[] = []
  while (estimates.length < 1000) {
    await reach(Math.max(20, estimates.length))
    for (const { id } of await queue.addBulk(many(10)))
      estimates.push((await inspector.explain(queue.name, id as string)) as Explanation)
  }
  await reach(ahead + estimates.length)
  const startsMs = new Map(departed().map(({ id, departureTimeUs }) => [id, departureTimeUs / 1000]))
  await worker.kill('SIGTERM')
  const errors = estimates.map(({ id, at, startsAt }) => {
    const startMs = startsMs.get(id) as number
    return Math.abs((startsAt?.getTime() ?? 0) - startMs) / (startMs - at.getTime())
  })
  expect(errors.toSorted((one, other) => one - other)[500]).toBeLessThanOrEqual(0.05)
}, 90_000)
