import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { type Shape, ShapedQueue, ShapedWorker } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { ShardedQueue, ShardedWorker } from 'sluice/sharding'
import { worstWindow } from 'sluice/testing'
import { CLUSTER_ARGS, formCluster } from '../test/support/cluster.ts'
import { startRedis } from '../workers/services/redis.ts'
import { medianOf, rounds } from './harness/compare.ts'
import { ALONE, type Bench, type Figure, type Row } from './harness/figure.ts'
import { completions, inGroup, jobsFrom } from './harness/queues.ts'
import { usageOf } from './harness/redis.ts'
import { median, sum } from './harness/statistics.ts'

const MASTERS = 3
const JOBS = 12_000
const QUICK_JOBS = 2000
const RATE = 300
/** Five after the first, which loads scripts. */
const ROUNDS = 6
/** Jobs that a worker runs at once. */
const PLACES = 60
/** A node that no other has met does not know its address. */
const NODE_ARGS = [...CLUSTER_ARGS, '--cluster-announce-ip', '127.0.0.1']

interface Opened {
  readonly cluster: Cluster
  readonly nodes: readonly Redis[]
}

/** What is done with a cluster of its own. */
async function withCluster<T>(masters: number, use: (opened: Opened) => Promise<T>): Promise<T> {
  const starting = Array.from({ length: masters }, () => startRedis({ args: NODE_ARGS, ignoreGiven: true }))
  const services = await Promise.all(starting)
  await formCluster(services)
  const nodes = services.map(({ url }) => new Redis(url))
  const addresses = services.map(({ host, port }) => ({ host, port }))
  const cluster = new Cluster(addresses, { redisOptions: { maxRetriesPerRequest: null } })
  try {
    return await use({ cluster, nodes })
  } finally {
    cluster.disconnect()
    for (const node of nodes) node.disconnect()
    await Promise.all(services.map((service) => service.stop()))
  }
}

/** Without shards, or with one for each master: either all share the places of one worker, or each has as many. */
interface Setup {
  readonly masters: number
  readonly isSharded: boolean
  readonly places: number
}

const SETUPS: Readonly<Record<string, Setup>> = Object.fromEntries(
  [
    { masters: 1, isSharded: false, places: PLACES },
    { masters: 1, isSharded: true, places: PLACES },
    ...[3, 6].flatMap((masters) => [1, masters].map((n) => ({ masters, isSharded: true, places: n * PLACES }))),
  ].map((setup) => {
    const { masters, isSharded, places } = setup
    return [`${isSharded ? `${masters} shards` : 'ShapedQueue'} on ${masters} masters, ${places} jobs at once`, setup]
  }),
)

let queues = 0

/** The queue, and what starts its worker. */
function open(cluster: Cluster, { isSharded, masters, places: concurrency }: Setup) {
  const common = { connection: cluster as never, shape: { capacity: 100_000, groups: {} } }
  const name = `drained-${queues++}`
  const work = async () => undefined
  if (isSharded) {
    const options = { ...common, shards: masters }
    const startWorker = () => new ShardedWorker(name, work, { ...options, concurrency })
    return { queue: new ShardedQueue(name, options), startWorker }
  }
  const options = { ...common, prefix: '{one}' }
  const startWorker = () => new ShapedWorker(name, work, { ...options, concurrency })
  return { queue: new ShapedQueue(name, options), startWorker }
}

/** For each job of one drained backlog: in all Redis together, and in the busiest one. */
async function drainCost({ cluster, nodes }: Opened, setup: Setup, jobs: number) {
  const { queue, startWorker } = open(cluster, setup)
  const before = await Promise.all(nodes.map(usageOf))
  for (let at = 0; at < jobs; at += 1000)
    await queue.addBulk(jobsFrom(at, Math.min(1000, jobs - at), (i) => inGroup(`g${i % 600}`)) as never)
  const worker = startWorker()
  await completions(worker as ShapedWorker, jobs)
  const after = await Promise.all(nodes.map(usageOf))
  await worker.close()
  await queue.close()
  const spent = (field: 'redisUs' | 'calls') => after.map((one, i) => (one[field] - (before[i]?.[field] ?? 0)) / jobs)
  return { redisUs: sum(spent('redisUs')), busiestUs: Math.max(...spent('redisUs')), calls: sum(spent('calls')) }
}

/** The setups in turns, each on a cluster of its number of masters. */
async function costRows(quick: boolean, clusters: readonly Opened[]): Promise<Row[]> {
  const names = Object.keys(SETUPS)
  const measure = (name: string) => {
    const setup = SETUPS[name] as Setup
    const cluster = clusters.find(({ nodes }) => nodes.length === setup.masters) as Opened
    return drainCost(cluster, setup, quick ? QUICK_JOBS : JOBS)
  }
  const measured = await rounds(quick, names, measure, ROUNDS)
  return names.map((setup): Row => {
    const costs = measured.map((round) => round[setup] as Awaited<ReturnType<typeof drainCost>>)
    const { redisUs, busiestUs, calls } = medianOf(costs)
    const busiest = costs.map((cost) => cost.busiestUs)
    const spread = `${Math.min(...busiest).toFixed(0)} to ${Math.max(...busiest).toFixed(0)}`
    const reached =
      `${redisUs.toFixed(0)} µs of all Redis and ${calls.toFixed(3)} calls per job, ${busiestUs.toFixed(0)} µs ` +
      `(${spread}) in the busiest: at most ${Math.round(1e6 / busiestUs)} jobs/s`
    return { setup, reached, values: { costs } }
  })
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
    const ofShard = found[queue.each.indexOf(await queue.queueOfGroup(`g${i}`))] as string[]
    if (ofShard.length < 20) ofShard.push(`g${i}`)
  }
  return found
}

