import { arrivalsOf } from '../packages/cli/src/simulate/load.ts'
import { simulate as runSimulation } from '../packages/cli/src/simulate/simulation.ts'
import { summarize } from '../packages/cli/src/simulate/summary.ts'
import { type Figure, inTurn } from './harness/figure.ts'
import { costOf } from './harness/redis.ts'

const HOUR_MS = 3_600_000
const ASKED_SECONDS = 60
/** A day at 5/s. */
const ASKED_ARRIVALS = 432_000
const SHAPES = [
  { setup: '8/s: the rate is above the load', rate: '8/s' },
  { setup: '5/s: as much as comes', rate: '5/s' },
  { setup: '4/s: the queue is full', rate: '4/s' },
]

export const simulate: Figure = {
  name: 'simulate',
  title: `Arrivals at 5/s through the scripts of a queue in virtual time; asked for: a day in ${ASKED_SECONDS} s`,
  headings: ['', 'arrivals', 's', 'arrivals a second', 'ms per script', 'ok'],
  run: ({ client, quick }) =>
    inTurn(SHAPES, async ({ setup, rate }) => {
      const shape = { rate, burst: 10, capacity: 1000 }
      const arrivals = arrivalsOf({ parts: [{ rate: '5/s', forMs: (quick ? 1 : 24) * HOUR_MS }] })
      let outcome!: Awaited<ReturnType<typeof runSimulation>>
      const { perSecond, scriptUs, calls } = await costOf(client, async () => {
        outcome = await runSimulation(client, shape, arrivals)
        return { units: arrivals.length }
      })
      const ok = ASKED_ARRIVALS / perSecond <= ASKED_SECONDS
      const numbers = [
        (arrivals.length / perSecond).toFixed(1),
        perSecond.toFixed(0),
        (scriptUs / 1000 / calls).toFixed(1),
      ]
      const cells = [String(arrivals.length), ...numbers, ok ? 'yes' : 'NO']
      const summary = summarize(outcome, shape, arrivals)
      return { setup, reached: cells.join(', '), ok, cells, values: { summary, perSecond, scriptUs, calls } }
    }),
}
