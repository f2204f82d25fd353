import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { QueueLimit } from '../../src/limits/queue-limits.ts'
import { caseCount, someOf } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { type Obedience, obey, ROUND_TRIP_US, type Scenario } from './obedience.ts'
import { VirtualScripts } from './virtual-redis.ts'

const redis = useRedis(import.meta.url)
const scripts = new VirtualScripts(redis.client())

/** As in `npm run bench hints`. */
const MOST_REFUSALS = 1.3
const MOST_MEDIAN_ERROR = 0.1
/** Timers are late by up to 4 ms from time to time, and hints are whole ms. */
const LATE_MS = 5
const ROUNDED_MS = 1
/** Where job durations vary, the next end of a job cannot be predicted. */
const MOST_REFUSALS_SPREAD = 1.8

const RANDOM = caseCount(10, 'MODEL_OBEDIENT')
const TOGETHER = 8

const common = { workers: 4, concurrency: 50, jobMs: 20, seconds: 3 }
const paced = [5, 50, 500].flatMap((perSecond): Scenario[] =>
  [1, 4].map((workers) => ({
    ...common,
    workers,
    name: `${perSecond}/s, ${workers} workers`,
    shape: { rate: `${perSecond}/s`, capacity: Math.max(10, Math.ceil(perSecond / 4)) },
    seconds: perSecond === 500 ? 2 : 3,
  })),
)
const under = (limit: QueueLimit) => ({
  ...common,
  name: `${limit.name} limit`,
  shape: { capacity: 25, limits: [limit] },
})
const busy = { workers: 4, concurrency: 5, jobMs: 100, seconds: 3 }
const SCENARIOS: readonly Scenario[] = [
  ...paced,
  under({ name: 'gcra', rate: '50/s', burst: 1 }),
  { ...under({ name: 'lone', rate: '50/s', burst: 1 }), workers: 1 },
  under({ name: 'shared', rate: '50/s', burst: 1, shared: true, prefix: redis.prefix }),
  under({ name: 'window', algorithm: 'fixed-window', rate: '5/s' }),
  under({ name: 'log', algorithm: 'sliding-window-log', rate: '100/2s' }),
  { ...under({ name: 'places', algorithm: 'concurrency', concurrency: 5 }), jobMs: 100 },
  ...[1, 4].map((workers) => ({
    ...{ name: `2 at once, ${workers} workers`, workers, concurrency: 2, jobMs: 40, seconds: 3 },
    shape: { capacity: 25 },
  })),
  { ...busy, name: '5 at once over all', shape: { capacity: 25, concurrency: 5 } },
  { ...busy, name: '5 at once over all, 1000/s', shape: { rate: '1000/s', capacity: 25, concurrency: 5 } },
  { ...busy, name: '5 at once over all, 45/s', shape: { rate: '45/s', capacity: 25, concurrency: 5 } },
  { ...busy, name: '5 at once over all, 30/s', shape: { rate: '30/s', capacity: 25, concurrency: 5 } },
  {
    ...busy,
    name: '1000/s, 1 at once',
    shape: { rate: '1000/s', capacity: 10 },
    workers: 1,
    concurrency: 1,
    jobMs: 200,
  },
  { ...common, name: '50/s with pauses', shape: { rate: '50/s', capacity: 25 }, pauses: { forMs: 700, everyMs: 2000 } },
]

/** By a seed: what paces a queue, and how many of its jobs run at once. */
function randomScenario(seed: number): Scenario {
  const { uniform } = randomOf(seed * 7919 + 17)
  const pick = <T>(from: readonly T[]) => from[Math.floor(from.length * uniform())] as T
  const [rate, limit] = [pick([undefined, 8, 30, 80, 200]), pick([undefined, undefined, 10, 40])]
  const concurrency = pick([undefined, undefined, 1, 3, 8])
  const shape = {
    capacity: pick([5, 20, 60]),
    ...(rate === undefined ? {} : { rate: `${rate}/s`, burst: pick([1, 1, 4]) }),
    ...(limit === undefined ? {} : { limits: [{ name: 'l', rate: `${limit}/s`, burst: pick([1, 3]) }] }),
    ...(concurrency === undefined ? {} : { concurrency }),
  }
  const [workers, each, jobMs] = [pick([1, 2, 4]), pick([1, 2, 5, 20]), pick([10, 30, 100, 300])]
  // Faster jobs are refused too rarely to be meaningful.
  const atOnce = Math.min(concurrency ?? Number.POSITIVE_INFINITY, workers * each)
  const least = (atOnce * 1000) / 200
  return { name: JSON.stringify(shape), shape, workers, concurrency: each, jobMs: Math.max(jobMs, least), seconds: 3 }
}

