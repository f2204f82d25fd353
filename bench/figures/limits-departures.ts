import type { QueueLimit } from 'sluice'
import type { Figure, Row } from '../figure.ts'
import { type Drain, drainOnce } from '../measure/drain.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'
import { median } from '../measure/statistics.ts'

const ASKED = 0.9
const CASES = [
  { concurrency: 50, jobs: 15_000 },
  { concurrency: 200, jobs: 20_000 },
] as const
const QUICK_SHARE = 5

/** So many that no limit holds a job. */
const MANY = 10_000_000
const LIMITS: readonly QueueLimit[] = [
  { name: 'per-second', rate: { limit: MANY, period: 1000 }, burst: MANY },
  { name: 'per-hour', algorithm: 'sliding-window-counter', rate: { limit: MANY, period: 3_600_000 } },
  { name: 'per-day', algorithm: 'fixed-window', rate: { limit: MANY, period: 86_400_000 } },
]
const SHAPES = { plain: {}, limited: { limits: LIMITS } } as const
type Way = keyof typeof SHAPES

function row(concurrency: number, measured: readonly Round<Way, Drain>[]): Row {
  const ratio = ratioOf(measured.map(({ plain, limited }) => limited.perSecond / plain.perSecond))
  const typical = (way: Way, of: (drain: Drain) => number) => median(measured.map((round) => of(round[way]))).toFixed(0)
  const describe = (way: Way) =>
    `${typical(way, (d) => d.perSecond)} jobs/s, client ${typical(way, (d) => d.clientUs)} µs, Redis ${typical(way, (d) => d.redisUs)} µs`
  return {
    setup: `three limits over none, concurrency ${concurrency}`,
    ...atLeast(ratio, ASKED),
    reached: `${describeRatio(ratio, 3)}, ${describe('limited')}`,
    beside: `none: ${describe('plain')}`,
    values: { ratio, rounds: measured },
  }
}

export const limitsDepartures: Figure = {
  name: 'limits-departures',
  title:
    'Drain of a queue with gcra per second, a sliding counter per hour and a fixed window per day beside one without',
  headings: ['', 'asked', 'reached', 'ok', ''],
  run: async (bench) => {
    const rows: Row[] = []
    for (const { concurrency, jobs } of CASES) {
      const measured = await rounds(bench.quick, ['plain', 'limited'] as const, (way) =>
        drainOnce(bench, 'sluice', { concurrency, jobs: bench.quick ? jobs / QUICK_SHARE : jobs, shape: SHAPES[way] }),
      )
      rows.push(row(concurrency, measured))
    }
    return rows
  },
}
