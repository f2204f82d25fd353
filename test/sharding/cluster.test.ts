import { expect, test } from 'vitest'
import { jsonHere } from '../../packages/cli/test/run-here.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { shardPrefix } from '../../src/redis/shards.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { OwnCluster } from '../faults/support/own-cluster.ts'
import type { TestRedis } from '../support/redis.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const RATE = 300
const BURST = 3
const shape = { rate: `${RATE}/s`, burst: BURST, capacity: 20_000, groups: {}, audit: true } as const
const NAMES = { prefix: 'c', name: 'mail' }

test('three masters: each shard is on its own, every job runs once, the bound of the whole holds, and views show one queue', async () => {
  const cluster = await OwnCluster.start()
  const places = await Promise.all([0, 1, 2].map((shard) => cluster.placeOf(shardPrefix('c', 'mail', shard))))
  expect(places.map(({ from }) => from).toSorted()).toEqual([0, 1, 2])
  const shop = new ShardShop({ connection: cluster.connect() as never, prefix: NAMES.prefix })
  const queue = shop.queue('mail', { shards: 3, shape })
  const jobs = Array.from({ length: 900 }, (_, i) => ({
    name: 'job',
    data: { i },
    opts: { group: { id: `g${i % 30}` } },
  }))
  const added = await queue.addBulk(jobs)
  const workers = [1, 2].map(() =>
    new ShardShop({ connection: cluster.connect() as never, prefix: 'c' }).worker('mail', async () => undefined, {
      ...{ shards: 3, concurrency: 30, shape, lockDuration: 2000, stalledInterval: 1000 },
    }),
  )
  const ends = endsOf(...workers)
  await ends.reach(300)
  await workers[0]?.close(true)
  await ends.reach(added.length)
  expect(new Set(ends.ids)).toEqual(new Set(added.map(({ id }) => id)))
  expect(worstWindow(await shop.slotsUs(queue), { rate: shape.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  expect(shop.errors).toEqual([])
  const inspector = new Inspector({ connection: cluster.connect() as never, prefix: NAMES.prefix })
  const [whole] = await inspector.status(await inspector.queues())
  expect(whole).toMatchObject({ name: 'mail', completedKept: added.length, rate: shape.rate })
  expect(whole?.shards?.map(({ shard }) => shard)).toEqual([0, 1, 2])
  const cli = { url: cluster.url, prefix: NAMES.prefix } as TestRedis
  expect((await jsonHere(cli, ['status', '--cluster'])).queues).toMatchObject([{ name: 'mail', completedKept: 900 }])
  await jsonHere(cli, ['pause', 'mail', '--cluster', '--reason', 'test'])
  expect((await queue.meter()).each.map(({ paused }) => paused)).toEqual([true, true, true])
  await jsonHere(cli, ['resume', 'mail', '--cluster', '--reason', 'test'])
  const narrow = shop.queue('narrow', { shards: 2, shape })
  await queue.addBulk(jobs.slice(0, 60))
  const [first] = queue.each
  await first?.upsertJobScheduler('daily', { pattern: '0 0 1 1 *' }, { name: 'day' })
  await narrow.waitUntilReady()
  const moved = await jsonHere(cli, ['shards', 'move', 'mail', 'narrow', '--cluster', '--reason', 'two are enough'])
  expect(moved).toMatchObject({ resumed: true, schedulers: 1, deadLetters: [] })
  await ends.reach(added.length + 60)
  expect(await queue.count()).toBe(0)
  expect(await narrow.getJobCounts('delayed', 'waiting')).toEqual({ delayed: 1, waiting: 0 })
  expect((await narrow.meter()).each.map(({ paused }) => paused)).toEqual([false, false])
})
