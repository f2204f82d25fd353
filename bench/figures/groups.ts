import { performance } from 'node:perf_hooks'
import type { JobsOptions, Queue } from 'bullmq'
import type { GroupDefaults, Shape, ShapedQueue } from 'sluice'
import { Inspector } from 'sluice/inspect'
import type { Bench, Figure, Row } from '../figure.ts'
import { CallMonitor, UPKEEP } from '../measure/call-monitor.ts'
import { type Drain, drainOnce } from '../measure/drain.ts'
import { rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'
import { redisCpuUs, scriptUsage } from '../measure/redis-usage.ts'
import { median } from '../measure/statistics.ts'
import { addJobs, amongGroups, inGroup, makeQueue, OPEN_GROUPS, removeQueue } from '../queues.ts'

/** Jobs that are drained of a queue in each round; the worker takes some more. */
const ROUND_JOBS = 1000
/** Each takes one job of each group from a backlog, which lasts for all rounds. */
const ROUNDS = 10

/** A queue in which a job of each group waits, or `ROUND_JOBS` of a single one. */
async function fill(queue: Queue, groups: number): Promise<void> {
  await addJobs(queue, Math.max(groups, ROUND_JOBS), amongGroups(groups))
}

/** Drains some jobs with a worker of its own. @returns µs of Redis in scripts, and calls, for each */
async function drainSome({ client, fleet, redis }: Bench, queue: Queue): Promise<{ us: number; calls: number }> {
  const process = fleet.process('groups')
  const spec = { system: 'sluice', queue: queue.name, redis, workers: 1, concurrency: 50, jobMs: 0 } as const
  await process.call('open', { ...spec, expected: ROUND_JOBS })
  const [waiting, before] = [await queue.getPrioritizedCount(), await scriptUsage(client)]
  await queue.resume()
  await process.call('drained', queue.name)
  await queue.pause()
  await process.call('close', queue.name)
  const after = await scriptUsage(client)
  const left = waiting - (await queue.getPrioritizedCount())
  return { us: (after.us - before.us) / left, calls: (after.calls - before.calls) / left }
}

/**
 * Redis's time for a departure, by the number of groups that have one job each: a group whose last job leaves takes more.
 * All queues are there at once and drained in turn, since the speed of the machine varies.
 */
async function redisTimes(bench: Bench): Promise<Row[]> {
  const counts = (bench.quick ? [1, 1000, 100_000] : [1, 1000, 100_000, 1_000_000]).map(String)
  const queues = new Map<string, Queue>()
  for (const count of counts) {
    const queue = await makeQueue(bench, 'sluice', 'groups', { groups: {}, capacity: 10_000_000 })
    queues.set(count, queue)
    await queue.pause()
    if (Number(count) > ROUND_JOBS) await fill(queue, Number(count))
  }
  const run = async (count: string) => {
    const queue = queues.get(count) as Queue
    if (Number(count) <= ROUND_JOBS) await fill(queue, Number(count))
    return drainSome(bench, queue)
  }
  const measured = await rounds(bench.quick, counts, run, ROUNDS)
  for (const queue of queues.values()) {
    await queue.drain()
    await removeQueue(queue)
  }
  const of = (count: string) => measured.map((round) => (round[count] as { us: number }).us)
  const rows: Row[] = counts.map((count) => {
    const calls = median(measured.map((round) => (round[count] as { calls: number }).calls))
    const us = median(of(count))
    return {
      setup: `Redis time per job, ${Number(count).toLocaleString('en')} ${count === '1' ? 'group' : 'groups'}`,
      reached: `${us.toFixed(1)} µs in scripts (${Math.min(...of(count)).toFixed(1)} to ${Math.max(...of(count)).toFixed(1)}), ${calls.toFixed(2)} calls`,
      values: { groups: Number(count), us, rounds: of(count) },
    }
  })
  const many = counts.slice(1)
  // What else the machine does only adds to a round.
  const lowest = many.map((count) => Math.min(...of(count)))
  const spread = Math.max(...lowest) / Math.min(...lowest)
  rows.push({
    setup: 'the same, lowest of the rounds, from 1,000 groups on: largest over smallest',
    asked: '<= 1.15',
    reached: spread.toFixed(2),
    ok: spread <= 1.15,
    values: { spread, lowest },
  })
  return rows
}

const DRAINED: Readonly<Record<'stock' | 'without' | 'fair' | 'limited', GroupDefaults | undefined>> = {
  stock: undefined,
  without: undefined,
  fair: {},
  limited: OPEN_GROUPS,
}

async function drains(bench: Bench): Promise<Row[]> {
  const jobs = bench.quick ? 3000 : 15_000
  const measured = await rounds(bench.quick, ['stock', 'without', 'fair', 'limited'] as const, (way) => {
    const groups = DRAINED[way]
    const shape: Shape = groups ? { groups } : {}
    const system = way === 'stock' ? 'bullmq' : 'sluice'
    return drainOnce(bench, system, { concurrency: 50, jobs, shape, ...(groups ? { opts: amongGroups(100) } : {}) })
  })
  const typical = (way: keyof typeof DRAINED, of: (drain: Drain) => number) =>
    median(measured.map((round) => of(round[way]))).toFixed(0)
  const describe = (way: keyof typeof DRAINED) =>
    `${typical(way, (d) => d.perSecond)} jobs/s, client ${typical(way, (d) => d.clientUs)} µs, Redis ${typical(way, (d) => d.redisUs)} µs`
  const rowOf = (way: 'fair' | 'limited', than: 'stock' | 'without', asked: number): Row => {
    const ratio = ratioOf(measured.map((round) => round[way].perSecond / round[than].perSecond))
    const what = way === 'fair' ? 'no limits' : 'rate and concurrency'
    return {
      setup: `drain of 100 groups at 50 at once, ${what}, over ${than === 'stock' ? "BullMQ's without groups" : 'none'}`,
      ...atLeast(ratio, asked),
      reached: `${describeRatio(ratio, 3)}, ${describe(way)}`,
      beside: describe(than),
      values: { ratio, rounds: measured },
    }
  }
  return [
    rowOf('fair', 'stock', 0.85),
    rowOf('limited', 'stock', 0.7),
    rowOf('fair', 'without', 0.75),
    rowOf('limited', 'without', 0.65),
  ]
}

async function bulks(bench: Bench): Promise<Row> {
  const jobs = bench.quick ? 5000 : 20_000
  const measured = await rounds(bench.quick, ['without', 'groups'] as const, async (way) => {
    const queue = await makeQueue(bench, 'sluice', 'groups-add', way === 'groups' ? { groups: {} } : {})
    const bulk = Array.from({ length: 100 }, (_, i) => ({
      name: 'job',
      data: { i },
      opts: way === 'groups' ? inGroup(i) : {},
    }))
    await queue.addBulk(bulk)
    const before = await redisCpuUs(bench.client)
    const startedMs = performance.now()
    for (let added = 0; added < jobs; added += bulk.length) await queue.addBulk(bulk)
    const perSecond = (jobs / (performance.now() - startedMs)) * 1000
    const redisUs = ((await redisCpuUs(bench.client)) - before) / jobs
    await removeQueue(queue)
    return { perSecond, redisUs }
  })
  const ratio = ratioOf(measured.map(({ without, groups }) => groups.perSecond / without.perSecond))
  const describe = (way: 'without' | 'groups') =>
    `${median(measured.map((round) => round[way].perSecond)).toFixed(0)} jobs/s, ${median(measured.map((round) => round[way].redisUs)).toFixed(0)} µs of Redis`
  return {
    setup: 'addBulk of 100 in 100 groups, over none',
    ...atLeast(ratio, 0.8),
    reached: `${describeRatio(ratio, 3)}, ${describe('groups')}`,
    beside: describe('without'),
    values: { ratio, rounds: measured },
  }
}

interface Left {
  readonly tenant: string
  readonly slotUs: number
}

/** The departures of a queue whose jobs have ids `<tenant>-<number>`, in order, once so many have left. */
async function departuresOf(bench: Bench, queue: Queue, processes: number, count: number): Promise<Left[]> {
  const team = bench.fleet.team(processes)
  const spec = {
    system: 'sluice',
    queue: queue.name,
    redis: bench.redis,
    workers: 1,
    concurrency: 50,
    jobMs: 1,
  } as const
  await Promise.all(team.map((process) => process.call('open', spec)))
  await queue.resume()
  const inspector = new Inspector({ connection: bench.client })
  let entries: Awaited<ReturnType<Inspector['audit']>> = []
  while (entries.length < count) {
    await new Promise((resolve) => setTimeout(resolve, 500))
    entries = await inspector.audit(queue.name)
  }
  await Promise.all(team.map((process) => process.call('close', queue.name)))
  await inspector.close()
  return entries.map(({ jobId, slotUs }) => ({ tenant: jobId.slice(0, jobId.indexOf('-')), slotUs }))
}

function named(tenant: string, count: number) {
  return Array.from({ length: count }, (_, i) => ({
    name: 'job',
    data: {},
    opts: { jobId: `${tenant}-${i}`, group: { id: tenant } } as JobsOptions,
  }))
}

async function addNamed(queue: Queue, tenant: string, count: number): Promise<void> {
  const all = named(tenant, count)
  for (let at = 0; at < all.length; at += 1000) await queue.addBulk(all.slice(at, at + 1000) as never)
}

async function waiting(bench: Bench): Promise<Row> {
  const backlog = bench.quick ? 10_000 : 100_000
  const tenants = 20
  const queue = await makeQueue(bench, 'sluice', 'groups-wait', { rate: '500/s', groups: {}, audit: 1000 })
  await queue.pause()
  await addNamed(queue, 'big', backlog)
  for (let i = 1; i < tenants; i++) await addNamed(queue, `t${i}`, 50)
  await addNamed(queue, 'one', 1)
  const left = await departuresOf(bench, queue, 1, 100)
  await removeQueue(queue)
  const wait = left.findIndex(({ tenant }) => tenant === 'one')
  return {
    setup: `wait of a tenant with one job, beside one with ${backlog.toLocaleString('en')} and ${tenants - 1} with 50, in departures`,
    asked: `<= ${tenants + 2}`,
    reached: String(wait),
    ok: wait >= 0 && wait <= tenants + 2,
    values: { wait },
  }
}

async function shares(bench: Bench): Promise<Row> {
  const departures = bench.quick ? 2000 : 10_000
  const queue = await makeQueue(bench, 'sluice', 'groups-share', { rate: '2000/s', groups: {}, audit: 20_000 })
  await queue.pause()
  const weights = Array.from({ length: 10 }, (_, i) => i + 1)
  const sum = weights.reduce((all, weight) => all + weight, 0)
  for (const weight of weights) {
    await (queue as ShapedQueue).setGroup(`w${weight}`, { weight }, { by: 'bench', reason: 'weights' })
    await addNamed(queue, `w${weight}`, Math.ceil((departures * 1.5 * weight) / sum) + 50)
  }
  const left = (await departuresOf(bench, queue, 1, departures)).slice(0, departures)
  await removeQueue(queue)
  const errors = weights.map((weight) => {
    const share = left.filter(({ tenant }) => tenant === `w${weight}`).length / departures
    return Math.abs(share / (weight / sum) - 1)
  })
  const worst = Math.max(...errors)
  return {
    setup: `share of each of 10 tenants with weights 1 to 10, over ${departures.toLocaleString('en')} departures: furthest from its weight`,
    asked: '<= 0.5 %',
    reached: `${(worst * 100).toFixed(2)} %`,
    ok: worst <= 0.005,
    values: { errors },
  }
}

async function rates(bench: Bench): Promise<Row> {
  const seconds = bench.quick ? 4 : 12
  const groups = 100
  const shape = { rate: '1000/s', groups: { rate: '5/s' }, audit: 20_000 } as const
  const queue = await makeQueue(bench, 'sluice', 'groups-rate', shape)
  await queue.pause()
  for (let i = 0; i < groups; i++) await addNamed(queue, `g${i}`, 5 * (seconds + 3))
  const left = await departuresOf(bench, queue, 4, groups * 5 * seconds)
  await removeQueue(queue)
  const byGroup = groupBy(left)
  let excess = 0
  const reached: number[] = []
  for (const slots of byGroup.values()) {
    const times = slots.map(({ slotUs }) => slotUs)
    const intervals = times.length - 1
    reached.push((intervals * 200_000) / ((times.at(-1) as number) - (times[0] as number)))
    for (let i = 1; i < times.length; i++)
      excess = Math.max(excess, 200_000 - ((times[i] as number) - (times[i - 1] as number)))
  }
  const [low, high] = [Math.min(...reached), Math.max(...reached)]
  return {
    setup: `rate of each of 100 groups of 5/s under backlog, at a queue of 1000/s, 4 workers, over ${seconds} s`,
    asked: '0.998 to 1.001, excess 0',
    reached: `${low.toFixed(4)} to ${high.toFixed(4)}, closest two jobs ${(excess / 1000).toFixed(3)} ms too close`,
    ok: low >= 0.998 && high <= 1.001 && excess <= 0,
    values: { reached, excess },
  }
}

function groupBy(left: readonly Left[]): Map<string, Left[]> {
  const groups = new Map<string, Left[]>()
  for (const one of left) {
    const found = groups.get(one.tenant)
    if (found) found.push(one)
    else groups.set(one.tenant, [one])
  }
  return groups
}

async function calls(bench: Bench): Promise<Row[]> {
  const rows: Row[] = []
  for (const workers of bench.quick ? [1, 4] : [1, 4, 16]) {
    const queue = await makeQueue(bench, 'sluice', 'groups-calls', { rate: '100/s', groups: { rate: '5/s' } })
    await addJobs(queue, 3000, amongGroups(30))
    const process = bench.fleet.process('groups')
    const spec = { system: 'sluice', queue: queue.name, redis: bench.redis, concurrency: 10, jobMs: 0 } as const
    await process.call('open', { ...spec, workers })
    await new Promise((resolve) => setTimeout(resolve, 3000))
    const monitor = await CallMonitor.start(bench.client)
    await process.call('takeStarts', queue.name)
    monitor.reset()
    await new Promise((resolve) => setTimeout(resolve, bench.quick ? 3000 : 6000))
    const { starts } = await process.call('takeStarts', queue.name)
    const counted = [...monitor.of(queue.name)].filter(([name]) => monitor.isScript(name) && !UPKEEP.includes(name))
    monitor.stop()
    await process.call('close', queue.name)
    await removeQueue(queue)
    const perJob = counted.reduce((sum, [, times]) => sum + times, 0) / starts.length
    rows.push({
      setup: `calls per job, 30 groups of 5/s at 100/s, ${workers} workers`,
      asked: '<= 3',
      reached: `${perJob.toFixed(2)}, ${starts.length} jobs`,
      ok: perJob <= 3,
      values: { perJob, calls: Object.fromEntries(counted) },
    })
  }
  return rows
}

async function memory(bench: Bench): Promise<Row[]> {
  const used = async () => Number(/^used_memory:(\d+)/m.exec(await bench.client.info('memory'))?.[1])
  const rows: Row[] = []
  for (const [perGroup, asked] of [
    [100, 320],
    [1, 550],
  ] as const) {
    const jobs = bench.quick ? 20_000 : 100_000
    const queue = await makeQueue(bench, 'sluice', 'groups-memory', { groups: {} })
    const before = await used()
    await addJobs(queue, jobs, amongGroups(jobs / perGroup))
    const bytes = ((await used()) - before) / jobs
    await removeQueue(queue)
    const bare = await makeQueue(bench, 'sluice', 'groups-memory', {})
    const beforeBare = await used()
    await addJobs(bare, jobs)
    const without = ((await used()) - beforeBare) / jobs
    await removeQueue(bare)
    rows.push({
      setup: `bytes per job, ${perGroup} ${perGroup === 1 ? 'job' : 'jobs'} per group`,
      asked: `<= ${asked}`,
      reached: bytes.toFixed(0),
      ok: bytes <= asked,
      beside: `without groups ${without.toFixed(0)}`,
      values: { bytes, without },
    })
  }
  return rows
}

function figure(part: string, title: string, run: (bench: Bench) => Promise<Row | Row[]>): Figure {
  return {
    name: `groups-${part}`,
    title: `Groups: ${title}`,
    headings: ['', 'asked', 'reached', 'ok', ''],
    run: async (bench) => [await run(bench)].flat(),
  }
}

export const groups: readonly Figure[] = [
  figure('departures', "Redis's time by number of groups", redisTimes),
  figure('drain', 'drains', drains),
  figure('bulk', 'addBulk', bulks),
  figure('wait', 'fairness', waiting),
  figure('shares', 'weights', shares),
  figure('rates', 'rates', rates),
  figure('calls', 'calls for each job', calls),
  figure('memory', 'memory', memory),
]
