import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { ShapedQueue, ShapedWorker } from 'sluice'
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
const PAIRS = 5

/** The cost of one drained backlog in all Redis together, and in the busiest one. */
interface Cost {
  readonly redisUs: number
  readonly busiestUs: number
  readonly calls: number
}

/** What is done with a cluster of its own. */
async function withCluster<T>(use: (cluster: Cluster, nodes: readonly Redis[]) => Promise<T>): Promise<T> {
  const services: RedisService[] = await Promise.all(
    Array.from({ length: MASTERS }, () => startRedis({ args: CLUSTER_ARGS, ignoreGiven: true })),
  )
  await formCluster(services)
  const nodes = services.map(({ url }) => new Redis(url))
  const cluster = new Cluster(
    services.map(({ host, port }) => ({ host, port })),
    { redisOptions: { maxRetriesPerRequest: null } },
  )
  try {
    return await use(cluster, nodes)
  } finally {
    cluster.disconnect()
    for (const node of nodes) node.disconnect()
    await Promise.all(services.map((service) => service.stop()))
  }
}

function jobsOf(count: number) {
  return Array.from({ length: count }, (_, i) => ({ name: 'job', data: { i }, opts: { group: { id: `g${i % 600}` } } }))
}

interface Opened {
  addBulk(jobs: ReturnType<typeof jobsOf>): Promise<unknown>
  work(): Ended
  close(): Promise<void>
}

interface Ended {
  on(event: 'completed', listener: () => void): unknown
  close(): Promise<void>
}

/** One queue, in so many shards; 0: a ShapedQueue. */
function open(cluster: Cluster, shards: number, round: number): Opened {
  const shape = { capacity: 100_000, groups: {} }
  const common = { connection: cluster as never, shape }
  const work = async () => undefined
  if (shards === 0) {
    const [name, prefix] = [`one-${round}`, '{one}']
    const queue = new ShapedQueue(name, { ...common, prefix })
    return {
      addBulk: (jobs) => queue.addBulk(jobs as never),
      work: () => new ShapedWorker(name, work, { ...common, prefix, concurrency: 60 }) as never,
      close: () => queue.close(),
    }
  }
  const name = `many-${shards}-${round}`
  const queue = new ShardedQueue(name, { ...common, shards })
  return {
    addBulk: (jobs) => queue.addBulk(jobs),
    work: () => new ShardedWorker(name, work, { ...common, shards, concurrency: 60 }) as never,
    close: () => queue.close(),
  }
}

async function drainCost(cluster: Cluster, nodes: readonly Redis[], shards: number, round: number, quick: boolean) {
  const count = quick ? QUICK_JOBS : JOBS
  const queue = open(cluster, shards, round)
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

function costRow(setup: string, costs: readonly Cost[]): Row {
  const mid = (field: keyof Cost) => median(costs.map((cost) => cost[field]))
  const possible = Math.round(1e6 / mid('busiestUs'))
  return {
    setup,
    reached:
      `${mid('redisUs').toFixed(0)} µs of all Redis and ${mid('calls').toFixed(2)} calls per job, ` +
      `${mid('busiestUs').toFixed(0)} µs in the busiest: at most ${possible} jobs/s`,
    values: { costs },
  }
}

async function costs(bench: Bench): Promise<Row[]> {
  return withCluster(async (cluster, nodes) => {
    const found = new Map<number, Cost[]>([0, 1, 3, 6].map((shards) => [shards, []]))
    for (let round = 0; round <= (bench.quick ? 1 : PAIRS); round++) {
      for (const [shards, list] of found) {
        const cost = await drainCost(cluster, nodes, shards, round, bench.quick)
        // The first round loads scripts.
        if (round > 0) list.push(cost)
      }
    }
    return [...found].map(([shards, list]) =>
      costRow(shards === 0 ? 'ShapedQueue, groups, unpaced' : `${shards} shards on ${MASTERS} masters`, list),
    )
  })
}

const SHAPE = { rate: `${RATE}/s`, burst: MASTERS, capacity: 100_000, groups: {}, audit: true } as const

/** From when a shard has a backlog while the others become idle, until it has 95 % of the rate; and the bound. */
async function shares(bench: Bench): Promise<Row[]> {
  return withCluster(async (cluster) => {
    const rounds = bench.quick ? 2 : 8
    const options = { connection: cluster as never, shards: MASTERS, shape: SHAPE }
    const queue = new ShardedQueue('shares', options)
    const worker = new ShardedWorker('shares', async () => undefined, { ...options, concurrency: 90 })
    await queue.waitUntilReady()
    const movedMs: number[] = []
    for (let round = 0; round < rounds; round++) {
      const busy = round % MASTERS
      await loadAll(queue)
      const own = queue.each[busy] as ShapedQueue
      await own.addBulk(jobsOf(6 * RATE) as never)
      await untilIdle(queue, busy)
      const startedMs = performance.now()
      while (Number.parseFloat((await own.meter()).rate ?? '0') < 0.95 * RATE) await sleep(5)
      movedMs.push(performance.now() - startedMs)
      await untilIdle(queue)
    }
    const slots = await slotsOf(queue, cluster)
    await worker.close()
    await queue.close()
    const worst = worstWindow(slots, SHAPE)
    return [
      {
        setup: 'from when the other shards have no job until the last one has 95 % of the rate',
        reached: `${Math.round(median(movedMs))} ms in the median, ${Math.round(Math.max(...movedMs))} at most of ${rounds}`,
        values: { movedMs },
      },
      {
        setup: `the bound over all shards, ${slots.length} departures`,
        reached: `${((worst?.excessUs ?? 0) / 1000).toFixed(3)} ms over in the worst window (negative: below)`,
        ok: (worst?.excessUs ?? 0) <= 1,
        values: { worst },
      },
    ]
  })
}

async function loadAll(queue: ShardedQueue): Promise<void> {
  await Promise.all(queue.each.map((shard) => shard.addBulk(jobsOf(RATE / 3) as never)))
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
    'One queue in several slots of a cluster: the work of Redis for each job, added and drained, by number of shards ' +
    '(median of rounds, the first discarded; the last figure is what the busiest master could do by itself, not what ' +
    'two cores did), how fast a share moves, and the bound',
  run: async (bench) => [...(await costs(bench)), ...(await shares(bench))],
}
