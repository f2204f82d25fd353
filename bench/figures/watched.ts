import type { Shape } from 'sluice'
import { createMetrics } from 'sluice/metrics'
import { type Bench, connectionTo, type Figure, type Row } from '../figure.ts'
import { type Drain, drainOnce } from '../measure/drain.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'
import { median } from '../measure/statistics.ts'

const JOBS = 15_000
const QUICK_SHARE = 5
const SETUP = { concurrency: 50 }
const ASKED = 0.95
const SCRAPE_MS = 1000

/** A rate that holds nothing, so that every job goes through the meter without delay. */
const OPEN = { rate: '1000000/s', burst: 1_000_000 } as const
const CASES: readonly { readonly setup: string; readonly plain: Shape; readonly watched: Shape }[] = [
  { setup: 'through the meter, each departure audited', plain: OPEN, watched: { ...OPEN, audit: true } },
  { setup: 'no rate', plain: { capacity: 1_000_000 }, watched: { capacity: 1_000_000 } },
]

type Way = 'plain' | 'watched'

/** One scrape per second, a high frequency in practice. */
async function scraped<T>(bench: Bench, run: () => Promise<T>): Promise<T> {
  const metrics = createMetrics({ connection: connectionTo(bench.redis) })
  const timer = setInterval(() => void metrics.text(), SCRAPE_MS)
  try {
    return await run()
  } finally {
    clearInterval(timer)
    await metrics.close()
  }
}

function rowsOf(setup: string, drains: readonly Round<Way, Drain>[]): Row[] {
  const ratio = (of: (drain: Drain) => number) => ratioOf(drains.map(({ plain, watched }) => of(watched) / of(plain)))
  const of = (way: Way, value: (drain: Drain) => number) => median(drains.map((round) => value(round[way]))).toFixed(0)
  const row = (what: string, unit: string, value: (drain: Drain) => number, asked?: number): Row => ({
    setup: `${setup}: ${what}`,
    ...(asked === undefined ? {} : atLeast(ratio(value), asked)),
    reached: `${describeRatio(ratio(value), 3)}, ${of('watched', value)} ${unit}`,
    beside: `${of('plain', value)} ${unit}`,
    values: { ratio: ratio(value), rounds: drains.map(({ plain, watched }) => [value(plain), value(watched)]) },
  })
  return [
    row('throughput', 'jobs/s', (drain) => drain.perSecond, ASKED),
    row('client CPU per job', 'µs', (drain) => drain.clientUs),
    row('Redis CPU per job', 'µs', (drain) => drain.redisUs),
  ]
}

export const watched: Figure = {
  name: 'watched',
  title:
    `Drain at concurrency ${SETUP.concurrency} with everything on (reports and series, the audit stream, a scrape of the metrics ` +
    'each second) over the same without: median of interleaved rounds, the first discarded',
  headings: ['', 'asked', 'reached', 'ok', 'with nothing on'],
  run: async (bench) => {
    const jobs = bench.quick ? JOBS / QUICK_SHARE : JOBS
    const rows: Row[] = []
    for (const { setup, ...shapes } of CASES) {
      const drain = (way: Way) =>
        drainOnce(bench, 'sluice', { ...SETUP, jobs, shape: shapes[way], report: way === 'watched' })
      const run = (way: Way) => (way === 'watched' ? scraped(bench, () => drain(way)) : drain(way))
      rows.push(...rowsOf(setup, await rounds(bench.quick, ['plain', 'watched'], run)))
    }
    return rows
  },
}
