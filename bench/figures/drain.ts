import type { Figure, Row } from '../figure.ts'
import { type Drain, type Drained, drainOnce } from '../measure/drain.ts'
import { interleaved, type Pair } from '../measure/interleaved.ts'
import { atLeast, atMost, describeRatio, ratioOf } from '../measure/ratio.ts'
import { median } from '../measure/statistics.ts'
import { OPEN_METER } from '../queues.ts'

/** A drain, with the throughput and the client's CPU time that it must reach, both over BullMQ's. */
interface Case extends Drained {
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

function removed(what: string, how: Pick<Drained, 'opts' | 'removeOnComplete'>): Case[] {
  return PLAIN.map(({ concurrency, jobs }) => {
    return { what, concurrency, jobs, ...how, asked: REMOVED[concurrency] as number }
  })
}

const CASES: readonly Case[] = [
  ...PLAIN.map((one) => ({ what: 'jobs kept', ...one })),
  ...removed('removeOnComplete: true', { opts: { removeOnComplete: true } }),
  ...removed("the worker's removeOnComplete: { count: 0 }", { removeOnComplete: { count: 0 } }),
  { what: 'open meter', concurrency: 50, jobs: 15_000, shape: OPEN_METER, asked: 1 },
]
const QUICK_SHARE = 5
/**
 * V8 compiles the code of a worker during its first thousands of jobs, and a worker runs for days: each process drains
 * this many before it is measured, one at a time and many.
 */
const WARM_UP_JOBS = 20_000
const WARM_UP_CONCURRENCY = [1, 50]

function rowsOf({ what, concurrency, asked, askedCpu }: Case, pairs: readonly Pair<Drain>[]): Row[] {
  const row = (name: string, unit: string, of: (drain: Drain) => number) => {
    const ratio = ratioOf(pairs.map(({ sluice, bullmq }) => of(sluice) / of(bullmq)))
    const typical = (values: readonly number[]) => `${median(values).toFixed(0)} ${unit}`
    const cells: Row = {
      setup: `${what}, ${concurrency} at once: ${name}`,
      reached: `${describeRatio(ratio, 3)}, ${typical(pairs.map(({ sluice }) => of(sluice)))}`,
      beside: typical(pairs.map(({ bullmq }) => of(bullmq))),
      values: { ratio, pairs: pairs.map(({ sluice, bullmq }) => ({ sluice: of(sluice), bullmq: of(bullmq) })) },
    }
    return { ratio, cells }
  }
  const throughput = row('throughput', 'jobs/s', ({ perSecond }) => perSecond)
  const client = row('client CPU per job', 'µs', ({ clientUs }) => clientUs)
  const redis = row('Redis CPU per job', 'µs', ({ redisUs }) => redisUs)
  return [
    { ...throughput.cells, ...atLeast(throughput.ratio, asked) },
    { ...client.cells, ...(askedCpu === undefined ? {} : atMost(client.ratio, askedCpu)) },
    redis.cells,
  ]
}

/** The cost of shaping where nothing is held. */
export const drain: Figure = {
  name: 'drain',
  title:
    "Drain without a rate over BullMQ's Worker, by processes that have drained 40,000 jobs: median of interleaved pairs, the first discarded, and their spread",
  run: async (bench) => {
    const rows: Row[] = []
    for (const concurrency of WARM_UP_CONCURRENCY) {
      for (const system of ['bullmq', 'sluice'] as const)
        await drainOnce(bench, system, { concurrency, jobs: WARM_UP_JOBS })
    }
    for (const one of CASES) {
      const { what, asked, askedCpu, ...full } = one
      const drained = { ...full, jobs: bench.quick ? full.jobs / QUICK_SHARE : full.jobs }
      rows.push(...rowsOf(one, await interleaved(bench.quick, (system) => drainOnce(bench, system, drained))))
    }
    return rows
  },
}