function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((one, other) => one - other)
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0
}

/** @returns a description of the failure, if any */
function wrong({ shape, jobMs, spread = 0 }: Scenario, { first, rest, intervalMs }: Obedience): string | undefined {
  const [atFirst, then] = [first, rest].map(({ refusals, accepted }) => refusals / Math.max(1, accepted)) as [
    number,
    number,
  ]
  const share = quantile(rest.shares, 0.5)
  const absolute = rest.errorsMs.map(Math.abs)
  const [medianMs, p95Ms] = [quantile(absolute, 0.5), quantile(absolute, 0.95)]
  const refused = `refused ${atFirst.toFixed(2)}, then ${then.toFixed(2)} times for each job`
  const error = `error ${(share * 100).toFixed(1)} %, ${medianMs.toFixed(1)} ms, p95 ${p95Ms.toFixed(1)} ms`
  const report = `${refused}; ${error}; a job every ${intervalMs.toFixed(1)} ms`
  if (spread > 0) return then > MOST_REFUSALS_SPREAD ? report : undefined
  // For the length of a round trip, it is unknown that the place left by the end of a paced job is about to be taken.
  const unseenMs = shape.rate !== undefined && shape.concurrency !== undefined ? jobMs : 0
  const isFar = share > MOST_MEDIAN_ERROR && medianMs > ROUNDED_MS
  const isOften = Math.max(atFirst, then) > MOST_REFUSALS
  return isOften || isFar || p95Ms > intervalMs + ROUND_TRIP_US / 1000 + LATE_MS + unseenMs ? report : undefined
}

async function run(scenarios: readonly Scenario[]): Promise<string[]> {
  const wrongs: string[] = []
  const left = [...scenarios.entries()]
  const runOn = async () => {
    for (let next = left.shift(); next; next = left.shift()) {
      const [number, scenario] = next
      const base = `${redis.prefix}:o${number}:`
      const { name, workers, concurrency, jobMs } = scenario
      const found = wrong(scenario, await obey(base, scripts, scenario, number + 1))
      if (found) wrongs.push(`${number} ${name}, ${workers} x ${concurrency}, jobs of ${jobMs} ms: ${found}`)
      const keys = await scripts.client.keys(`${base}*`)
      if (keys.length > 0) await scripts.client.unlink(...keys)
    }
  }
  await Promise.all(Array.from({ length: TOGETHER }, runOn))
  return wrongs
}

test('a producer that comes back when it is asked to is refused once for each job, and not much too late', {
  timeout: 600_000,
}, async () => {
  expect(await run(someOf(SCENARIOS))).toEqual([])
})

test('however long single jobs take, it is not refused often', { timeout: 600_000 }, async () => {
  const places = SCENARIOS.filter(({ name }) => name.includes('at once'))
  expect(await run(someOf(places).map((scenario) => ({ ...scenario, spread: 0.3 })))).toEqual([])
})

test('jobs that are slow at first are soon forgotten', { timeout: 600_000 }, async () => {
  const places = SCENARIOS.filter(({ name }) => /^2 at once|^5 at once over all$/.test(name))
  expect(await run(places.map((scenario) => ({ ...scenario, slowJobs: 4, seconds: 5 })))).toEqual([])
})

test(`${RANDOM} random shapes`, { timeout: 600_000 + RANDOM * 20_000 }, async () => {
  expect(await run(Array.from({ length: RANDOM }, (_, i) => randomScenario(i)))).toEqual([])
})
