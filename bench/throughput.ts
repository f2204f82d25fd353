import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import type { Shape } from 'sluice'
import { createMetrics } from 'sluice-metrics'
import { runCommand } from '../workers/services/run-command.ts'
import { atLeast, atMost, compared, type Round, rounds } from './harness/compare.ts'
import { type Bench, connectionTo, type Figure, inTurn, type Row } from './harness/figure.ts'
import {
  addInFlight,
  addJobs,
  makeQueue,
  OPEN_METER,
  removeQueue,
  type System,
  spacedLimiter,
} from './harness/queues.ts'
import { type Cost, costOf } from './harness/redis.ts'
import { median } from './harness/statistics.ts'
import { type Drained, drainOnce, paced } from './harness/workers.ts'

const SYSTEMS = ['bullmq', 'sluice'] as const
const OVER_BULLMQ = { ours: 'sluice', over: ['bullmq'] } as const

/** Throughput, and the CPU of the client and of Redis, each as a ratio of two ways. */
function costRows<Way extends string>(
  what: string,
  measured: readonly Round<Way, Cost>[],
  { asked, askedCpu, ...ways }: { ours: Way; over: readonly Way[]; asked: number; askedCpu?: number },
): Row[] {
  const cpu = { of: ({ clientUs }: Cost) => clientUs, asked: askedCpu === undefined ? undefined : atMost(askedCpu) }
  return [
    compared(`${what}: throughput`, measured, { ...ways, asked: atLeast(asked) }),
    compared(`${what}: client CPU per job`, measured, { ...ways, ...cpu }),
    compared(`${what}: Redis CPU per job`, measured, { ...ways, of: ({ redisUs }) => redisUs }),
  ]
}

/** A drain, with the throughput and the client's CPU time that it must reach, both over BullMQ's. */
interface DrainCase extends Drained {
  readonly what: string
  readonly asked: number
  readonly askedCpu?: number
}

const PLAIN = [
  { concurrency: 1, jobs: 4000, asked: 0.95, askedCpu: 1.1 },
  { concurrency: 10, jobs: 10_000, asked: 1 },
  { concurrency: 50, jobs: 15_000, asked: 1.15, askedCpu: 0.8 },
  { concurrency: 200, jobs: 20_000, asked: 1.3 },
] as const
/** What is asked where the jobs are not kept, by concurrency. */
const REMOVED: Readonly<Record<number, number>> = { 1: 0.95, 10: 1, 50: 1.1, 200: 1.25 }

function removed(what: string, how: Pick<Drained, 'opts' | 'removeOnComplete'>): DrainCase[] {
  return PLAIN.map(({ concurrency, jobs }) => ({
    ...{ what, concurrency, jobs, asked: REMOVED[concurrency] as number },
    ...how,
  }))
}

const DRAINS: readonly DrainCase[] = [
  ...PLAIN.map((one) => ({ what: 'jobs kept', ...one })),
  ...removed('removeOnComplete: true', { opts: { removeOnComplete: true } }),
  ...removed("the worker's removeOnComplete: { count: 0 }", { removeOnComplete: { count: 0 } }),
  { what: 'open meter', concurrency: 50, jobs: 15_000, shape: OPEN_METER, asked: 1 },
]
/**
 * V8 compiles the code of a worker during its first thousands of jobs, and a worker runs for days: each process drains
 * this many before it is measured, one at a time and many.
 */
const WARM_UP_JOBS = 20_000

async function drainRows(bench: Bench, { what, asked, askedCpu, ...drained }: DrainCase): Promise<Row[]> {
  const measured = await rounds(bench.quick, SYSTEMS, (system) => drainOnce(bench, system, drained))
  const bounds = { asked, ...(askedCpu !== undefined && { askedCpu }) }
  return costRows(`${what}, ${drained.concurrency} at once`, measured, { ...OVER_BULLMQ, ...bounds })
}

/** The cost of shaping where nothing is held. */
const drain: Figure = {
  name: 'drain',
  title:
    "Drain without a rate over BullMQ's Worker, by processes that have drained 40,000 jobs: median of interleaved pairs, the first discarded, and their spread",
  run: async (bench) => {
    for (const concurrency of [1, 50])
      for (const system of SYSTEMS) await drainOnce(bench, system, { concurrency, jobs: WARM_UP_JOBS })
    return inTurn(DRAINS, (one) => drainRows(bench, one))
  },
}

interface AddCase {
  readonly what: string
  readonly jobs: number
  readonly asked: number
  run(queue: Queue, jobs: number): Promise<void>
}

const ADDS: readonly AddCase[] = [
  { what: 'add, one after another', jobs: 3000, asked: 0.95, run: (queue, jobs) => addInFlight(queue, jobs, 1) },
  { what: 'add, 50 in flight', jobs: 6000, asked: 1, run: (queue, jobs) => addInFlight(queue, jobs, 50) },
  { what: 'addBulk of 100', jobs: 10_000, asked: 1.3, run: (queue, jobs) => addJobs(queue, jobs, {}, 100) },
  { what: 'addBulk of 1000', jobs: 20_000, asked: 1.3, run: (queue, jobs) => addJobs(queue, jobs, {}, 1000) },
]
const QUICK_SHARE = 5
const WARM_UP_ADDS = 100

