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
async function departuresOf(bench: Bench, queue: Queue, processes: number, count: number): Promise<Left[]> {
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

async function pausedQueue(bench: Bench, purpose: string, shape: Shape): Promise<ShapedQueue> {
  const queue = await makeQueue(bench, 'sluice', purpose, shape)
  await queue.pause()
  return queue
}

async function shares(bench: Bench): Promise<Row> {
  const departures = bench.quick ? 2000 : 10_000
  const queue = await pausedQueue(bench, 'groups-share', { rate: '2000/s', groups: {}, audit: 20_000 })
  const weights = Array.from({ length: 10 }, (_, i) => i + 1)
  for (const weight of weights) {
    await queue.setGroup(`w${weight}`, { weight }, { by: 'bench', reason: 'weights' })
    const count = Math.ceil((departures * 1.5 * weight) / sum(weights)) + 50
    await addJobs(queue, count, (i) => ({ jobId: `w${weight}-${i}`, ...inGroup(`w${weight}`) }))
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

/** A hundred tenants at 5/s each, whose jobs have ids `<tenant>-<number>`. */
interface RatesCase {
  readonly what: string
  readonly shape: Shape
  readonly opts: (i: number) => object
}

const TENANTS = 100
const GROUP_RATES: RatesCase = {
  what: 'groups of 5/s',
  shape: { groups: { rate: '5/s' } },
  opts: (i) => ({ jobId: `g${i % TENANTS}-${i}`, ...inGroup(`g${i % TENANTS}`) }),
}
const KEY_RATES: RatesCase = {
  what: 'keys of 5/s, three limits a job',
  shape: {
    limits: [
      { name: 'rpm', by: 'model', rate: '5/s' },
      { name: 'pair', by: ['model', 'host'], rate: '1000/s', burst: 100 },
      { name: 'hosts', by: 'host', rate: '2000/s', burst: 100 },
    ],
  },
  opts: (i) => ({ jobId: `m${i % TENANTS}-${i}`, keys: { model: `m${i % TENANTS}`, host: `h${i % 3}` } }),
}

/** How near each tenant comes to its rate, and how much too close two jobs of one are. */
async function rates(bench: Bench, { what, shape, opts }: RatesCase): Promise<Row> {
  const seconds = bench.quick ? 4 : 12
  const queue = await pausedQueue(bench, 'rates', { rate: '1000/s', audit: 20_000, ...shape })
  await addJobs(queue, TENANTS * 5 * (seconds + 3), opts)
  const left = await departuresOf(bench, queue, 4, TENANTS * 5 * seconds)
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
    setup: `rate of each of 100 ${what} under backlog, at a queue of 1000/s, 4 workers, over ${seconds} s`,
    asked: '0.998 to 1.001, excess 0',
    reached: `${low.toFixed(4)} to ${high.toFixed(4)} of ${found.length}, closest two jobs ${(excess / 1000).toFixed(3)} ms too close`,
    ok: low >= 0.998 && high <= 1.001 && excess <= 0,
    values: { reached, excess },
  }
}

/** What workers ask of Redis while all lanes wait for long. */
async function held(bench: Bench): Promise<Row> {
  const lanes = bench.quick ? 1000 : 10_000
  const queue = await pausedQueue(bench, 'keys-held', { limits: [{ name: 'daily', by: 'model', rate: '1/day' }] })
  await addJobs(queue, 2 * lanes, (i) => ({ keys: { model: `m${i % lanes}` } }) as JobsOptions)
  const team = await Team.open(bench, queue, { processes: 4, concurrency: 50, jobMs: 1 })
  await queue.resume()
  while ((await queue.getPrioritizedCount()) > lanes) await sleep(200)
  await sleep(2000)
  const seconds = bench.quick ? 5 : 15
  const { calls } = await costOf(bench.client, async () => {
    await sleep(seconds * 1000)
    return { units: seconds }
  })
  await team.close()
  await removeQueue(queue)
  const setup = `calls of scripts a second, ${inWords(lanes)} lanes that are held, 4 workers`
  return { setup, asked: '< 20', reached: calls.toFixed(1), ok: calls < 20, values: { calls } }
}

function figure(name: string, title: string, run: (bench: Bench) => Promise<Row | Row[]>): Figure {
  return { name, title, headings: ALONE, run: async (bench) => [await run(bench)].flat() }
}

export const groups: readonly Figure[] = [
  figure('groups-departures', "Redis's time by number of groups", redisTimes),
  figure('groups-shares', 'Groups with weights', shares),
  figure('groups-rates', 'Groups with rates', (bench) => rates(bench, GROUP_RATES)),
  figure('keys-rates', 'Keys with rates', (bench) => rates(bench, KEY_RATES)),
  figure('keys-held', 'Keys whose lanes are held', held),
]
