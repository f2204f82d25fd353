import type { Redis } from 'ioredis'
import { type Bench, type Figure, type Row, withClient } from '../figure.ts'
import { ALGORITHMS, COMPARABLE, CONTENDERS, type Contender, type Ours, openContender } from '../limits/contenders.ts'
import { type Cost, describeCost, LOADS, type Load, measureLoad, medianCost } from '../limits/load.ts'
import { type Round, rounds } from '../measure/interleaved.ts'
import { atLeast, describeRatio, ratioOf } from '../measure/ratio.ts'

/** Required ratio to the decisions per second of the fastest comparable library, by concurrency. */
const CASES: readonly { concurrency: number; asked?: number }[] = [{ concurrency: 1 }, { concurrency: 100, asked: 1.2 }]
const RUN_MS = 1000
const QUICK_RUN_MS = 150

type Measured = readonly Round<Contender, Cost>[]

function row(algorithm: Ours, load: Load, { concurrency, asked }: (typeof CASES)[number], measured: Measured): Row {
  const { peers, onlyNearest } = COMPARABLE[algorithm]
  const ratio = ratioOf(
    measured.map((round) => round[algorithm].perSecond / Math.max(...peers.map((peer) => round[peer].perSecond))),
  )
  const bound = onlyNearest ? undefined : asked
  const costs = (contender: Contender) => measured.map((round) => round[contender])
  const values = (contender: Contender) => ({ ...medianCost(costs(contender)), rounds: costs(contender) })
  const beside = peers.map((peer) => `${peer} ${describeCost(costs(peer))}`).join('; ')
  return {
    setup: `${algorithm}, ${concurrency} at once, ${load}`,
    ...(bound === undefined ? {} : atLeast(ratio, bound)),
    reached: `${describeRatio(ratio)}, ${describeCost(costs(algorithm))}`,
    beside: onlyNearest ? `nearest: ${beside}` : beside,
    values: { ratio, ...values(algorithm), peers: peers.map((peer) => ({ peer, ...values(peer) })) },
  }
}

async function measure(bench: Bench, redis: Redis, load: Load, concurrency: number): Promise<Measured> {
  const takes = new Map(CONTENDERS.map((one) => [one, openContender(one, redis, LOADS[load].quota)]))
  const ms = bench.quick ? QUICK_RUN_MS : RUN_MS
  return rounds(bench.quick, CONTENDERS, (one) => {
    const take = takes.get(one)
    if (!take) throw new Error(`expected ${one} to be open`)
    return measureLoad(redis, take, load, concurrency, ms)
  })
}

export const limitsDecisions: Figure = {
  name: 'limits-decisions',
  title:
    'Decisions of sluice/limits over the fastest library that does the same: median of interleaved rounds, the first ' +
    'discarded; 100 keys in turn; CPU of the client, time inside scripts and calls to Redis per decision',
  headings: ['', 'asked', 'reached', 'ok', 'other libraries'],
  run: (bench) =>
    withClient(bench.redis, async (redis) => {
      const rows: Row[] = []
      for (const one of CASES) {
        for (const load of ['allowed', 'refused'] as const) {
          const measured = await measure(bench, redis, load, one.concurrency)
          rows.push(...ALGORITHMS.map((algorithm) => row(algorithm, load, one, measured)))
        }
      }
      return rows
    }),
}
