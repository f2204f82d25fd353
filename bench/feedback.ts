import { setTimeout as sleep } from 'node:timers/promises'
import type { Queue } from 'bullmq'
import type { Contender, SenderSpec, methods as senderMethods } from './feedback-sender.ts'
import type { methods as serverMethods } from './feedback-server.ts'
import { type Bench, type Figure, inTurn, type Row } from './harness/figure.ts'
import type { Remote } from './harness/processes.ts'
import { addJobs, makeQueue, removeQueue } from './harness/queues.ts'
import { costOf } from './harness/redis.ts'
import { quantile, sum } from './harness/statistics.ts'

/** The configured rate, and the fleet that runs at it. */
const FLEET = { perSecond: 200, processes: 4, concurrency: 20 }
const LIMIT = { perSecond: FLEET.perSecond / 2, burst: 10 }
const FLEET_WORDS = `${FLEET.processes} × ${FLEET.concurrency}`

const NAMES: Readonly<Record<Contender, string>> = {
  adapting: 'ShapedWorker, feedback and adapt',
  pausing: 'ShapedWorker, feedback only pauses',
  'bullmq windowed': `BullMQ, limiter ${FLEET.perSecond} per 1000 ms, queue.rateLimit`,
  'bullmq spaced': `BullMQ, limiter 1 per ${1000 / FLEET.perSecond} ms, queue.rateLimit`,
  bottleneck: `Bottleneck, minTime ${1000 / FLEET.perSecond}, failed handler`,
}

