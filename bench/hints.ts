import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { type Shape, ShapedQueue } from 'sluice'
import { RedisClock } from './harness/clock.ts'
import { type Bench, connectionTo, type Figure, inTurn, type Row, withClient } from './harness/figure.ts'
import { removeQueue } from './harness/queues.ts'
import { median, quantile } from './harness/statistics.ts'
import { Team, WORKERS, type WorkerMethods } from './harness/workers.ts'

const MOST_REFUSALS = 1.3
const MOST_MEDIAN_ERROR = 0.1
const READ_EVERY_MS = 250
/** BullMQ's events have times in whole ms, rounded down. */
const CUT_MS = 0.5

/** A full queue, its workers, and the events during the run. */
interface Scenario {
  readonly name: string
  readonly shape: Shape
  readonly processes: number
  readonly concurrency: number
  readonly jobMs: number
  /** The mean ms between two departures. */
  readonly intervalMs: number
  /** Pauses of the meter: their duration and interval, ms. */
  readonly pauses?: { readonly forMs: number; readonly everyMs: number }
}

const jobs = { concurrency: 50, jobMs: 20 }
const rates = [5, 50, 500].flatMap((perSecond): Scenario[] =>
  [1, 4].map((processes) => ({
    ...{ ...jobs, processes, intervalMs: 1000 / perSecond },
    name: `${perSecond}/s, ${processes} worker${processes > 1 ? 's' : ''}`,
    shape: { rate: `${perSecond}/s`, capacity: Math.max(10, Math.ceil(perSecond / 4)) },
  })),
)
const limits = (name: string, intervalMs: number, ...all: object[]): Scenario => ({
  ...{ ...jobs, processes: 4, intervalMs, name },
  shape: { capacity: 25, limits: all as never },
})

const SCENARIOS: readonly Scenario[] = [
  ...rates,
  limits('a limit of 50/s, 4 workers', 20, { name: 'gcra', rate: '50/s', burst: 1 }),
  limits(
    'a window of 5/s and 1000/min, 4 workers',
    200,
    { name: 'window', algorithm: 'fixed-window', rate: '5/s' },
    { name: 'minute', rate: '1000/min' },
  ),
  limits('a log of 100/2s, 4 workers', 20, { name: 'log', algorithm: 'sliding-window-log', rate: '100/2s' }),
  {
    ...limits('5 places of a limit, jobs of 100 ms, 4 workers', 20, {
      ...{ name: 'places', algorithm: 'concurrency', concurrency: 5 },
    }),
    jobMs: 100,
  },
  ...[1, 4].map((processes) => ({
    name: `no rate, ${processes * 2} at once, jobs of 40 ms, ${processes} workers`,
    shape: { capacity: 25 },
    ...{ processes, concurrency: 2, jobMs: 40, intervalMs: 20 / processes },
  })),
  {
    name: 'no rate, concurrency 5 over all, jobs of 100 ms, 4 workers',
    shape: { capacity: 25, concurrency: 5 },
    ...{ processes: 4, concurrency: 5, jobMs: 100, intervalMs: 20 },
  },
  {
    name: '1000/s, 1 at once, jobs of 200 ms, 1 worker',
    shape: { rate: '1000/s', capacity: 10 },
    ...{ processes: 1, concurrency: 1, jobMs: 200, intervalMs: 200 },
  },
  {
    ...jobs,
    name: '50/s with pauses, 4 workers',
    shape: { rate: '50/s', capacity: 25 },
    ...{ processes: 4, intervalMs: 20, pauses: { forMs: 700, everyMs: 2000 } },
  },
]

/** When each job was taken by a worker, which freed a place, by BullMQ's events of that. ms */
function takenFrom(client: Redis, queue: ShapedQueue) {
  const timesMs: number[] = []
  let last = '0'
  const read = async () => {
    const [stream] = (await client.xread('STREAMS', queue.toKey('events'), last)) ?? []
    for (const [id, fields] of stream?.[1] ?? []) {
      last = id
      if (fields[1] === 'active') timesMs.push(Number.parseInt(id, 10))
    }
  }
  return { timesMs, read }
}