async function addRow(bench: Bench, { what, asked, ...way }: AddCase): Promise<Row> {
  const jobs = bench.quick ? way.jobs / QUICK_SHARE : way.jobs
  const measured = await rounds(bench.quick, SYSTEMS, async (system) => {
    const queue = await makeQueue(bench, system, 'add')
    await addJobs(queue, WARM_UP_ADDS)
    const cost = await costOf(bench.client, () => way.run(queue, jobs).then(() => ({ units: jobs })))
    await removeQueue(queue)
    return cost
  })
  return compared(what, measured, { ...OVER_BULLMQ, asked: atLeast(asked) })
}

const add: Figure = {
  name: 'add',
  title: "add and addBulk with a capacity set over BullMQ's Queue: median of interleaved pairs, the first discarded",
  run: (bench) => inTurn(ADDS, (way) => addRow(bench, way)),
}

const PACED = { perSecond: 500, processes: 1, workers: 4, concurrency: 20, warmUpMs: 1000 }

/** What a job costs under a backlog. */
async function pacedOnce(bench: Bench, system: System): Promise<Cost> {
  const { perSecond, warmUpMs } = PACED
  const measuredMs = bench.quick ? 1000 : 5000
  const queue = await makeQueue(bench, system, 'paced', { rate: `${perSecond}/s` })
  await addJobs(queue, (2 * perSecond * (warmUpMs + measuredMs)) / 1000)
  const work = { ...PACED, system, limiter: spacedLimiter(perSecond) }
  const { cost } = await paced(bench, queue, work, () => sleep(measuredMs))
  await removeQueue(queue)
  return cost
}

const pacedRedis: Figure = {
  name: 'paced-redis',
  title:
    "Redis's CPU time per job under a backlog, over BullMQ's limiter with { max: 1 }: median of interleaved pairs, the " +
    'first discarded, and their spread',
  run: async (bench) => {
    const measured = await rounds(bench.quick, SYSTEMS, (system) => pacedOnce(bench, system))
    const { perSecond, workers, concurrency } = PACED
    const setup = `${perSecond}/s, ${workers} workers × ${concurrency}`
    return [compared(setup, measured, { ...OVER_BULLMQ, of: ({ redisUs }) => redisUs, asked: atMost(0.9) })]
  },
}

const ASKED_LOADING_MS = 25
const WAYS_TO_LOAD = [
  { what: 'import', flags: ['--input-type=module'], load: (name: string) => `await import('${name}')` },
  { what: 'require()', flags: ['--input-type=commonjs'], load: (name: string) => `require('${name}')` },
]

/** What loading the package costs a program that has BullMQ already. */
const importing: Figure = {
  name: 'import',
  title: 'Loading sluice after bullmq: median of 15 fresh processes (--quick: 5), least and most',
  run: ({ quick }) =>
    inTurn(WAYS_TO_LOAD, async ({ what, flags, load }) => {
      const program = `${load('bullmq')}; const from = performance.now(); ${load('sluice')}; console.log(performance.now() - from)`
      const tookMs: number[] = []
      for (let i = 0; i < (quick ? 5 : 15); i++)
        tookMs.push(Number(await runCommand(process.execPath, [...flags, '-e', program])))
      const [least, mid, most] = [Math.min(...tookMs), median(tookMs), Math.max(...tookMs)]
      const reached = `${mid.toFixed(1)} ms (${least.toFixed(1)} to ${most.toFixed(1)})`
      const ok = mid <= ASKED_LOADING_MS
      return { setup: what, asked: `<= ${ASKED_LOADING_MS} ms`, reached, ok, values: { tookMs } }
    }),
}

export const throughput: readonly Figure[] = [drain, add, pacedRedis, importing]

const UNWATCHED = { concurrency: 50, jobs: 15_000 }
const WATCHED: readonly { readonly setup: string; readonly plain: Shape; readonly watched: Shape }[] = [
  { setup: 'through the meter, each departure audited', plain: OPEN_METER, watched: { ...OPEN_METER, audit: true } },
  { setup: 'no rate', plain: {}, watched: {} },
]

/** One scrape per second, a high frequency in practice. */
async function scraped<T>(bench: Bench, run: () => Promise<T>): Promise<T> {
  const metrics = createMetrics({ connection: connectionTo(bench.redis) })
  const timer = setInterval(() => void metrics.text(), 1000)
  try {
    return await run()
  } finally {
    clearInterval(timer)
    await metrics.close()
  }
}

export const watched: Figure = {
  name: 'watched',
  title:
    `Drain at concurrency ${UNWATCHED.concurrency} with everything on (reports and series, the audit stream, a scrape of the metrics ` +
    'each second) over the same without: median of interleaved rounds, the first discarded',
  headings: ['', 'asked', 'reached', 'ok', 'with nothing on'],
  run: (bench) =>
    inTurn(WATCHED, async ({ setup, ...shapes }) => {
      const measured = await rounds(bench.quick, ['plain', 'watched'] as const, (way) => {
        const isWatched = way === 'watched'
        const run = () => drainOnce(bench, 'sluice', { ...UNWATCHED, shape: shapes[way], report: isWatched })
        return isWatched ? scraped(bench, run) : run()
      })
      return costRows(setup, measured, { ours: 'watched', over: ['plain'], asked: 0.95 })
    }),
}
