import { expect, test } from 'vitest'
import type { Shape } from '../../src/index.ts'
import { moveShardedQueue, type ShardedQueue } from '../../src/sharding/index.ts'
import { quickConnection } from '../faults/support/own-redis.ts'
import { startPair } from '../faults/support/replicated-pair.ts'
import { ShardShop } from './support/shop.ts'

const HOUR_MS = 3_600_000
const SHAPE: Shape = { rate: '300/s', burst: 3, capacity: 90 }
/** Only where the replica stands still: what is not confirmed in time, however late a replica is, the move repeats. */
const DURABLE: Shape = { ...SHAPE, durability: { replicas: 1, timeoutMs: 300 } }

const schedulers = async (queue: ShardedQueue) =>
  (await Promise.all(queue.each.map((shard) => shard.getJobSchedulersCount()))).reduce((sum, count) => sum + count, 0)

test('a scheduler leaves the old queue only once a replica has it in the new one', async () => {
  const { master, freeze, thaw } = await startPair()
  const shop = new ShardShop({ connection: quickConnection(master.url), prefix: 'm' })
  const [old, renewed] = [
    shop.queue('old', { shards: 1, shape: SHAPE }),
    shop.queue('new', { shards: 2, shape: DURABLE }),
  ] as const
  await Promise.all([old.waitUntilReady(), renewed.waitUntilReady()])
  const startDate = Date.now() + HOUR_MS
  await old.each[0]?.upsertJobScheduler('hourly', { every: HOUR_MS, startDate }, { name: 'hour' })
  freeze()
  let looks = 0
  let thawed: Promise<void> | undefined
  const onProgress = () => {
    looks += 1
    // The second look finds in the new queue what the first one has placed there.
    if (looks === 3)
      thawed = schedulers(old)
        .then((count) => expect(count).toBe(1))
        .finally(thaw)
  }
  const result = await moveShardedQueue(old, renewed, { by: 'test', reason: 'test', onProgress })
  await thawed
  expect(result).toMatchObject({ schedulers: 1, resumed: true })
  expect(await Promise.all([old, renewed].map(schedulers))).toEqual([0, 1])
  expect(looks).toBeGreaterThanOrEqual(3)
})
