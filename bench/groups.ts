import { setTimeout as sleep } from 'node:timers/promises'
import type { JobsOptions, Queue } from 'bullmq'
import type { Shape, ShapedQueue } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { medianOf, rounds } from './harness/compare.ts'
import { ALONE, type Bench, type Figure, type Row } from './harness/figure.ts'
import { addJobs, amongGroups, inGroup, makeQueue, removeQueue } from './harness/queues.ts'
import { type Cost, costOf } from './harness/redis.ts'
import { sum } from './harness/statistics.ts'
import { Team, workerProcess } from './harness/workers.ts'

const inWords = (n: number) => n.toLocaleString('en')

/** Jobs that are drained of a queue in each round; the worker takes some more. */
const ROUND_JOBS = 1000
/** Each takes one job of each group from a backlog, which lasts for all rounds. */
const ROUNDS = 10

/** A queue in which a job of each group waits, or `ROUND_JOBS` of a single one. */
const fill = (queue: Queue, groups: number) => addJobs(queue, Math.max(groups, ROUND_JOBS), amongGroups(groups))

/** Drains some jobs with a worker of its own. */
async function drainSome(bench: Bench, queue: Queue): Promise<Cost> {
  const process = workerProcess(bench, 'groups')
  const spec = { system: 'sluice', queue: queue.name, redis: bench.redis, concurrency: 50 } as const
  await process.call('open', { ...spec, expected: ROUND_JOBS })
  return costOf(bench.client, async () => {
    const waiting = await queue.getPrioritizedCount()
    await queue.resume()
    const drained = await process.call('drained', queue.name)
    await queue.pause()
    await process.call('close', queue.name)
    return { units: waiting - (await queue.getPrioritizedCount()), ...drained }
  })
}

/**
 * Redis's time for a departure, by the number of groups that have one job each: a group whose last job leaves takes more.
 * All queues are there at once and drained in turn, since the speed of the machine varies.
 */
async function redisTimes(bench: Bench): Promise<Row[]> {
  const counts = (bench.quick ? [1, 1000, 100_000] : [1, 1000, 100_000, 1_000_000]).map(String)
  const queues = new Map<string, Queue>()
  for (const count of counts) {
    const queue = await pausedQueue(bench, 'groups', { groups: {}, capacity: 10_000_000 })
    queues.set(count, queue)
    if (Number(count) > ROUND_JOBS) await fill(queue, Number(count))
  }
  const drained = async (count: string) => {
    const queue = queues.get(count) as Queue
    if (Number(count) <= ROUND_JOBS) await fill(queue, Number(count))
    return drainSome(bench, queue)
  }
  const measured = await rounds(bench.quick, counts, drained, ROUNDS)
  for (const queue of queues.values()) {
    await queue.drain()
    await removeQueue(queue)
  }
  const usOf = (count: string) => measured.map((round) => (round[count] as Cost).scriptUs)
  const rows = counts.map((count): Row => {
    const { scriptUs, calls } = medianOf(measured.map((round) => round[count] as Cost))
    const spread = `${Math.min(...usOf(count)).toFixed(1)} to ${Math.max(...usOf(count)).toFixed(1)}`
    return {
      setup: `Redis time per job, ${inWords(Number(count))} ${count === '1' ? 'group' : 'groups'}`,
      reached: `${scriptUs.toFixed(1)} µs in scripts (${spread}), ${calls.toFixed(2)} calls`,
      values: { groups: Number(count), rounds: usOf(count) },
    }
  })
  // What else the machine does only adds to a round.
  const lowest = counts.slice(1).map((count) => Math.min(...usOf(count)))
  const spread = Math.max(...lowest) / Math.min(...lowest)
  const setup = 'the same, lowest of the rounds, from 1,000 groups on: largest over smallest'
  return [...rows, { setup, asked: '<= 1.15', reached: spread.toFixed(2), ok: spread <= 1.15, values: { lowest } }]
}

interface Left {
  readonly tenant: string
  readonly slotUs: number
}