type Arrivals = Awaited<ReturnType<(typeof serverMethods)['arrivals']>>

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`
const accepted = (all: readonly Arrivals[]) => sum(all.map(({ sent, refused, bad }) => sent - refused - bad))
/** Of accepted calls. */
const rateOf = (all: readonly Arrivals[]) => accepted(all) / (sum(all.map(({ ms }) => ms)) / 1000)

let outlets = 0

/** A server with a limit, and a fleet of processes that calls it for a backlog of jobs. All are started afresh. */
class Outlet {
  readonly server: Remote<typeof serverMethods>
  readonly #senders: readonly Remote<typeof senderMethods>[]
  readonly #queue: Queue | undefined
  readonly #jobs: number

  private constructor({ processes }: Bench, queue: Queue | undefined, jobs: number) {
    this.#queue = queue
    this.#jobs = jobs
    this.server = processes.start(new URL('feedback-server.ts', import.meta.url))
    const sender = new URL('feedback-sender.ts', import.meta.url)
    this.#senders = Array.from({ length: FLEET.processes }, () => processes.start(sender))
  }

  /** @param jobs number of waiting jobs at the start */
  static async open(bench: Bench, contender: Contender, jobs: number, observed = false): Promise<Outlet> {
    outlets += 1
    const system = contender.startsWith('bullmq') ? 'bullmq' : 'sluice'
    const rate = `${FLEET.perSecond}/s`
    const queue = contender === 'bottleneck' ? undefined : await makeQueue(bench, system, 'feedback', { rate })
    if (queue) await addJobs(queue, jobs)
    const outlet = new Outlet(bench, queue, jobs)
    const url = await outlet.server.call('listen')
    const name = queue?.name ?? `outlet-${outlets}`
    const spec: SenderSpec = { contender, queue: name, redis: bench.redis, url, observed, ...FLEET }
    await Promise.all(outlet.#senders.map((sender) => sender.call('open', spec)))
    return outlet
  }

  /** What all processes recorded since the last call. */
  async seen() {
    const seen = await Promise.all(this.#senders.map((sender) => sender.call('seen')))
    return {
      starts: seen.flatMap(({ starts }) => starts).sort((a, b) => a.startedUs - b.startedUs),
      pausesUs: seen.flatMap(({ pausesUs }) => pausesUs),
      roundTrips: seen.flatMap(({ roundTrips }) => roundTrips),
    }
  }

  /** Arrivals second by second. */
  async watch(seconds: number, enough?: (seen: Arrivals[]) => boolean): Promise<Arrivals[]> {
    const seen: Arrivals[] = []
    while (seen.length < seconds && !enough?.(seen)) {
      await sleep(1000)
      seen.push(await this.server.call('arrivals'))
    }
    return seen
  }

  /** Lets running calls finish, then stops everything. `lost` are neither accepted nor waiting, `failed` are among them. */
  async close() {
    const closed = await Promise.all(this.#senders.map((sender) => sender.call('close')))
    const { accepted, twice } = await this.server.call('jobs')
    const { completed: _done, failed = 0, ...waitingBy } = (await this.#queue?.getJobCounts()) ?? {}
    const waiting = sum(Object.values(waitingBy))
    if (this.#queue) await removeQueue(this.#queue)
    await Promise.all([...this.#senders, this.server].map((process) => process.stop()))
    const added = this.#queue ? this.#jobs : sum(closed.map(({ given }) => given))
    const changes = closed.flatMap((one) => one.changes)
    return { added, accepted, twice, waiting, lost: added - accepted - waiting, failed, changes }
  }
}

/** The default of `horizonMs`. */
const HORIZON_MS = 50
const RUN_MS = 1000
/** Never has a token: refuses everything, with a Retry-After of a second. */
const NOTHING = { perSecond: 1, burst: 0 }
const RETRY_AFTER_MS = 1000
/** How long all calls are refused; running calls have been answered by then. */
const REFUSE_MS = 500
/** The pause, its jitter, and the extension by the last refused calls. */
const PAUSED_MS = 1500
/** Only round trips this close to the commit count for its round-trip time. */
const AROUND_US = 100_000

/** Times in ms after the first pause was committed. */
async function stopOnce(outlet: Outlet) {
  await sleep(RUN_MS)
  await outlet.seen()
  await outlet.server.call('impose', NOTHING)
  await sleep(REFUSE_MS)
  await outlet.server.call('impose', null)
  await sleep(PAUSED_MS - REFUSE_MS)
  const { starts, pausesUs, roundTrips } = await outlet.seen()
  const commitUs = Math.min(...pausesUs)
  if (!Number.isFinite(commitUs)) throw new Error('expected a pause, and none came')
  const before = starts.filter(({ startedUs }) => startedUs < commitUs + RETRY_AFTER_MS * 1000)
  const near = roundTrips.filter(({ atUs }) => Math.abs(atUs - commitUs) <= AROUND_US)
  return {
    lastStartMs: ((before.at(-1)?.startedUs ?? Number.NaN) - commitUs) / 1000,
    lastSlotMs: (Math.max(...before.map(({ slotUs = Number.NaN }) => slotUs)) - commitUs) / 1000,
    startsAfter: before.filter(({ startedUs }) => startedUs > commitUs).length,
    roundTripMs: Math.max(...near.map(({ ms }) => ms)),
    roundTripsMs: roundTrips.map(({ ms }) => ms),
  }
}

const describeQuantiles = (values: readonly number[], digits = 1) =>
  [0.5, 0.99, 1].map((q) => quantile(values, q).toFixed(digits)).join(', ')

async function stopRows(bench: Bench): Promise<Row[]> {
  const pauses = bench.quick ? 3 : 40
  const seconds = (pauses * (RUN_MS + PAUSED_MS)) / 1000
  const outlet = await Outlet.open(bench, 'pausing', FLEET.perSecond * (seconds + 10), true)
  const stops: Awaited<ReturnType<typeof stopOnce>>[] = []
  for (let i = 0; i < pauses; i++) stops.push(await stopOnce(outlet))
  await outlet.close()
  const ok = stops.every(({ lastStartMs, roundTripMs }) => lastStartMs <= HORIZON_MS + roundTripMs)
  const cells = [
    `<= ${HORIZON_MS} ms + round trip`,
    `${describeQuantiles(stops.map(({ lastStartMs }) => lastStartMs))} ms`,
    ok ? 'yes' : 'NO',
    `${describeQuantiles(stops.map(({ lastSlotMs }) => lastSlotMs))} ms`,
    describeQuantiles(
      stops.map(({ startsAfter }) => startsAfter),
      0,
    ),
    `${describeQuantiles(stops.map(({ roundTripMs }) => roundTripMs))} ms`,
    `${describeQuantiles(stops.flatMap(({ roundTripsMs }) => roundTripsMs))} ms`,
  ]
  return [{ setup: `one 429, ${pauses} times`, reached: cells.join('; '), ok, cells, values: { stops } }]
}

const feedbackStop: Figure = {
  name: 'feedback-stop',
  title: `From the commit of the first pause to the last start in the fleet, ${FLEET_WORDS} at ${FLEET.perSecond}/s, calls of 20 ms: p50, p99, max`,
  headings: ['', 'asked', 'last start', 'ok', 'last slot', 'starts after it', 'round trip then', 'all round trips'],
  run: stopRows,
}

/** No limit, the limit, and the recovery afterwards, which ends as soon as the previous rate is reached again. s */
const PHASES = { free: 10, limited: 60, after: 180 }
/** For the first contender, which is checked for every minute. */
const OUR_PHASES = { ...PHASES, limited: 300 }
const QUICK_PHASES = { free: 1, limited: 3, after: 1 }
/** The rate counts as recovered after this many seconds at this share of it. */
const RECOVERED_FOR = 2
const RECOVERED_SHARE = 0.95
const MINUTE = 60
const ASKED = { refused: 0.02, used: 0.9 }

/** Runs one contender through all phases, with a backlog that never runs dry. */
async function limitedRun(bench: Bench, contender: Contender, phases: typeof PHASES) {
  const jobs = Math.ceil(FLEET.perSecond * (phases.free + phases.limited + phases.after) * 1.1) + 1000
  const outlet = await Outlet.open(bench, contender, jobs)
  await outlet.watch(1)
  const free = await outlet.watch(phases.free)
  let limited: Arrivals[] = []
  const cost = await costOf(bench.client, async () => {
    await outlet.server.call('impose', LIMIT)
    limited = await outlet.watch(phases.limited)
    limited.push(await outlet.server.call('impose', null))
    return { units: accepted(limited) }
  })
  const isBack = (seen: Arrivals[]) => {
    const last = seen.slice(-RECOVERED_FOR)
    return last.length === RECOVERED_FOR && rateOf(last) >= RECOVERED_SHARE * rateOf(free)
  }
  const after = await outlet.watch(phases.after, isBack)
  const recoveredMs = isBack(after) ? sum(after.slice(0, -RECOVERED_FOR).map(({ ms }) => ms)) : undefined
  return { contender, free, limited, after, recoveredMs, cost, outcome: await outlet.close() }
}

type Limited = Awaited<ReturnType<typeof limitedRun>>

const refusedShare = ({ limited }: Limited) =>
  sum(limited.map(({ refused }) => refused)) / sum(limited.map(({ sent }) => sent))

function limitedRow(run: Limited, ours: Limited): Row {
  const { limited, outcome, free, after, recoveredMs, cost } = run
  const used = (some: readonly Arrivals[]) => rateOf(some) / LIMIT.perSecond
  // Each whole minute, or the first one if it is incomplete.
  const minutes = Array.from({ length: Math.max(1, Math.floor(limited.length / MINUTE)) }, (_, i) =>
    used(limited.slice(i * MINUTE, (i + 1) * MINUTE)),
  )
  const share = refusedShare(run)
  const ok = share <= ASKED.refused && Math.min(...minutes) >= ASKED.used && outcome.lost === 0
  const cells = [
    String(sum(limited.map(({ sent }) => sent))),
    String(sum(limited.map(({ refused }) => refused))),
    percent(share),
    (share / refusedShare(ours)).toFixed(1),
    `${percent(used(limited))} (${minutes.map(percent).join(', ')})`,
    run === ours ? (ok ? 'yes' : 'NO') : '',
    rateOf(free).toFixed(0),
    recoveredMs === undefined ? `not in ${after.length} s` : `${(recoveredMs / 1000).toFixed(0)} s`,
    cost.calls.toFixed(2),
    cost.redisUs.toFixed(0),
    `${outcome.lost}, ${outcome.twice}`,
  ]
  const values = { share, minutes, run }
  return { setup: NAMES[run.contender], reached: cells.join(', '), cells, values, ...(run === ours && { ok }) }
}

/** The purpose of feedback: to adapt to a limit that was not configured. */
const feedbackRefused: Figure = {
  name: 'feedback-refused',
  title:
    `${FLEET.perSecond}/s configured, ${FLEET_WORDS}, calls of 20 ms; an HTTP server holds a ` +
    `limit of ${LIMIT.perSecond}/s (bursts of ${LIMIT.burst}, Retry-After) for ${PHASES.limited} s, for the first ` +
    `${OUR_PHASES.limited} s (--quick: ${QUICK_PHASES.limited}). Asked of the first: <= ${ASKED.refused * 100} % of ` +
    `those sent refused, >= ${ASKED.used * 100} % of the allowed rate used in each minute, none lost`,
  headings: [
    ...['', 'sent', 'refused', 'share', 'times ours', 'allowed rate used (each minute)', 'ok', 'rate before'],
    ...['back at it after', 'scripts/job', 'Redis µs/job', 'lost, twice'],
  ],
  run: async (bench) => {
    const runs: Limited[] = []
    for (const contender of Object.keys(NAMES) as Contender[])
      runs.push(await limitedRun(bench, contender, bench.quick ? QUICK_PHASES : runs.length > 0 ? PHASES : OUR_PHASES))
    return runs.map((run) => limitedRow(run, runs[0] as Limited))
  },
}

/** One in this many jobs is never accepted. */
const ONE_IN = 100
const ASKED_BAD = 0.95
const SECONDS = 120
const QUICK_SECONDS = 15

async function badRow(bench: Bench, contender: Contender): Promise<Row> {
  const seconds = bench.quick ? QUICK_SECONDS : SECONDS
  const outlet = await Outlet.open(bench, contender, FLEET.perSecond * (seconds + 10) * 1.1)
  await outlet.server.call('spoil', ONE_IN)
  // Not measured: the first bad jobs arrive when feedback knows nothing of the good ones yet.
  await outlet.watch(2)
  const seen = await outlet.watch(seconds)
  const outcome = await outlet.close()
  const share = rateOf(seen) / FLEET.perSecond
  const ok = share >= ASKED_BAD
  const badCalls = sum(seen.map(({ bad }) => bad))
  const counts = [badCalls, outcome.failed, outcome.changes.length].map(String)
  const cells = [`${rateOf(seen).toFixed(1)}/s`, percent(share), ok ? 'yes' : 'NO', ...counts]
  return { setup: NAMES[contender], reached: cells.join(', '), ok, cells, values: { share, seen, outcome } }
}

const feedbackBad: Figure = {
  name: 'feedback-bad',
  title:
    `One job in ${ONE_IN} always gets 503 without a time, ${FLEET.perSecond}/s, ${FLEET_WORDS}, ` +
    `for ${SECONDS} s (--quick: ${QUICK_SECONDS}). Asked: good jobs keep >= ${ASKED_BAD * 100} % of the rate`,
  headings: ['', 'good jobs', 'of the rate', 'ok', 'calls of bad jobs', 'bad jobs that failed', 'changes'],
  run: (bench) => inTurn(['adapting', 'pausing'] as const, (contender) => badRow(bench, contender)),
}

export const feedback: readonly Figure[] = [feedbackStop, feedbackRefused, feedbackBad]
