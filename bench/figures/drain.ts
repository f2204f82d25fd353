import type { Figure, Row } from '../figure.ts'
import { type Drain, drainOnce } from '../measure/drain.ts'
import { interleaved, type Pair } from '../measure/interleaved.ts'
import { median } from '../measure/statistics.ts'

/** The required throughput, by concurrency, and the number of jobs per measurement. */
const CASES = [
  { concurrency: 1, jobs: 4000, asked: 0.95 },
  { concurrency: 10, jobs: 10_000, asked: 0.95 },
  { concurrency: 50, jobs: 15_000, asked: 1, askedCpu: 0.85 },
  { concurrency: 200, jobs: 20_000, asked: 1.05 },
] as const
const QUICK_SHARE = 5

function rowsOf({ concurrency, asked, ...rest }: (typeof CASES)[number], pairs: readonly Pair<Drain>[]): Row[] {
  const ratio = (of: (drain: Drain) => number) => median(pairs.map(({ sluice, bullmq }) => of(sluice) / of(bullmq)))
  const both = (of: (drain: Drain) => number, unit: string) => {
    const [ours, theirs] = [median(pairs.map((p) => of(p.sluice))), median(pairs.map((p) => of(p.bullmq)))]
    return { ours: `${ours.toFixed(0)} ${unit}`, theirs: `${theirs.toFixed(0)} ${unit}` }
  }
  const rows: Row[] = []
  const add = (what: string, of: (drain: Drain) => number, unit: string, bound?: [string, (r: number) => boolean]) => {
    const reached = ratio(of)
    const { ours, theirs } = both(of, unit)
    rows.push({
      setup: `concurrency ${concurrency}: ${what}`,
      ...(bound ? { asked: bound[0], ok: bound[1](reached) } : {}),
      reached: `${reached.toFixed(3)} (${ours})`,
      beside: theirs,
      values: { ratio: reached, pairs: pairs.map((p) => ({ sluice: of(p.sluice), bullmq: of(p.bullmq) })) },
    })
  }
  add('throughput', (d) => d.perSecond, 'jobs/s', [`>= ${asked}`, (r) => r >= asked])
  const askedCpu = 'askedCpu' in rest ? rest.askedCpu : undefined
  add(
    'client CPU per job',
    (d) => d.clientUs,
    'µs',
    askedCpu === undefined ? undefined : [`<= ${askedCpu}`, (r) => r <= askedCpu],
  )
  add('Redis CPU per job', (d) => d.redisUs, 'µs')
  return rows
}

/** The cost of shaping where nothing is paced. */
export const drain: Figure = {
  name: 'drain',
  title: "Drain without a rate over BullMQ's Worker: median of interleaved pairs, the first discarded",
  run: async (bench) => {
    const rows: Row[] = []
    for (const one of CASES) {
      const jobs = bench.quick ? one.jobs / QUICK_SHARE : one.jobs
      const pairs = await interleaved(bench.quick, (system) => drainOnce(bench, system, one.concurrency, jobs))
      rows.push(...rowsOf(one, pairs))
    }
    return rows
  },
}