/** The departures of a queue whose jobs have ids `<tenant>-<number>`, in order, once so many have left. */
export async function departuresOf(bench: Bench, queue: Queue, processes: number, count: number): Promise<Left[]> {
  const team = await Team.open(bench, queue, { processes, concurrency: 50, jobMs: 1 })
  await queue.resume()
  const inspector = new Inspector({ connection: bench.client })
  let left: Left[] = []
  while (left.length < count) {
    await sleep(500)
    // A job that was too late for its slot went back, and only its last grant became a departure.
    const last = new Map((await inspector.audit(queue.name)).map(({ jobId, slotUs }) => [jobId, slotUs]))
    left = [...last].map(([jobId, slotUs]) => ({ tenant: jobId.slice(0, jobId.indexOf('-')), slotUs }))
  }
  await team.close()
  await inspector.close()
  await removeQueue(queue)
  return left.sort((a, b) => a.slotUs - b.slotUs)
}

export async function pausedQueue(bench: Bench, purpose: string, shape: Shape): Promise<ShapedQueue> {
  const queue = await makeQueue(bench, 'sluice', purpose, shape)
  await queue.pause()
  return queue
}

/** Jobs of one tenant, in a group of its own. */
async function addNamed(queue: Queue, tenant: string, count: number): Promise<void> {
  await addJobs(queue, count, (i): JobsOptions => ({ jobId: `${tenant}-${i}`, ...inGroup(tenant) }))
}

async function shares(bench: Bench): Promise<Row> {
  const departures = bench.quick ? 2000 : 10_000
  const queue = await pausedQueue(bench, 'groups-share', { rate: '2000/s', groups: {}, audit: 20_000 })
  const weights = Array.from({ length: 10 }, (_, i) => i + 1)
  for (const weight of weights) {
    await queue.setGroup(`w${weight}`, { weight }, { by: 'bench', reason: 'weights' })
    await addNamed(queue, `w${weight}`, Math.ceil((departures * 1.5 * weight) / sum(weights)) + 50)
  }
  const left = (await departuresOf(bench, queue, 1, departures)).slice(0, departures)
  const errors = weights.map((weight) => {
    const share = left.filter(({ tenant }) => tenant === `w${weight}`).length / departures
    return Math.abs(share / (weight / sum(weights)) - 1)
  })
  const worst = Math.max(...errors)
  return {
    setup: `share of each of 10 tenants with weights 1 to 10, over ${inWords(departures)} departures: furthest from its weight`,
    asked: '<= 0.5 %',
    reached: `${(worst * 100).toFixed(2)} %`,
    ok: worst <= 0.005,
    values: { errors },
  }
}

async function rates(bench: Bench): Promise<Row> {
  const seconds = bench.quick ? 4 : 12
  const tenants = 100
  const shape = { rate: '1000/s', groups: { rate: '5/s' }, audit: 20_000 }
  const queue = await pausedQueue(bench, 'groups-rate', shape)
  for (let i = 0; i < tenants; i++) await addNamed(queue, `g${i}`, 5 * (seconds + 3))
  const left = await departuresOf(bench, queue, 4, tenants * 5 * seconds)
  const setup = `rate of each of 100 groups of 5/s under backlog, at a queue of 1000/s, 4 workers, over ${seconds} s`
  return ratesRow(setup, left)
}

/** How near each tenant came to its rate of 5/s, and how much too close two jobs of one are. */
export function ratesRow(setup: string, left: readonly Left[]): Row {
  const intervalUs = 200_000
  const found = [...new Set(left.map(({ tenant }) => tenant))].map((tenant) => {
    const slots = left.filter((one) => one.tenant === tenant).map(({ slotUs }) => slotUs)
    const gaps = slots.slice(1).map((slot, i) => slot - (slots[i] as number))
    return { rate: (gaps.length * intervalUs) / sum(gaps), excess: intervalUs - Math.min(...gaps) }
  })
  const reached = found.map(({ rate }) => rate)
  const [low, high] = [Math.min(...reached), Math.max(...reached)]
  const excess = Math.max(0, ...found.map((one) => one.excess))
  return {
    setup,
    asked: '0.998 to 1.001, excess 0',
    reached: `${low.toFixed(4)} to ${high.toFixed(4)} of ${found.length}, closest two jobs ${(excess / 1000).toFixed(3)} ms too close`,
    ok: low >= 0.998 && high <= 1.001 && excess <= 0,
    values: { reached, excess },
  }
}

function figure(part: string, title: string, run: (bench: Bench) => Promise<Row | Row[]>): Figure {
  const all = async (bench: Bench) => [await run(bench)].flat()
  return { name: `groups-${part}`, title: `Groups: ${title}`, headings: ALONE, run: all }
}

export const groups: readonly Figure[] = [
  figure('departures', "Redis's time by number of groups", redisTimes),
  figure('shares', 'weights', shares),
  figure('rates', 'rates', rates),
]
