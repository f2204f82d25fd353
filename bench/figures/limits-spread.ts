import type { Redis } from 'ioredis'
import { createLimiter } from 'sluice/limits'
import { type Bench, type Figure, type Row, withClient } from '../figure.ts'
import { ruleOf, takeFrom } from '../limits/contenders.ts'
import { type Cost, describeCost, LOADS, measureLoad, medianCost } from '../limits/load.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { describeRatio, ratioOf } from '../measure/ratio.ts'

const CONCURRENCIES = [1, 100]
const RUN_MS = 1000
const QUICK_RUN_MS = 300
const WAYS = ['together', 'spread'] as const
type Way = (typeof WAYS)[number]

function row(concurrency: number, measured: readonly Round<Way, Cost>[]): Row {
  const costs = (way: Way) => measured.map((round) => round[way])
  const ratio = ratioOf(measured.map(({ spread, together }) => spread.perSecond / together.perSecond))
  return {
    setup: `gcra, ${concurrency} at once`,
    reached: `${describeRatio(ratio)}, ${describeCost(costs('spread'))}`,
    beside: describeCost(costs('together')),
    values: { ratio, spread: medianCost(costs('spread')), together: medianCost(costs('together')), rounds: measured },
  }
}

async function measure(bench: Bench, redis: Redis, concurrency: number): Promise<Row> {
  const rule = ruleOf('gcra', LOADS.allowed.quota)
  const takes = {
    together: takeFrom(createLimiter(redis, { ...rule, name: 'together' })),
    spread: takeFrom(createLimiter(redis, { ...rule, name: 'spread', spread: 'key' })),
  }
  const ms = bench.quick ? QUICK_RUN_MS : RUN_MS
  const measured = await rounds(bench.quick, WAYS, (way) => measureLoad(redis, takes[way], 'allowed', concurrency, ms))
  return row(concurrency, measured)
}

/** The cost of `spread: 'key'` without a cluster, where it has no benefit. */
export const limitsSpread: Figure = {
  name: 'limits-spread',
  title: 'Decisions of a limit that is spread by key over those of one that is not, on one server; 100 keys in turn',
  headings: ['', 'asked', 'reached', 'ok', 'not spread'],
  run: (bench) =>
    withClient(bench.redis, async (redis) => {
      const rows: Row[] = []
      for (const concurrency of CONCURRENCIES) rows.push(await measure(bench, redis, concurrency))
      return rows
    }),
}
