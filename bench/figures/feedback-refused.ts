import {
  accepted,
  LIMIT,
  type LimitedRun,
  limitedRun,
  type Phases,
  rateOf,
  secondsOf,
} from '../feedback/limited-run.ts'
import { FLEET } from '../feedback/outlet.ts'
import { CONTENDERS, type Contender } from '../feedback/protocol.ts'
import type { Figure, Row } from '../figure.ts'
import { sum } from '../measure/statistics.ts'

const ASKED = { refused: 0.02, used: 0.9 }
const PHASES: Phases = { free: 10, limited: 60, after: 180 }
const QUICK_PHASES: Phases = { free: 1, limited: 3, after: 1 }

const NAMES: Readonly<Record<Contender, string>> = {
  adapting: 'ShapedWorker, feedback and adapt',
  pausing: 'ShapedWorker, feedback only pauses',
  'bullmq windowed': `BullMQ, limiter ${FLEET.perSecond} per 1000 ms, queue.rateLimit`,
  'bullmq spaced': `BullMQ, limiter 1 per ${1000 / FLEET.perSecond} ms, queue.rateLimit`,
  bottleneck: `Bottleneck, minTime ${1000 / FLEET.perSecond}, failed handler`,
}

/** What happened while the limit held. */
function underLimit({ limited }: LimitedRun): { sent: number; refused: number; share: number; used: number } {
  const sent = sum(limited.map((one) => one.sent))
  const refused = sum(limited.map((one) => one.refused))
  return { sent, refused, share: refused / sent, used: accepted(limited) / (LIMIT.perSecond * secondsOf(limited)) }
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

function row(run: LimitedRun, ours: LimitedRun): Row {
  const { sent, refused, share, used } = underLimit(run)
  const { outcome, free, recoveredAfterS, scriptCalls, redisUs } = run
  const ok = share <= ASKED.refused && used >= ASKED.used && outcome.lost === 0
  const asked = run === ours
  const cells = [
    String(sent),
    String(refused),
    percent(share),
    (share / underLimit(ours).share).toFixed(1),
    percent(used),
    asked ? (ok ? 'yes' : 'NO') : '',
    rateOf(free).toFixed(0),
    recoveredAfterS === undefined ? `not in ${run.after.length} s` : `${recoveredAfterS.toFixed(0)} s`,
    scriptCalls.toFixed(2),
    redisUs.toFixed(0),
    `${outcome.lost}, ${outcome.twice}`,
  ]
  const values = { ...underLimit(run), run }
  return { setup: NAMES[run.contender], reached: cells.join(', '), cells, values, ...(asked && { ok }) }
}

/** What feedback is for: a limit that nobody was told of. */
export const feedbackRefused: Figure = {
  name: 'feedback-refused',
  title:
    `${FLEET.perSecond}/s configured, ${FLEET.processes} × ${FLEET.concurrency}, calls of 20 ms; an HTTP server holds a ` +
    `limit of ${LIMIT.perSecond}/s (bursts of ${LIMIT.burst}, Retry-After) for ${PHASES.limited} s ` +
    `(--quick: ${QUICK_PHASES.limited}). Asked of the first: ` +
    `<= ${ASKED.refused * 100} % of those sent refused, >= ${ASKED.used * 100} % of the allowed rate used, none lost`,
  headings: [
    '',
    'sent',
    'refused',
    'share',
    'times ours',
    'allowed rate used',
    'ok',
    'rate before',
    'back at it after',
    'scripts/job',
    'Redis µs/job',
    'lost, twice',
  ],
  run: async (bench) => {
    const runs: LimitedRun[] = []
    for (const contender of CONTENDERS) {
      runs.push(await limitedRun(bench, contender, bench.quick ? QUICK_PHASES : PHASES))
    }
    return runs.map((run) => row(run, runs[0] as LimitedRun))
  },
}
