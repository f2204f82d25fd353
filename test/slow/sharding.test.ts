import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { headPrefix, shardOf, shardPrefix } from '../../src/redis/shards.ts'
import type { ShardedQueue } from '../../src/sharding/index.ts'
import { worstWindow } from '../../src/testing/worst-window.ts'
import type { LinkedRedis } from '../faults/support/linked-redis.ts'
import { OwnCluster } from '../faults/support/own-cluster.ts'
import { ReplicatedCluster } from '../faults/support/replicated-cluster.ts'
import { type LeasedTogether, leasedTogether } from '../sharding/support/leases.ts'
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

/** How often a master is killed. */
const KILLS = Number(process.env.SHARD_KILLS ?? 3)
/** What connections say while a master is gone. */
const OUTAGE =
  /ECONNRE(FUSED|SET)|EPIPE|Connection is closed|CLUSTERDOWN|ClusterAllFailed|all startup nodes|missing lock/i

test(
  `the master of a shard is killed ${KILLS} times under load, and its replica takes over: nothing is lost, the leases ` +
    'are never above the whole, and the other shards go on',
  async () => {
    const cluster = await ReplicatedCluster.start({ fullCoverage: false })
    const prefixes = [0, 1, 2].map((shard) => shardPrefix('c', 'mail', shard))
    const head = await cluster.masterOf(headPrefix('c', 'mail'))
    const masters = await Promise.all(prefixes.map((prefix) => cluster.masterOf(prefix)))
    const dead = masters.findIndex((master) => master !== head)
    const shop = new ShardShop({ connection: cluster.connect() as never, prefix: NAMES.prefix })
    const queue = shop.queue('mail', { shards: 3, shape })
    const locks = { lockDuration: 2000, stalledInterval: 1000, maxStalledCount: 1000 }
    const worker = new ShardShop({ connection: cluster.connect() as never, prefix: NAMES.prefix }).worker(
      'mail',
      async () => undefined,
      { shards: 3, concurrency: 60, shape, ...locks },
    )
    const ends = endsOf(worker)
    const slotsUs: number[] = []
    const startsMs: { readonly dead: number[]; readonly others: number[] } = { dead: [], others: [] }
    worker.on('departed', ({ id }, { departureTimeUs }) => {
      slotsUs.push(departureTimeUs)
      startsMs[id?.startsWith(`${dead}-`) ? 'dead' : 'others'].push(performance.now())
    })
    const gapsMs = { dead: 0, others: 0 }
    const bulk = (shard: number) =>
      Array.from({ length: 400 }, () => ({ name: 'job', data: {}, opts: { group: { id: groupIn(shard) } } }))
    const added: string[] = []
    const add = async (shard: number) => {
      for (const { id } of await queue.addBulk(bulk(shard))) added.push(id as string)
    }
    const watch = watchLeases(queue)
    for (let kill = 0; kill < KILLS; kill++) {
      for (const shard of [0, 1, 2]) await add(shard)
      await ends.reach(ends.ids.length + 150)
      const master = await cluster.masterOf(prefixes[dead] as string)
      await replicated(master, prefixes[dead] as string)
      const killedMs = performance.now()
      const gone = cluster.kill(master, prefixes[dead] as string)
      // The other shards accept and run jobs while there is no master.
      for (const shard of [0, 1, 2].filter((one) => one !== dead)) await add(shard)
      const ended = new Set(ends.ids)
      await gone
      const takenOverMs = performance.now()
      expect(await cluster.masterOf(prefixes[dead] as string)).not.toBe(master)
      const since = ends.ids.filter((id) => !ended.has(id))
      expect(since.some((id) => !id.startsWith(`${dead}-`))).toBe(true)
      await expect.poll(() => (startsMs.dead.at(-1) ?? 0) > takenOverMs, { timeout: 30_000, interval: 20 }).toBe(true)
      for (const which of ['dead', 'others'] as const)
        gapsMs[which] = Math.max(gapsMs[which], longestGapMs(startsMs[which], killedMs))
      await cluster.restart(master)
    }
    await expect
      .poll(() => added.filter((id) => !ends.ids.includes(id)).length, { timeout: 60_000, interval: 100 })
      .toBe(0)
    const seen = await watch.stop()
    expect(seen.some(({ answered }) => answered === 2)).toBe(true)
    process.stdout.write(
      `a shard's master killed ${KILLS} times: no start for ${gapsMs.dead} ms in the shard, for ${gapsMs.others} ms in ` +
        `the others; at most ${Math.max(...seen.map(({ perSecond }) => perSecond)).toFixed(1)}/s leased\n`,
    )
    expect(Math.max(...seen.map(({ perSecond }) => perSecond))).toBeLessThanOrEqual(RATE)
    expect(worstWindow(slotsUs, { rate: shape.rate, burst: BURST })?.excessUs).toBeLessThanOrEqual(1)
    expect(shop.errors.filter(({ message }) => !OUTAGE.test(message))).toEqual([])
  },
  60_000 + KILLS * 60_000,
)

/** Until its replica has all that a master has. */
async function replicated({ admin }: LinkedRedis, prefix: string): Promise<void> {
  await admin.set(`${prefix}:replicated`, '')
  await expect.poll(() => admin.wait(1, 1000), { timeout: 10_000 }).toBe(1)
}

/** For how long nothing started, from a time on. */
function longestGapMs(startsMs: readonly number[], fromMs: number): number {
  const since = startsMs.filter((atMs) => atMs > fromMs)
  return Math.round(Math.max(...since.map((atMs, i) => atMs - (since[i - 1] ?? fromMs))))
}

/** Looks at the leases until it is stopped. */
function watchLeases(queue: ShardedQueue): { stop(): Promise<readonly LeasedTogether[]> } {
  const seen: LeasedTogether[] = []
  let isOver = false
  const look = async () => {
    while (!isOver) {
      const found = await leasedTogether(queue)
      if (found) seen.push(found)
      await sleep(5)
    }
    return seen
  }
  const looking = look()
  return {
    stop: () => {
      isOver = true
      return looking
    },
  }
}

function groupIn(shard: number): string {
  for (let i = 0; ; i++) if (shardOf(`group:g${i}`, 3) === shard) return `g${i}`
}
