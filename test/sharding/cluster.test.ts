import { expect, test } from 'vitest'
import { shardPrefix } from '../../src/sharding/layout.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { OwnCluster } from '../faults/support/own-cluster.ts'
import { endsOf, ShardShop } from './support/shop.ts'

const RATE = 300
const BURST = 3
const shape = { rate: `${RATE}/s`, burst: BURST, capacity: 20_000, groups: {}, audit: true } as const
const NAMES = { prefix: 'c', name: 'mail' }

test('three masters: each shard is on its own, every job runs once, and the bound of the whole holds', async () => {
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
}, 60_000)
