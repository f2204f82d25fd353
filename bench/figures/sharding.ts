import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { type Shape, ShapedQueue, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { ShardedQueue, ShardedWorker } from 'sluice/sharding'
import { worstWindow } from 'sluice/testing'
import { CLUSTER_ARGS, formCluster } from '../../test/support/cluster.ts'
import { type RedisService, startRedis } from '../../workers/services/redis.ts'
import type { Bench, Figure, Row } from '../figure.ts'
import { redisCpuUs, scriptUsage } from '../measure/redis-usage.ts'
import { median } from '../measure/statistics.ts'

const MASTERS = 3
const JOBS = 12_000
const QUICK_JOBS = 2000
const RATE = 300
const ROUNDS = 5
/** Jobs that a worker runs at once. */
const PLACES = 60

/** The cost of one drained backlog in all Redis together, and in the busiest one. */
interface Cost {
  readonly redisUs: number
  readonly busiestUs: number
  readonly calls: number
}

interface Opened {
  readonly cluster: Cluster
  readonly nodes: readonly Redis[]
}

/** A node that no other has met does not know its address. */
const NODE_ARGS = [...CLUSTER_ARGS, '--cluster-announce-ip', '127.0.0.1']

/** What is done with a cluster of its own. */
async function withCluster<T>(masters: number, use: (opened: Opened) => Promise<T>): Promise<T> {
  const services: RedisService[] = await Promise.all(
    Array.from({ length: masters }, () => startRedis({ args: NODE_ARGS, ignoreGiven: true })),
  )
  await formCluster(services)
  const nodes = services.map(({ url }) => new Redis(url))
  const cluster = new Cluster(
    services.map(({ host, port }) => ({ host, port })),
    { redisOptions: { maxRetriesPerRequest: null } },
  )
  try {
    return await use({ cluster, nodes })
  } finally {
    cluster.disconnect()
    for (const node of nodes) node.disconnect()
    await Promise.all(services.map((service) => service.stop()))
  }
}

function jobsOf(count: number) {
  return Array.from({ length: count }, (_, i) => ({ name: 'job', data: { i }, opts: { group: { id: `g${i % 600}` } } }))
}

interface Backlog {
  addBulk(jobs: ReturnType<typeof jobsOf>): Promise<unknown>
  work(): Ended
  close(): Promise<void>
}

interface Ended {
  on(event: 'completed', listener: () => void): unknown
  close(): Promise<void>
}

/** A queue with a shard for each master; without `perShard`, all shards share the places of one worker. */
interface Setup {
  readonly masters: number
  readonly kind: 'ShapedQueue' | 'shards'
  readonly perShard: boolean
}

const SETUPS: readonly Setup[] = [
  { masters: 1, kind: 'ShapedQueue', perShard: false },
  { masters: 1, kind: 'shards', perShard: false },
  ...[3, 6].flatMap((masters) =>
    [false, true].map((perShard) => ({ masters, kind: 'shards' as const, perShard }) satisfies Setup),
  ),
]

function open(cluster: Cluster, { masters, kind, perShard }: Setup, round: number): Backlog {
  const shape = { capacity: 100_000, groups: {} }
  const common = { connection: cluster as never, shape }
  const work = async () => undefined
  const concurrency = perShard ? PLACES * masters : PLACES
  if (kind === 'ShapedQueue') {
    const [name, prefix] = [`one-${round}`, '{one}']
    const queue = new ShapedQueue(name, { ...common, prefix })
    return {
      addBulk: (jobs) => queue.addBulk(jobs as never),
      work: () => new ShapedWorker(name, work, { ...common, prefix, concurrency }) as never,
      close: () => queue.close(),
    }
  }
  const name = `many-${concurrency}-${round}`
  const queue = new ShardedQueue(name, { ...common, shards: masters })
  return {
    addBulk: (jobs) => queue.addBulk(jobs),
    work: () => new ShardedWorker(name, work, { ...common, shards: masters, concurrency }) as never,
    close: () => queue.close(),
  }
}

async function drainCost({ cluster, nodes }: Opened, setup: Setup, round: number, quick: boolean): Promise<Cost> {
  const count = quick ? QUICK_JOBS : JOBS
  const queue = open(cluster, setup, round)
  const read = () =>
    Promise.all(nodes.map(async (node) => ({ cpu: await redisCpuUs(node), ...(await scriptUsage(node)) })))
  const before = await read()
  for (let at = 0; at < count; at += 1000) await queue.addBulk(jobsOf(Math.min(1000, count - at)))
  const worker = queue.work()
  await new Promise<void>((resolve) => {
    let left = count
    worker.on('completed', () => {
      left -= 1
      if (left === 0) resolve()
    })
  })
  const after = await read()
  await worker.close()
  await queue.close()
  const spent = after.map(({ cpu }, i) => (cpu - (before[i]?.cpu ?? 0)) / count)
  const calls = after.reduce((sum, one, i) => sum + one.calls - (before[i]?.calls ?? 0), 0)
  return { redisUs: spent.reduce((a, b) => a + b), busiestUs: Math.max(...spent), calls: calls / count }
}

function costRow({ masters, kind, perShard }: Setup, costs: readonly Cost[]): Row {
  const mid = (field: keyof Cost) => median(costs.map((cost) => cost[field]))
  const spread = costs.map(({ busiestUs }) => busiestUs.toFixed(0)).sort((a, b) => Number(a) - Number(b))
  const possible = Math.round(1e6 / mid('busiestUs'))
  const what = kind === 'shards' ? `${masters} shards` : kind
  return {
    setup: `${what} on ${masters} masters, ${perShard ? PLACES * masters : PLACES} jobs at once`,
    reached:
      `${mid('redisUs').toFixed(0)} µs of all Redis and ${mid('calls').toFixed(3)} calls per job, ` +
      `${mid('busiestUs').toFixed(0)} µs (${spread[0]} to ${spread.at(-1)}) in the busiest: at most ${possible} jobs/s`,
    values: { costs },
  }
}

/** The setups in turns, each on a cluster of its number of masters. */
async function costs({ quick }: Bench): Promise<Row[]> {
  return withCluster(1, (one) =>
    withCluster(3, (three) =>
      withCluster(6, async (six) => {
        const clusters = new Map([one, three, six].map((opened) => [opened.nodes.length, opened]))
        const found = SETUPS.map((setup) => ({ setup, list: [] as Cost[] }))
        for (let round = 0; round <= (quick ? 1 : ROUNDS); round++) {
          for (const { setup, list } of found) {
            const cost = await drainCost(clusters.get(setup.masters) as Opened, setup, round, quick)
            // The first round loads scripts.
            if (round > 0) list.push(cost)
          }
        }
        return found.map(({ setup, list }) => costRow(setup, list))
      }),
    ),
  )
}

const SHAPE = { rate: `${RATE}/s`, burst: MASTERS, capacity: 100_000, groups: {}, audit: true } as const

/** A queue whose shards have a master each, with a worker. */
interface Sharded {
  readonly queue: ShardedQueue
  readonly worker: ShardedWorker
  /** Groups of each shard. */
  readonly groups: readonly (readonly string[])[]
}

async function withQueue<T>(
  cluster: Cluster,
  name: string,
  use: (sharded: Sharded) => Promise<T>,
  shape: Shape = SHAPE,
): Promise<T> {
  const options = { connection: cluster as never, shards: MASTERS, shape }
  const queue = new ShardedQueue(name, options)
  const worker = new ShardedWorker(name, async () => undefined, { ...options, concurrency: 90 })
  try {
    await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
    return await use({ queue, worker, groups: await groupsOf(queue) })
  } finally {
    await worker.close()
    await queue.close()
  }
}

/** Twenty groups of each shard. */
async function groupsOf(queue: ShardedQueue): Promise<string[][]> {
  const found: string[][] = queue.each.map(() => [])
  for (let i = 0; found.some((ids) => ids.length < 20); i++) {
    const shard = queue.each.indexOf(await queue.queueOfGroup(`g${i}`))
    if ((found[shard] as string[]).length < 20) found[shard]?.push(`g${i}`)
  }
  return found
}

function inGroups(groups: readonly string[], count: number) {
  return Array.from({ length: count }, (_, i) => ({
    name: 'job',
    data: {},
    opts: { group: { id: groups[i % groups.length] as string } },
  }))
}

/** From when a shard has a backlog while the others become idle, until it has 95 % of the rate; and the bound. */
async function shares(cluster: Cluster, rounds: number): Promise<Row[]> {
  return withQueue(cluster, 'shares', async ({ queue, groups }) => {
    const emptiedMs: number[] = []
    const wokenMs: number[] = []
    for (let round = 0; round < rounds; round++) {
      const busy = round % MASTERS
      const own = queue.each[busy] as ShapedQueue
      const backlog = inGroups(groups[busy] as string[], 3 * RATE)
      for (const ids of groups) await queue.addBulk(inGroups(ids, RATE / 3))
      await queue.addBulk(backlog)
      await untilIdle(queue, busy)
      emptiedMs.push(await untilHasAll(own, performance.now()))
      await untilIdle(queue)
      // All shards have even shares again.
      await sleep(1000)
      const wokenAtMs = performance.now()
      await queue.addBulk(backlog)
      wokenMs.push(await untilHasAll(own, wokenAtMs))
      await untilIdle(queue)
    }
    const slots = await slotsOf(queue, cluster)
    const worst = worstWindow(slots, SHAPE)
    return [
      timesRow('from when the other shards have no job until the last one has 95 % of the rate', emptiedMs),
      timesRow('from when a bulk for one of the idle shards is sent until it has 95 % of the rate', wokenMs),
      {
        setup: `the bound over all shards, ${slots.length} departures`,
        reached: `${((worst?.excessUs ?? 0) / 1000).toFixed(3)} ms over in the worst window (negative: below)`,
        ok: (worst?.excessUs ?? 0) <= 1,
        values: { worst },
      },
    ]
  })
}

/** How long a shard waits for its share, ms. */
async function untilHasAll(shard: ShapedQueue, startedMs: number): Promise<number> {
  while (Number.parseFloat((await shard.meter()).rate ?? '0') < 0.95 * RATE) await sleep(5)
  return performance.now() - startedMs
}

function timesRow(setup: string, timesMs: readonly number[]): Row {
  const [least, mid, most] = [Math.min(...timesMs), median(timesMs), Math.max(...timesMs)].map(Math.round)
  return { setup, reached: `${mid} ms in the median, ${least} to ${most} of ${timesMs.length}`, values: { timesMs } }
}

/** How much earlier the first shard has started its last job than the last one, of jobs that were added together. */
async function order(cluster: Cluster, rounds: number): Promise<Row[]> {
  const { groups: _groups, ...shape } = SHAPE
  return withQueue(
    cluster,
    'order',
    async ({ queue, worker }) => {
      const apartMs: number[] = []
      const startsMs = startsByShard(worker)
      for (let round = 0; round < rounds; round++) {
        for (const one of startsMs) one.length = 0
        // A shard has twice and another one four times as many jobs as the first.
        const counts = queue.each.map((_, shard) => (RATE / 2) * 2 ** ((shard + round) % MASTERS))
        await Promise.all(
          queue.each.map((one, shard) => one.addBulk(namedAfter(shard, round, counts[shard] as number))),
        )
        await untilIdle(queue)
        const lasts = startsMs.map((starts) => starts.at(-1) as number)
        apartMs.push(Math.max(...lasts) - Math.min(...lasts))
        await sleep(1000)
      }
      return [timesRow('apart start the last jobs of the shards, of jobs that were added together', apartMs)]
    },
    shape,
  )
}

/** Jobs whose ids begin with their shard. */
function namedAfter(shard: number, round: number, count: number) {
  const jobIdOf = (i: number) => `${shard}-${round}-${i}`
  return Array.from({ length: count }, (_, i) => ({ name: 'job', data: {}, opts: { jobId: jobIdOf(i) } }))
}

function startsByShard(worker: ShardedWorker): number[][] {
  const starts: number[][] = Array.from({ length: MASTERS }, () => [])
  worker.on('departed', ({ id }) => starts[Number.parseInt(id as string, 10)]?.push(performance.now()))
  return starts
}

/** What groups of shards with few and with many groups get of the rate, each second, in relation to an even part. */
async function fairness(cluster: Cluster, seconds: number): Promise<Row[]> {
  return withQueue(cluster, 'fairness', async ({ queue, worker, groups }) => {
    const busy = groups.map((ids, shard) => ids.slice(0, [2, 4, 9][shard]))
    const all = busy.flat()
    await queue.addBulk(
      busy.flatMap((ids) => inGroups(ids, ids.length * Math.ceil((RATE * (seconds + 3)) / all.length))),
    )
    // The shares follow the groups by then.
    await sleep(1000)
    const counts = new Map(all.map((id) => [id, 0]))
    const parts: number[] = []
    worker.on('departed', (job) => {
      const { id } = (job.opts as unknown as { group: { id: string } }).group
      counts.set(id, (counts.get(id) ?? 0) + 1)
    })
    for (let second = 0; second < seconds; second++) {
      for (const id of all) counts.set(id, 0)
      await sleep(1000)
      const sum = [...counts.values()].reduce((a, b) => a + b)
      for (const n of counts.values()) parts.push((n * all.length) / sum)
    }
    await worker.close()
    const texts = [Math.min(...parts), median(parts), Math.max(...parts)].map((part) => part.toFixed(2))
    return [
      {
        setup: 'a group gets so much in a second, where its shard has 2, 4 or 9 of the groups (1: an even part)',
        reached: `${texts[1]} in the median, ${texts[0]} to ${texts[2]}`,
        values: { parts },
      },
    ]
  })
}

async function untilIdle(queue: ShardedQueue, but?: number): Promise<void> {
  const waits = async () => {
    const counts = await Promise.all(queue.each.map((shard, i) => (i === but ? 0 : shard.count())))
    return counts.some((count) => count > 0)
  }
  while (await waits()) await sleep(5)
}

async function slotsOf(queue: ShardedQueue, cluster: Cluster): Promise<number[]> {
  const slots = queue.each.map(async (shard) => {
    const inspector = new Inspector({ connection: cluster as never, prefix: shard.opts.prefix as string })
    return (await inspector.audit(queue.name)).map(({ slotUs }) => slotUs)
  })
  return (await Promise.all(slots)).flat()
}

export const sharding: Figure = {
  name: 'sharding',
  title:
    'One queue in several slots of a cluster: the work of Redis for each job, added and drained, by number of masters ' +
    'with a shard each (medians, the first round discarded; the last figure is computed from the time of the busiest ' +
    'master: what it could do on a core of its own), how fast a share moves, the bound, and what is approximate',
  run: async (bench) => [
    ...(await costs(bench)),
    ...(await withCluster(MASTERS, async ({ cluster }) => [
      ...(await shares(cluster, bench.quick ? 2 : 24)),
      ...(await order(cluster, bench.quick ? 2 : 12)),
      ...(await fairness(cluster, bench.quick ? 3 : 15)),
    ])),
  ],
}
