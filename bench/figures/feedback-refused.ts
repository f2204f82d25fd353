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
/** For the first contender, which is checked for every minute. */
const OUR_PHASES: Phases = { ...PHASES, limited: 300 }
const QUICK_PHASES: Phases = { free: 1, limited: 3, after: 1 }
const MINUTE = 60

const NAMES: Readonly<Record<Contender, string>> = {
  adapting: 'ShapedWorker, feedback and adapt',
  pausing: 'ShapedWorker, feedback only pauses',
  'bullmq windowed': `BullMQ, limiter ${FLEET.perSecond} per 1000 ms, queue.rateLimit`,
  'bullmq spaced': `BullMQ, limiter 1 per ${1000 / FLEET.perSecond} ms, queue.rateLimit`,
  bottleneck: `Bottleneck, minTime ${1000 / FLEET.perSecond}, failed handler`,
}

/** The counts while the limit held. */
function underLimit({ limited }: LimitedRun): { sent: number; refused: number; share: number; used: number } {
  const sent = sum(limited.map((one) => one.sent))
  const refused = sum(limited.map((one) => one.refused))
  return { sent, refused, share: refused / sent, used: accepted(limited) / (LIMIT.perSecond * secondsOf(limited)) }
}

/** The share of the allowed rate that was used in each whole minute, or in the first one if it is incomplete. */
function byMinute({ limited }: LimitedRun): number[] {
  const minutes = Math.max(1, Math.floor(limited.length / MINUTE))
  return Array.from({ length: minutes }, (_, i) => {
    const minute = limited.slice(i * MINUTE, (i + 1) * MINUTE)
    return accepted(minute) / (LIMIT.perSecond * secondsOf(minute))
  })
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

function row(run: LimitedRun, ours: LimitedRun): Row {
  const { sent, refused, share, used } = underLimit(run)
  const { outcome, free, recoveredAfterS, scriptCalls, redisUs } = run
  const minutes = byMinute(run)
  const ok = share <= ASKED.refused && Math.min(...minutes) >= ASKED.used && outcome.lost === 0
  const asked = run === ours
  const cells = [
    String(sent),
    String(refused),
    percent(share),
    (share / underLimit(ours).share).toFixed(1),
    `${percent(used)} (${minutes.map(percent).join(', ')})`,
    asked ? (ok ? 'yes' : 'NO') : '',
    rateOf(free).toFixed(0),
    recoveredAfterS === undefined ? `not in ${run.after.length} s` : `${recoveredAfterS.toFixed(0)} s`,
    scriptCalls.toFixed(2),
    redisUs.toFixed(0),
    `${outcome.lost}, ${outcome.twice}`,
  ]
  const values = { ...underLimit(run), minutes, run }
  return { setup: NAMES[run.contender], reached: cells.join(', '), cells, values, ...(asked && { ok }) }
}

/** The purpose of feedback: to adapt to a limit that was not configured. */
export const feedbackRefused: Figure = {
  name: 'feedback-refused',
  title:
    `${FLEET.perSecond}/s configured, ${FLEET.processes} × ${FLEET.concurrency}, calls of 20 ms; an HTTP server holds a ` +
    `limit of ${LIMIT.perSecond}/s (bursts of ${LIMIT.burst}, Retry-After) for ${PHASES.limited} s, for the first ` +
    `${OUR_PHASES.limited} s (--quick: ${QUICK_PHASES.limited}). Asked of the first: <= ${ASKED.refused * 100} % of ` +
    `those sent refused, >= ${ASKED.used * 100} % of the allowed rate used in each minute, none lost`,
  headings: [
    '',
    'sent',
    'refused',
    'share',
    'times ours',
    'allowed rate used (each minute)',
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
      const phases = runs.length === 0 ? OUR_PHASES : PHASES
      runs.push(await limitedRun(bench, contender, bench.quick ? QUICK_PHASES : phases))
    }
    return runs.map((run) => row(run, runs[0] as LimitedRun))
  },
}
