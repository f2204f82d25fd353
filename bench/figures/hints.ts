import type { Bench, Figure, Row } from '../figure.ts'
import { type Obeyed, obey, type Scenario } from '../hints/obedient.ts'
import { median, quantile } from '../measure/statistics.ts'

const MOST_REFUSALS = 1.3
const MOST_MEDIAN_ERROR = 0.1
/** BullMQ's events have times in whole ms, rounded down. */
const CUT_MS = 0.5

const jobs = { concurrency: 50, jobMs: 20 }
const rates = [5, 50, 500].flatMap((perSecond): Scenario[] =>
  [1, 4].map((processes) => ({
    ...jobs,
    processes,
    name: `${perSecond}/s, ${processes} worker${processes > 1 ? 's' : ''}`,
    shape: { rate: `${perSecond}/s`, capacity: Math.max(10, Math.ceil(perSecond / 4)) },
    intervalMs: 1000 / perSecond,
  })),
)
const limits = (intervalMs: number, ...all: object[]) => ({
  ...jobs,
  processes: 4,
  intervalMs,
  shape: { capacity: 25, limits: all as never },
})

const SCENARIOS: readonly Scenario[] = [
  ...rates,
  { ...limits(20, { name: 'gcra', rate: '50/s', burst: 1 }), name: 'a limit of 50/s, 4 workers' },
  {
    ...limits(200, { name: 'window', algorithm: 'fixed-window', rate: '5/s' }, { name: 'minute', rate: '1000/min' }),
    name: 'a window of 5/s and 1000/min, 4 workers',
  },
  {
    ...limits(20, { name: 'log', algorithm: 'sliding-window-log', rate: '100/2s' }),
    name: 'a log of 100/2s, 4 workers',
  },
  {
    ...limits(20, { name: 'places', algorithm: 'concurrency', concurrency: 5 }),
    jobMs: 100,
    name: '5 places of a limit, jobs of 100 ms, 4 workers',
  },
  ...[1, 4].map((processes) => ({
    name: `no rate, ${processes * 2} at once, jobs of 40 ms, ${processes} workers`,
    shape: { capacity: 25 },
    ...{ processes, concurrency: 2, jobMs: 40, intervalMs: 20 / processes },
  })),
  {
    name: 'no rate, concurrency 5 over all, jobs of 100 ms, 4 workers',
    shape: { capacity: 25, concurrency: 5 },
    ...{ processes: 4, concurrency: 5, jobMs: 100, intervalMs: 20 },
  },
  {
    name: '1000/s, 1 at once, jobs of 200 ms, 1 worker',
    shape: { rate: '1000/s', capacity: 10 },
    ...{ processes: 1, concurrency: 1, jobMs: 200, intervalMs: 200 },
  },
  {
    ...jobs,
    name: '50/s with pauses, 4 workers',
    shape: { rate: '50/s', capacity: 25 },
    ...{ processes: 4, intervalMs: 20, pauses: { forMs: 700, everyMs: 2000 } },
  },
]

/** The results of a period. */
interface Stretch {
  readonly accepted: number
  readonly refusals: number
  /** |hint - true wait|, ms, and the same as a share of the true wait. */
  readonly errorsMs: readonly number[]
  readonly shares: readonly number[]
}

function stretch({ takenMs, told, acceptedMs }: Obeyed, fromMs: number, toMs: number, intervalMs: number): Stretch {
  const within = (atMs: number) => atMs >= fromMs && atMs < toMs
  const refused = told.filter(({ atMs }) => within(atMs))
  const errors = refused.flatMap(({ atMs, retryAfterMs }) => {
    const free = takenMs.find((one) => one >= atMs - 1)
    return free === undefined ? [] : [{ trueMs: Math.max(0, free + CUT_MS - atMs), retryAfterMs }]
  })
  const errorsMs = errors.map(({ trueMs, retryAfterMs }) => Math.abs(retryAfterMs - trueMs))
  return {
    accepted: acceptedMs.filter(within).length,
    refusals: refused.length,
    errorsMs,
    shares: errorsMs.map((ms, i) => ms / Math.max(intervalMs, errors[i]?.trueMs ?? 0)),
  }
}

const perJob = ({ refusals, accepted }: Stretch): number => refusals / Math.max(1, accepted)

function words(one: Stretch): string[] {
  if (one.refusals === 0) return [`0 (0/${one.accepted})`, '', '']
  const ms = (q: number) => quantile(one.errorsMs, q).toFixed(1)
  const share = (median(one.shares) * 100).toFixed(1)
  return [`${perJob(one).toFixed(2)} (${one.refusals}/${one.accepted})`, `${ms(0.5)} ms, ${share} %`, `${ms(0.95)} ms`]
}

async function row(bench: Bench, scenario: Scenario): Promise<Row> {
  const seconds = bench.quick ? 3 : 10
  const obeyed = await obey(bench, scenario, seconds)
  const firstMs = obeyed.takenMs[0] as number
  const { intervalMs } = scenario
  const first = stretch(obeyed, firstMs, firstMs + 1000, intervalMs)
  const rest = stretch(obeyed, firstMs + 1000, Number.POSITIVE_INFINITY, intervalMs)
  const allowedMs = intervalMs + median(obeyed.roundTripMs)
  // Without refusals there are no hints.
  const isTrue = median(rest.shares) <= MOST_MEDIAN_ERROR && quantile(rest.errorsMs, 0.95) <= allowedMs
  const ok = Math.max(perJob(first), perJob(rest)) <= MOST_REFUSALS && (rest.refusals === 0 || isTrue)
  return {
    setup: scenario.name,
    reached: '',
    ok,
    cells: [...words(first), ...words(rest), `${allowedMs.toFixed(1)} ms`, ok ? 'yes' : 'NO'],
    values: { first, rest, allowedMs },
  }
}

export const hints: Figure = {
  name: 'hints',
  title:
    'A full queue, and a producer that retries at the time in the hint: refusals per accepted job, and the error of the ' +
    'hint against the time at which a place was free (median, also as a share of the wait, and p95)',
  headings: ['', 'first second', 'error', 'p95', 'then', 'error', 'p95', 'allowed', 'ok'],
  run: async (bench) => {
    const rows: Row[] = []
    for (const scenario of SCENARIOS) rows.push(await row(bench, scenario))
    return rows
  },
}
