import { arrivalsOf } from '../../src/simulate/load.ts'
import { simulate as runSimulation } from '../../src/simulate/simulation.ts'
import { summarize } from '../../src/simulate/summary.ts'
import type { Bench, Figure, Row } from '../figure.ts'
import { scriptUsage } from '../measure/redis-usage.ts'

const SHAPES = [
  { setup: '8/s: the rate is above the load', shape: { rate: '8/s', burst: 10, capacity: 1000 } },
  { setup: '5/s: as much as comes', shape: { rate: '5/s', burst: 10, capacity: 1000 } },
  { setup: '4/s: the queue is full', shape: { rate: '4/s', burst: 10, capacity: 1000 } },
]
const HOUR_MS = 3_600_000
const HOURS = 24
const QUICK_HOURS = 1
const ASKED_SECONDS = 60
/** A day at 5/s. */
const ASKED_ARRIVALS = 432_000

async function row({ client }: Bench, { setup, shape }: (typeof SHAPES)[number], hours: number): Promise<Row> {
  const arrivals = arrivalsOf({ parts: [{ rate: '5/s', forMs: hours * HOUR_MS }] })
  const before = await scriptUsage(client)
  const startedMs = performance.now()
  const outcome = await runSimulation(client, shape, arrivals)
  const seconds = (performance.now() - startedMs) / 1000
  const after = await scriptUsage(client)
  const perSecond = arrivals.length / seconds
  const scriptMs = (after.us - before.us) / 1000 / (after.calls - before.calls)
  const cells = [
    String(arrivals.length),
    seconds.toFixed(1),
    perSecond.toFixed(0),
    scriptMs.toFixed(1),
    ASKED_ARRIVALS / perSecond <= ASKED_SECONDS ? 'yes' : 'NO',
  ]
  return {
    setup,
    asked: `a day at 5/s in <= ${ASKED_SECONDS} s`,
    reached: `${perSecond.toFixed(0)} arrivals a second`,
    ok: ASKED_ARRIVALS / perSecond <= ASKED_SECONDS,
    cells,
    values: { ...summarize(outcome, shape, arrivals), seconds, perSecond, scriptMs },
  }
}

export const simulate: Figure = {
  name: 'simulate',
  title: `Arrivals at 5/s through the scripts of a queue in virtual time; asked for: a day in ${ASKED_SECONDS} s`,
  headings: ['', 'arrivals', 's', 'arrivals a second', 'ms per script', 'ok'],
  run: async (bench) => {
    const rows: Row[] = []
    for (const shape of SHAPES) rows.push(await row(bench, shape, bench.quick ? QUICK_HOURS : HOURS))
    return rows
  },
}