function inGroups(groups: readonly string[], count: number) {
  return jobsFrom(0, count, (i) => inGroup(groups[i % groups.length] as string)) as never[]
}

function timesRow(setup: string, timesMs: readonly number[]): Row {
  const [least, mid, most] = [Math.min(...timesMs), median(timesMs), Math.max(...timesMs)].map(Math.round)
  return { setup, reached: `${mid} ms in the median, ${least} to ${most} of ${timesMs.length}`, values: { timesMs } }
}

/** How long a shard waits for its share, ms. */
async function untilHasAll(shard: ShapedQueue, startedMs: number): Promise<number> {
  while (Number.parseFloat((await shard.meter()).rate ?? '0') < 0.95 * RATE) await sleep(5)
  return performance.now() - startedMs
}

async function untilIdle(queue: ShardedQueue, but?: number): Promise<void> {
  const counts = () => Promise.all(queue.each.map((shard, i) => (i === but ? 0 : shard.count())))
  while ((await counts()).some((count) => count > 0)) await sleep(5)
}

async function slotsOf(queue: ShardedQueue, cluster: Cluster): Promise<number[]> {
  const slots = queue.each.map(async (shard) => {
    const inspector = new Inspector({ connection: cluster as never, prefix: shard.opts.prefix as string })
    return (await inspector.audit(queue.name)).map(({ slotUs }) => slotUs)
  })
  return (await Promise.all(slots)).flat()
}

/** From when a shard has a backlog while the others become idle, until it has 95 % of the rate; and the bound. */
function shares(cluster: Cluster, rounds: number): Promise<Row[]> {
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
    const excessUs = worstWindow(slots, SHAPE)?.excessUs ?? 0
    return [
      timesRow('from when the other shards have no job until the last one has 95 % of the rate', emptiedMs),
      timesRow('from when a bulk for one of the idle shards is sent until it has 95 % of the rate', wokenMs),
      {
        setup: `the bound over all shards, ${slots.length} departures`,
        reached: `${(excessUs / 1000).toFixed(3)} ms over in the worst window (negative: below)`,
        ok: excessUs <= 1,
        values: { excessUs },
      },
    ]
  })
}

/** How much earlier the first shard has started its last job than the last one, of jobs that were added together. */
function order(cluster: Cluster, rounds: number): Promise<Row[]> {
  const { groups: _groups, ...shape } = SHAPE
  const measure = async ({ queue, worker }: Sharded) => {
    const lastMs = new Map<string, number>()
    // The ids of jobs begin with their shard.
    worker.on('departed', ({ id }) => lastMs.set((id as string)[0] as string, performance.now()))
    const apartMs: number[] = []
    for (let round = 0; round < rounds; round++) {
      // A shard has twice and another one four times as many jobs as the first.
      const adding = queue.each.map((one, shard) => {
        const count = (RATE / 2) * 2 ** ((shard + round) % MASTERS)
        return one.addBulk(jobsFrom(0, count, (i) => ({ jobId: `${shard}-${round}-${i}` })))
      })
      await Promise.all(adding)
      await untilIdle(queue)
      apartMs.push(Math.max(...lastMs.values()) - Math.min(...lastMs.values()))
      await sleep(1000)
    }
    return [timesRow('apart start the last jobs of the shards, of jobs that were added together', apartMs)]
  }
  return withQueue(cluster, 'order', measure, shape)
}

/** What groups of shards with few and with many groups get of the rate, each second, in relation to an even part. */
function fairness(cluster: Cluster, seconds: number): Promise<Row[]> {
  return withQueue(cluster, 'fairness', async ({ queue, worker, groups }) => {
    const busy = groups.map((ids, shard) => ids.slice(0, [2, 4, 9][shard]))
    const all = busy.flat()
    const perGroup = Math.ceil((RATE * (seconds + 3)) / all.length)
    await queue.addBulk(busy.flatMap((ids) => inGroups(ids, ids.length * perGroup)))
    // The shares follow the groups by then.
    await sleep(1000)
    const counts = new Map<string, number>()
    worker.on('departed', (job) => {
      const { id } = (job.opts as unknown as { group: { id: string } }).group
      counts.set(id, (counts.get(id) ?? 0) + 1)
    })
    const parts: number[] = []
    for (let second = 0; second < seconds; second++) {
      for (const id of all) counts.set(id, 0)
      await sleep(1000)
      const started = [...counts.values()]
      parts.push(...started.map((count) => (count * all.length) / sum(started)))
    }
    await worker.close()
    const [least, mid, most] = [Math.min(...parts), median(parts), Math.max(...parts)].map((part) => part.toFixed(2))
    return [
      {
        setup: 'a group gets so much in a second, where its shard has 2, 4 or 9 of the groups (1: an even part)',
        reached: `${mid} in the median, ${least} to ${most}`,
        values: { parts },
      },
    ]
  })
}

async function run({ quick }: Bench): Promise<Row[]> {
  const costs = await withCluster(1, (one) =>
    withCluster(3, (three) => withCluster(6, (six) => costRows(quick, [one, three, six]))),
  )
  const others = await withCluster(MASTERS, async ({ cluster }) => [
    ...(await shares(cluster, quick ? 2 : 24)),
    ...(await order(cluster, quick ? 2 : 12)),
    ...(await fairness(cluster, quick ? 3 : 15)),
  ])
  return [...costs, ...others]
}

export const sharding: Figure = {
  name: 'sharding',
  title:
    'One queue in several slots of a cluster: the work of Redis for each job, added and drained, by number of masters ' +
    'with a shard each (medians, the first round discarded; the last figure is computed from the time of the busiest ' +
    'master: what it could do on a core of its own), how fast a share moves, the bound, and what is approximate',
  headings: ALONE,
  run,
}
