import { setTimeout as sleep } from 'node:timers/promises'
import { QueueEvents } from 'bullmq'
import type { Shape, ShapedQueue } from 'sluice'
import { type Bench, connectionTo, type Figure, inTurn, type Row } from './harness/figure.ts'
import { makeQueue, removeQueue } from './harness/queues.ts'
import { median, quantile } from './harness/statistics.ts'
import { Team } from './harness/workers.ts'

const MOST_REFUSALS = 1.3
const MOST_MEDIAN_ERROR = 0.1
/** BullMQ's events have times in whole ms, rounded down. */
const CUT_MS = 0.5

/** A full queue, its workers, and the pauses during the run. */
interface Scenario {
  readonly concurrency: number
  readonly jobMs: number
  readonly name: string
  readonly shape: Shape
  /** The mean ms between two departures. */
  readonly intervalMs: number
  /** Pauses of the meter: their duration and interval, ms. */
  readonly pauses?: { readonly forMs: number; readonly everyMs: number }
}

const WORKERS = 4
const WORK = { concurrency: 50, jobMs: 20 }
const limited = (name: string, intervalMs: number, ...limits: object[]): Scenario => {
  return { ...WORK, name, intervalMs, shape: { capacity: 25, limits: limits as never } }
}

const SCENARIOS: readonly Scenario[] = [
  ...[5, 50, 500].map((perSecond) => ({
    ...WORK,
    name: `${perSecond}/s`,
    intervalMs: 1000 / perSecond,
    shape: { rate: `${perSecond}/s`, capacity: Math.max(10, Math.ceil(perSecond / 4)) },
  })),
  limited('a limit of 50/s', 20, { name: 'gcra', rate: '50/s', burst: 1 }),
  limited(
    'a window of 5/s and 1000/min',
    200,
    { name: 'window', algorithm: 'fixed-window', rate: '5/s' },
    { name: 'minute', rate: '1000/min' },
  ),
  limited('a log of 100/2s', 20, { name: 'log', algorithm: 'sliding-window-log', rate: '100/2s' }),
  {
    ...limited('5 places of a limit, jobs of 100 ms', 20, { name: 'p', algorithm: 'concurrency', concurrency: 5 }),
    jobMs: 100,
  },
  { name: 'no rate, 8 at once, jobs of 40 ms', shape: { capacity: 25 }, concurrency: 2, jobMs: 40, intervalMs: 5 },
  {
    name: 'no rate, concurrency 5 over all, jobs of 100 ms',
    shape: { capacity: 25, concurrency: 5 },
    ...{ concurrency: 5, jobMs: 100, intervalMs: 20 },
  },
  {
    ...WORK,
    name: '50/s with pauses',
    shape: { rate: '50/s', capacity: 25 },
    intervalMs: 20,
    pauses: { forMs: 700, everyMs: 2000 },
  },
]

const nowMs = () => performance.timeOrigin + performance.now()

/** One producer adds jobs as fast as it can and, when refused, retries exactly at the time in the hint. */
async function produce(queue: ShapedQueue, seconds: number) {
  const told: { atMs: number; retryAfterMs: number; roundTripMs: number }[] = []
  const acceptedMs: number[] = []
  const endMs = nowMs() + seconds * 1000
  while (nowMs() < endMs) {
    const fromMs = nowMs()
    const offer = await queue.offer('job', {})
    if (offer.accepted) {
      acceptedMs.push(fromMs)
      continue
    }
    const roundTripMs = nowMs() - fromMs
    told.push({ atMs: fromMs + roundTripMs / 2, retryAfterMs: offer.retryAfterMs, roundTripMs })
    await sleep(offer.retryAfterMs)
  }
  return { told, acceptedMs }
}

