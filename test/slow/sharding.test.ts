import { expect, test } from 'vitest'
import { headPrefix, shardPrefix } from '../../src/sharding/layout.ts'
import { shardOf } from '../../src/sharding/placement.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import { OwnCluster } from '../faults/support/own-cluster.ts'
import { endsOf, ShardShop } from '../sharding/support/shop.ts'

const RATE = 300
const BURST = 3
const shape = { rate: `${RATE}/s`, burst: BURST, capacity: 20_000, groups: {}, audit: true } as const
const NAMES = { prefix: 'c', name: 'mail' }

/** A lease that is not renewed is certainly over after three seconds. */
const STILL_MS = 7000

test("a shard's master stands still: the others get its part, and no more, and it gets it back", async () => {
  const cluster = await OwnCluster.start()
  const head = (await cluster.placeOf(headPrefix('c', 'mail'))).from
  const places = await Promise.all([0, 1, 2].map((shard) => cluster.placeOf(shardPrefix('c', 'mail', shard))))
  const dead = places.findIndex(({ from }) => from !== head)
  const shop = new ShardShop({ connection: cluster.connect() as never, prefix: NAMES.prefix })
  const queue = shop.queue('mail', { shards: 3, shape })
  const groups = [0, 1, 2].map((shard) => groupIn(shard))
  const jobs = groups.flatMap((id) =>
    Array.from({ length: 1200 }, () => ({ name: 'job', data: {}, opts: { group: { id } } })),
  )
  const added = await queue.addBulk(jobs)
  const worker = shop.worker('mail', async () => undefined, { shards: 3, concurrency: 60, shape })
  const ends = endsOf(worker)
  const alive: number[] = []
  worker.on('departed', (job, { departureTimeUs }) => {
    if (!job.id?.startsWith(`${dead}-`)) alive.push(departureTimeUs)
  })
  await ends.reach(200)
  await cluster.standStill(places[dead]?.from as number, STILL_MS)
  const others = async () =>
    (await Promise.all(queue.each.map((one, shard) => (shard === dead ? undefined : one.meter())))).reduce(
      (sum, state) => sum + Number.parseFloat(state?.rate ?? '0'),
      0,
    )
  await expect.poll(others, { timeout: 15_000, interval: 50 }).toBeGreaterThan(0.95 * RATE)
  await ends.reach(added.length)
  expect(new Set(ends.ids)).toEqual(new Set(added.map(({ id }) => id)))
  expect(worstWindow(await shop.slotsUs(queue), { rate: shape.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  expect(worstWindow(alive, { rate: shape.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
  expect(shop.errors).toEqual([])
}, 90_000)

function groupIn(shard: number): string {
  for (let i = 0; ; i++) if (shardOf(`group:g${i}`, 3) === shard) return `g${i}`
}