async function every(ms: number, stop: AbortSignal, act: () => Promise<unknown>): Promise<void> {
  while (!stop.aborted) {
    await act()
    await sleep(ms, undefined, { signal: stop }).catch(() => {})
  }
}

/**
 * One producer adds jobs as fast as it can and, when refused, retries exactly at the time in the hint.
 * @returns when it was refused and accepted, on Redis's clock, ms
 */
async function produce(client: Redis, queue: ShapedQueue, seconds: number) {
  const clock = new RedisClock(client)
  await clock.sample()
  const offers: { fromMs: number; toMs: number; retryAfterMs: number | undefined }[] = []
  const endMs = performance.now() + seconds * 1000
  while (performance.now() < endMs) {
    const fromMs = performance.now()
    const offer = await queue.offer('job', {})
    const retryAfterMs = offer.accepted ? undefined : offer.retryAfterMs
    offers.push({ fromMs, toMs: performance.now(), retryAfterMs })
    if (retryAfterMs !== undefined) await sleep(retryAfterMs)
  }
  await clock.sample()
  const redisMs = (atMs: number) => clock.toRedisUs(atMs) / 1000
  const told = offers.flatMap(({ fromMs, toMs, retryAfterMs }) => {
    if (retryAfterMs === undefined) return []
    return { atMs: redisMs((fromMs + toMs) / 2), retryAfterMs, roundTripMs: toMs - fromMs }
  })
  const accepted = offers.filter(({ retryAfterMs }) => retryAfterMs === undefined)
  return { told, acceptedMs: accepted.map(({ fromMs }) => redisMs(fromMs)) }
}

let queues = 0

/** From before the workers start, in new processes, to some seconds after the first job was taken. */
async function obey(bench: Bench, { shape, pauses, ...work }: Scenario, seconds: number) {
  queues += 1
  const queue = new ShapedQueue(`hints-${queues}`, { connection: connectionTo(bench.redis), shape })
  const hosts = Array.from({ length: work.processes }, () => bench.processes.start<WorkerMethods>(WORKERS))
  const done = new AbortController()
  try {
    return await withClient(bench.redis, async (client) => {
      await queue.waitUntilReady()
      while ((await queue.offer('job', {})).accepted);
      const { timesMs: takenMs, read } = takenFrom(client, queue)
      const { name: _name, intervalMs: _interval, ...spec } = work
      const team = await Team.open(bench, queue, spec, (n) => hosts[n] as (typeof hosts)[number])
      while (takenMs.length === 0) await read()
      const beside = [every(READ_EVERY_MS, done.signal, read)]
      const pause = (forMs: number) => queue.pauseUntil(Date.now() + forMs, { reason: 'bench' })
      if (pauses) beside.push(every(pauses.everyMs, done.signal, () => pause(pauses.forMs)))
      const produced = await produce(client, queue, seconds)
      done.abort()
      await Promise.all(beside)
      await read()
      await team.close()
      return { ...produced, takenMs }
    })
  } finally {
    done.abort()
    await Promise.all(hosts.map((host) => host.stop()))
    await removeQueue(queue)
  }
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
  const errorsMs = errors.map(({ ms }) => ms)
  const medianShare = median(errors.map(({ share }) => share))
  const perJob = refused.length / Math.max(1, accepted)
  const counts = `(${refused.length}/${accepted})`
  const percent = `${(medianShare * 100).toFixed(1)} %`
  const p95Ms = quantile(errorsMs, 0.95)
  const cells =
    refused.length === 0
      ? [`0 ${counts}`, '', '']
      : [
          `${perJob.toFixed(2)} ${counts}`,
          `${quantile(errorsMs, 0.5).toFixed(1)} ms, ${percent}`,
          `${p95Ms.toFixed(1)} ms`,
        ]
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
    'A full queue, and a producer that retries at the time in the hint: refusals per accepted job, and the error of the ' +
    'hint against the time at which a place was free (median, also as a share of the wait, and p95)',
  headings: ['', 'first second', 'error', 'p95', 'then', 'error', 'p95', 'allowed', 'ok'],
  run: (bench) => inTurn(SCENARIOS, (scenario) => hintsRow(bench, scenario)),
}