/** From before the workers start to some seconds after the first job was taken, which frees a place. */
async function obey(bench: Bench, { shape, pauses, concurrency, jobMs }: Scenario, seconds: number) {
  const queue = await makeQueue(bench, 'sluice', 'hints', shape)
  while ((await queue.offer('job', {})).accepted);
  const takenMs: number[] = []
  const events = new QueueEvents(queue.name, { connection: connectionTo(bench.redis), lastEventId: '0-0' })
  const isTaken = new Promise<void>((resolve) => {
    events.on('active', (_job, id) => {
      takenMs.push(Number.parseInt(id, 10))
      resolve()
    })
  })
  const team = await Team.open(bench, queue, { processes: WORKERS, concurrency, jobMs })
  await isTaken
  const pause = (forMs: number) => queue.pauseUntil(Date.now() + forMs, { reason: 'bench' })
  const pausing = pauses && setInterval(() => void pause(pauses.forMs), pauses.everyMs)
  const produced = await produce(queue, seconds)
  clearInterval(pausing)
  // Of the last refusals, too.
  await sleep(1000)
  await team.close()
  await events.close()
  await removeQueue(queue)
  return { ...produced, takenMs }
}

type Obeyed = Awaited<ReturnType<typeof obey>>

/** A period: |hint - true wait| in ms, and the same as a share of the true wait. */
function stretch({ takenMs, told, acceptedMs }: Obeyed, fromMs: number, toMs: number, intervalMs: number) {
  const within = (atMs: number) => atMs >= fromMs && atMs < toMs
  const refused = told.filter(({ atMs }) => within(atMs))
  const accepted = acceptedMs.filter(within).length
  const errors = refused.flatMap(({ atMs, retryAfterMs }) => {
    const freeMs = takenMs.find((one) => one >= atMs - 1)
    if (freeMs === undefined) return []
    const trueMs = Math.max(0, freeMs + CUT_MS - atMs)
    const ms = Math.abs(retryAfterMs - trueMs)
    return { ms, share: ms / Math.max(intervalMs, trueMs) }
  })
  const medianShare = median(errors.map(({ share }) => share))
  const p95Ms = quantile(
    errors.map(({ ms }) => ms),
    0.95,
  )
  const perJob = refused.length / Math.max(1, accepted)
  const inWords = `${quantile(
    errors.map(({ ms }) => ms),
    0.5,
  ).toFixed(1)} ms, ${(medianShare * 100).toFixed(1)} %`
  const cells = [`${perJob.toFixed(2)} (${refused.length}/${accepted})`]
  cells.push(...(refused.length > 0 ? [inWords, `${p95Ms.toFixed(1)} ms`] : ['', '']))
  return { refusals: refused.length, perJob, medianShare, p95Ms, cells, errors }
}

async function hintsRow(bench: Bench, scenario: Scenario): Promise<Row> {
  const obeyed = await obey(bench, scenario, bench.quick ? 3 : 10)
  const { intervalMs } = scenario
  const secondMs = (obeyed.takenMs[0] as number) + 1000
  const first = stretch(obeyed, secondMs - 1000, secondMs, intervalMs)
  const rest = stretch(obeyed, secondMs, Number.POSITIVE_INFINITY, intervalMs)
  const allowedMs = intervalMs + median(obeyed.told.map(({ roundTripMs }) => roundTripMs))
  // Without refusals there are no hints.
  const isTrue = rest.refusals === 0 || (rest.medianShare <= MOST_MEDIAN_ERROR && rest.p95Ms <= allowedMs)
  const ok = Math.max(first.perJob, rest.perJob) <= MOST_REFUSALS && isTrue
  const cells = [...first.cells, ...rest.cells, `${allowedMs.toFixed(1)} ms`, ok ? 'yes' : 'NO']
  return { setup: scenario.name, reached: '', ok, cells, values: { first, rest, allowedMs } }
}

export const hints: Figure = {
  name: 'hints',
  title:
    `A full queue, ${WORKERS} workers, and a producer that retries at the time in the hint: refusals per accepted ` +
    'job, and the error of the hint against the time at which a place was free (median, also as a share of the wait, and p95)',
  headings: ['', 'first second', 'error', 'p95', 'then', 'error', 'p95', 'allowed', 'ok'],
  run: (bench) => inTurn(SCENARIOS, (scenario) => hintsRow(bench, scenario)),
}
