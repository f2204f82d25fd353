import { setTimeout as sleep } from 'node:timers/promises'
import { accepted, secondsOf, watch } from '../feedback/limited-run.ts'
import { FLEET, type Outcome, Outlet } from '../feedback/outlet.ts'
import type { Arrivals, Contender } from '../feedback/protocol.ts'
import type { Bench, Figure, Row } from '../figure.ts'
import { sum } from '../measure/statistics.ts'

/** One in this many jobs is never accepted. */
const ONE_IN = 100
const ASKED = 0.95
const SECONDS = 120
const QUICK_SECONDS = 15
/** Not measured: the first bad jobs arrive when feedback knows nothing of the good ones yet. */
const WARM_UP_MS = 2000

const NAMES: Partial<Record<Contender, string>> = {
  adapting: 'ShapedWorker, feedback and adapt',
  pausing: 'ShapedWorker, feedback only pauses',
}

async function badRun(bench: Bench, contender: Contender): Promise<{ seen: Arrivals[]; outcome: Outcome }> {
  const seconds = bench.quick ? QUICK_SECONDS : SECONDS
  const outlet = await Outlet.open(bench, contender, FLEET.perSecond * (seconds + 10) * 1.1)
  await outlet.server.call('spoil', ONE_IN)
  await sleep(WARM_UP_MS)
  await outlet.server.call('arrivals')
  const seen = await watch(outlet, seconds)
  return { seen, outcome: await outlet.close() }
}

function row(name: string, { seen, outcome }: Awaited<ReturnType<typeof badRun>>): Row {
  const rate = accepted(seen) / secondsOf(seen)
  const share = rate / FLEET.perSecond
  const ok = share >= ASKED
  const cells = [
    `${rate.toFixed(1)}/s`,
    `${(share * 100).toFixed(1)} %`,
    ok ? 'yes' : 'NO',
    String(sum(seen.map(({ bad }) => bad))),
    String(outcome.failed),
    String(outcome.changes.length),
  ]
  return { setup: name, reached: cells.join(', '), ok, cells, values: { rate, share, seen, outcome } }
}

export const feedbackBad: Figure = {
  name: 'feedback-bad',
  title:
    `One job in ${ONE_IN} always gets 503 without a time, ${FLEET.perSecond}/s, ${FLEET.processes} × ` +
    `${FLEET.concurrency}, for ${SECONDS} s (--quick: ${QUICK_SECONDS}). Asked: good jobs keep >= ${ASKED * 100} % of the rate`,
  headings: ['', 'good jobs', 'of the rate', 'ok', 'calls of bad jobs', 'bad jobs that failed', 'changes'],
  run: async (bench) => {
    const rows: Row[] = []
    for (const [contender, name] of Object.entries(NAMES)) {
      rows.push(row(name, await badRun(bench, contender as Contender)))
    }
    return rows
  },
}
