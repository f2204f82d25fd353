import type { Redis } from 'ioredis'
import { RateLimiterUnion } from 'rate-limiter-flexible'
import { combine, createLimiter, type LimiterOptions } from 'sluice/limits'
import { type Bench, type Figure, type Row, withClient } from '../figure.ts'
import { flexible, passes, type Take, takeFrom } from '../limits/contenders.ts'
import { type Cost, describeCost, measureLoad } from '../limits/load.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atMost, describeRatio, ratioOf } from '../measure/ratio.ts'
import { median, sum } from '../measure/statistics.ts'

const ASKED = 1.5
const CONCURRENCIES = [1, 100]
const RUN_MS = 1000
const QUICK_RUN_MS = 300

const MANY = 1_000_000
const LIMITS: readonly LimiterOptions[] = [
  { name: 'per-second', algorithm: 'gcra', rate: { limit: MANY, period: 1000 }, burst: MANY },
  { name: 'per-hour', algorithm: 'sliding-window-counter', rate: { limit: MANY * 60, period: 3_600_000 } },
  { name: 'per-day', algorithm: 'fixed-window', rate: { limit: MANY * 60, period: 86_400_000 } },
]
const PERIODS_S = [1, 3600, 86_400]
const ALONE = LIMITS.map(({ name }) => name)
const TOGETHER = 'together'
const UNION = 'rate-limiter-flexible RateLimiterUnion'
const WAYS = [...ALONE, TOGETHER, UNION]

function opened(redis: Redis): ReadonlyMap<string, Take> {
  const limiters = LIMITS.map((options) => createLimiter(redis, { ...options, timeoutMs: 5000 }))
  const all = combine(limiters)
  const union = new RateLimiterUnion(...PERIODS_S.map((seconds) => flexible(redis, `every-${seconds}`, MANY, seconds)))
  return new Map<string, Take>([
    ...limiters.map((limiter) => [limiter.name, takeFrom(limiter)] as const),
    [TOGETHER, async (key) => (await all.take(Object.fromEntries(ALONE.map((name) => [name, key])))).allowed],
    [UNION, (key) => passes(union.consume(key))],
  ])
}

function row(concurrency: number, measured: readonly Round<string, Cost>[]): Row {
  const costs = (way: string) => measured.map((round) => round[way] as Cost)
  const alone = measured.map((round) => sum(ALONE.map((name) => (round[name] as Cost).scriptUs)) / ALONE.length)
  const ratio = ratioOf(costs(TOGETHER).map(({ scriptUs }, i) => scriptUs / (alone[i] as number)))
  return {
    setup: `three limits combined over one alone, ${concurrency} at once`,
    ...atMost(ratio, ASKED),
    reached: `${describeRatio(ratio)}, ${describeCost(costs(TOGETHER))}; one ${median(alone).toFixed(1)} µs`,
    beside: `${UNION} ${describeCost(costs(UNION))}`,
    values: { ratio, rounds: measured },
  }
}

async function measure(bench: Bench, redis: Redis, concurrency: number): Promise<Row> {
  const takes = opened(redis)
  const ms = bench.quick ? QUICK_RUN_MS : RUN_MS
  const measured = await rounds(bench.quick, WAYS, (way) =>
    measureLoad(redis, takes.get(way) as Take, 'allowed', concurrency, ms),
  )
  return row(concurrency, measured)
}

export const limitsCombined: Figure = {
  name: 'limits-combined',
  title:
    'Time inside scripts of a decision over gcra per second, a sliding counter per hour and a fixed window per day',
  headings: ['', 'asked', 'reached', 'ok', 'other libraries'],
  run: (bench) =>
    withClient(bench.redis, async (redis) => {
      const rows: Row[] = []
      for (const concurrency of CONCURRENCIES) rows.push(await measure(bench, redis, concurrency))
      return rows
    }),
}
