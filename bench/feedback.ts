import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import Bottleneck from 'bottleneck'
import { Queue, type RateLimiterOptions, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'
import { StartLog } from './harness/clock.ts'
import { type Bench, connectionTo, type Figure, inTurn, type RedisAddress, type Row } from './harness/figure.ts'
import type { Remote } from './harness/processes.ts'
import { addJobs, makeQueue, removeQueue, spacedLimiter } from './harness/queues.ts'
import { costOf } from './harness/redis.ts'
import { quantile, sum } from './harness/statistics.ts'

/** The configured rate, and the fleet that runs at it. */
const FLEET = { perSecond: 200, processes: 4, concurrency: 20 }
const LIMIT = { perSecond: FLEET.perSecond / 2, burst: 10 }
const FLEET_WORDS = `${FLEET.processes} × ${FLEET.concurrency} at ${FLEET.perSecond}/s`

// The downstream: an HTTP server on loopback, which accepts jobs by the number in their path, or answers 429.

/** From the arrival of a call to its answer, as for a nearby service. */
const ANSWER_MS = 20
const accepted = new Set<string>()
let twice = 0
/** A token bucket, full at first. */
let bucket: { readonly perSecond: number; readonly burst: number; tokens: number; atMs: number } | undefined
let since = { atMs: performance.now(), sent: 0, refused: 0 }

/** Calls that reached the server since the last call of this, and those answered with 429. */
function takeArrivals() {
  const { atMs, ...counts } = since
  since = { atMs: performance.now(), sent: 0, refused: 0 }
  return { ms: since.atMs - atMs, ...counts }
}

type Arrivals = ReturnType<typeof takeArrivals>

/** The ms until a call is accepted; undefined if it is at once. */
function waitMs(): number | undefined {
  if (!bucket) return undefined
  const { perSecond, burst, tokens, atMs } = bucket
  bucket.atMs = performance.now()
  bucket.tokens = Math.min(burst, tokens + ((bucket.atMs - atMs) * perSecond) / 1000)
  if (bucket.tokens < 1) return ((1 - bucket.tokens) / perSecond) * 1000
  bucket.tokens -= 1
  return undefined
}

function statusOf(job: string): [status: number, headers?: { 'Retry-After': number }] {
  since.sent += 1
  const refusedMs = waitMs()
  if (refusedMs !== undefined) {
    since.refused += 1
    // Whole seconds, rounded up (RFC 9110 §10.2.3).
    return [429, { 'Retry-After': Math.ceil(refusedMs / 1000) }]
  }
  if (accepted.has(job)) twice += 1
  accepted.add(job)
  return [200]
}

// A process of a fleet that calls the server, with one of the clients that differ in how they treat a refusal.

/** Jobs per process that Bottleneck holds in memory, so that it never runs dry. */
const SCHEDULED = 100

interface Spec {
  readonly contender: string
  /** The queue that is drained; for Bottleneck, which has none, the id that its processes share. */
  readonly queue: string
  readonly redis: RedisAddress
  readonly url: string
}

type Send = (job: string) => Promise<Response>
/** Lets running calls finish. @returns the number of jobs that the process created itself, without a queue */
type Close = () => Promise<number>
type Open = (spec: Spec, send: Send) => Promise<Close>

let client: Redis
let log: StartLog
let pausesUs: number[] = []
let closeSender: Close

function sluice(adapt: boolean): Open {
  return async ({ queue, redis }, send) => {
    const { concurrency } = FLEET
    const options = { connection: connectionTo(redis), concurrency, feedback: profiles.http, adapt }
    const worker = new ShapedWorker(queue, (job) => send(job.id as string), options)
    log.watch(worker)
    worker.on('feedback', ({ kind, at }) => {
      if (kind === 'pause') pausesUs.push(Number(at) * 1000)
    })
    return running(worker, () => worker.close())
  }
}

const retryAfterMs = ({ headers }: Response): number => Number(headers.get('Retry-After')) * 1000

/** As in BullMQ's documentation. */
function bullmq(limiter: RateLimiterOptions): Open {
  return async ({ queue: name, redis }, send) => {
    const connection = connectionTo(redis)
    const queue = new Queue(name, { connection })
    const work = async (job: { id?: string }) => {
      const answer = await send(job.id as string)
      if (answer.status !== 429) return
      await queue.rateLimit(retryAfterMs(answer))
      throw Worker.RateLimitError()
    }
    const worker = new Worker(name, work, { connection, concurrency: FLEET.concurrency, limiter })
    return running(worker, () => worker.close().then(() => queue.close()))
  }
}

async function running(worker: Worker, close: () => Promise<void>): Promise<Close> {
  worker.on('error', (error) => console.error(`${worker.name}: ${error.stack ?? error}`))
  await worker.waitUntilReady()
  return () => close().then(() => 0)
}

/** All processes share one limiter in Redis. A failed call is retried after the delay, and keeps its place until then. */
const bottleneck: Open = async ({ queue: id, redis }, send) => {
  const limiter = new Bottleneck({
    ...{ id, datastore: 'ioredis', Redis, clientOptions: { host: redis.host, port: redis.port } },
    ...{ minTime: 1000 / FLEET.perSecond, maxConcurrent: FLEET.concurrency * FLEET.processes },
  })
  limiter.on('error', (error) => console.error('bottleneck:', error))
  limiter.on('failed', (error: { retryAfterMs?: number }) => error.retryAfterMs)
  await limiter.ready()
  let scheduled = 0
  let closing = false
  const sendOne = async (job: string) => {
    const answer = await send(job)
    if (answer.status === 429) throw Object.assign(new Error('refused'), { retryAfterMs: retryAfterMs(answer) })
  }
  const one = async () => {
    while (!closing) {
      scheduled += 1
      const job = `${process.pid}-${scheduled}`
      // A job that fails permanently counts as lost: it never reached the server.
      await limiter.schedule(() => sendOne(job)).catch((error) => console.error(error))
    }
  }
  const ended = Promise.all(Array.from({ length: SCHEDULED }, one))
  return async () => {
    closing = true
    await ended
    await limiter.disconnect()
    return scheduled
  }
}

const SPACED = spacedLimiter(FLEET.perSecond)
const CONTENDERS: Readonly<Record<string, Open>> = {
  'ShapedWorker, feedback and adapt': sluice(true),
  'ShapedWorker, feedback only pauses': sluice(false),
  [`BullMQ, limiter ${FLEET.perSecond} per 1000 ms, queue.rateLimit`]: bullmq({ max: FLEET.perSecond, duration: 1000 }),
  [`BullMQ, limiter ${SPACED.max} per ${SPACED.duration} ms, queue.rateLimit`]: bullmq(SPACED),
  [`Bottleneck, minTime ${1000 / FLEET.perSecond}, failed handler`]: bottleneck,
}
const PAUSING = 'ShapedWorker, feedback only pauses'

/** Of the process with the server, and of the senders. */
export const methods = {
  /** @returns the URL of the server */
  async listen(): Promise<string> {
    const server = createServer((request, response) => {
      const [status, headers] = statusOf(request.url as string)
      setTimeout(() => response.writeHead(status, { 'Content-Length': 0, ...headers }).end(), ANSWER_MS)
    })
    // Connections stay open between calls, however long the pause.
    server.keepAliveTimeout = 0
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  },
  /** Sets the limit from now on; null: none. */
  async impose(limit: { perSecond: number; burst: number } | null): Promise<Arrivals> {
    bucket = limit ? { ...limit, tokens: limit.burst, atMs: performance.now() } : undefined
    return takeArrivals()
  },
  arrivals: async (): Promise<Arrivals> => takeArrivals(),
  /** Jobs accepted so far, and how often a job was accepted that had been accepted before. */
  jobs: async () => ({ accepted: accepted.size, twice }),
  /** Resolves when the sender is connected and waits for jobs. */
  async open(spec: Spec): Promise<void> {
    client = new Redis(connectionTo(spec.redis))
    log = new StartLog(client)
    await log.sample()
    closeSender = await (CONTENDERS[spec.contender] as Open)(spec, (job) => {
      log.started(job)
      return fetch(`${spec.url}/${job}`)
    })
  },
  /**
   * Since the last call, on Redis's clock: starts, and when the pauses that this process was the first to learn of were
   * committed, in whole ms: the script's own time, rounded down.
   */
  async seen() {
    const seen = { starts: (await log.take()).starts, pausesUs }
    pausesUs = []
    return seen
  },
  async close(): Promise<number> {
    const given = await closeSender()
    client.disconnect()
    return given
  },
}

const isSluice = (contender: string) => contender.startsWith('Shaped')
const acceptedOf = (all: readonly Arrivals[]) => sum(all.map(({ sent, refused }) => sent - refused))
/** Of accepted calls. */
const rateOf = (all: readonly Arrivals[]) => acceptedOf(all) / (sum(all.map(({ ms }) => ms)) / 1000)

/** A server with a limit, and a fleet of processes that calls it for a backlog of jobs. All are started afresh. */
class Outlet {
  readonly server: Remote<typeof methods>
  readonly #senders: readonly Remote<typeof methods>[]
  readonly #queue: Queue | undefined
  readonly #jobs: number

  private constructor({ processes }: Bench, queue: Queue | undefined, jobs: number) {
    this.#queue = queue
    this.#jobs = jobs
    const start = () => processes.start<typeof methods>(new URL(import.meta.url))
    this.server = start()
    this.#senders = Array.from({ length: FLEET.processes }, start)
  }

  /** @param jobs number of waiting jobs at the start */
  static async open(bench: Bench, contender: string, jobs: number): Promise<Outlet> {
    const rate = `${FLEET.perSecond}/s`
    const system = isSluice(contender) ? 'sluice' : 'bullmq'
    const hasQueue = CONTENDERS[contender] !== bottleneck
    const queue = hasQueue ? await makeQueue(bench, system, 'feedback', { rate }) : undefined
    if (queue) await addJobs(queue, jobs)
    const outlet = new Outlet(bench, queue, jobs)
    const url = await outlet.server.call('listen')
    const spec: Spec = { contender, queue: queue?.name ?? 'feedback', redis: bench.redis, url }
    await Promise.all(outlet.#senders.map((sender) => sender.call('open', spec)))
    return outlet
  }

  /** What all processes recorded since the last call. */
  async seen() {
    const seen = await Promise.all(this.#senders.map((sender) => sender.call('seen')))
    return { starts: seen.flatMap(({ starts }) => starts), pausesUs: seen.flatMap((one) => one.pausesUs) }
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

  /** Lets running calls finish, then stops everything. `lost` are neither accepted nor waiting. */
  async close() {
    const given = sum(await Promise.all(this.#senders.map((sender) => sender.call('close'))))
    const { accepted, twice } = await this.server.call('jobs')
    const { completed: _done, ...waitingBy } = (await this.#queue?.getJobCounts()) ?? {}
    if (this.#queue) await removeQueue(this.#queue)
    await Promise.all([...this.#senders, this.server].map((process) => process.stop()))
    const added = this.#queue ? this.#jobs : given
    return { lost: added - accepted - sum(Object.values(waitingBy)), twice }
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

/** Times in ms after the first pause was committed. */
async function stopOnce(outlet: Outlet) {
  await sleep(RUN_MS)
  await outlet.seen()
  await outlet.server.call('impose', NOTHING)
  await sleep(REFUSE_MS)
  await outlet.server.call('impose', null)
  await sleep(PAUSED_MS - REFUSE_MS)
  const { starts, pausesUs } = await outlet.seen()
  const commitUs = Math.min(...pausesUs)
  if (!Number.isFinite(commitUs)) throw new Error('expected a pause, and none came')
  const before = starts.filter(({ startedUs }) => startedUs < commitUs + RETRY_AFTER_MS * 1000)
  return {
    lastStartMs: (Math.max(...before.map(({ startedUs }) => startedUs)) - commitUs) / 1000,
    lastSlotMs: (Math.max(...before.map(({ slotUs = Number.NaN }) => slotUs)) - commitUs) / 1000,
    startsAfter: before.filter(({ startedUs }) => startedUs > commitUs).length,
  }
}

async function stopRows(bench: Bench): Promise<Row[]> {
  const pauses = bench.quick ? 3 : 40
  const seconds = (pauses * (RUN_MS + PAUSED_MS)) / 1000
  const outlet = await Outlet.open(bench, PAUSING, FLEET.perSecond * (seconds + 10))
  const stops: Awaited<ReturnType<typeof stopOnce>>[] = []
  for (let i = 0; i < pauses; i++) stops.push(await stopOnce(outlet))
  await outlet.close()
  const quantiles = (field: keyof (typeof stops)[number]) =>
    [0.5, 0.99, 1]
      .map((q) =>
        quantile(
          stops.map((stop) => stop[field]),
          q,
        ).toFixed(1),
      )
      .join(', ')
  const ok = stops.every(({ lastStartMs }) => lastStartMs <= HORIZON_MS)
  const cells = [
    ...[`<= ${HORIZON_MS} ms`, `${quantiles('lastStartMs')} ms`, ok ? 'yes' : 'NO'],
    ...[`${quantiles('lastSlotMs')} ms`, quantiles('startsAfter')],
  ]
  return [{ setup: `one 429, ${pauses} times`, reached: cells.join('; '), ok, cells, values: { stops } }]
}

/** No limit, the limit, and the recovery afterwards, which ends as soon as the previous rate is reached again. s */
const PHASES = { free: 10, limited: 60, after: 180 }
const QUICK_PHASES = { free: 1, limited: 3, after: 1 }
/** The rate counts as recovered after this many seconds at this share of it. */
const RECOVERED_FOR = 2
const RECOVERED_SHARE = 0.95
const ASKED = { refused: 0.02, used: 0.9 }

/** Runs one contender through all phases, with a backlog that never runs dry. */
async function limitedRow(bench: Bench, contender: string): Promise<Row> {
  const phases = bench.quick ? QUICK_PHASES : PHASES
  const jobs = Math.ceil(FLEET.perSecond * (phases.free + phases.limited + phases.after) * 1.1) + 1000
  const outlet = await Outlet.open(bench, contender, jobs)
  await outlet.watch(1)
  const free = await outlet.watch(phases.free)
  let limited: Arrivals[] = []
  const { calls, redisUs } = await costOf(bench.client, async () => {
    await outlet.server.call('impose', LIMIT)
    limited = await outlet.watch(phases.limited)
    limited.push(await outlet.server.call('impose', null))
    return { units: acceptedOf(limited) }
  })
  const isBack = (seen: Arrivals[]) => {
    const last = seen.slice(-RECOVERED_FOR)
    return last.length === RECOVERED_FOR && rateOf(last) >= RECOVERED_SHARE * rateOf(free)
  }
  const after = await outlet.watch(phases.after, isBack)
  const { lost, twice } = await outlet.close()
  const [sent, refused] = [sum(limited.map((one) => one.sent)), sum(limited.map((one) => one.refused))]
  const [share, used] = [refused / sent, rateOf(limited) / LIMIT.perSecond]
  const isOurs = contender === Object.keys(CONTENDERS)[0]
  const ok = share <= ASKED.refused && used >= ASKED.used && lost === 0
  const cells = [
    ...[
      String(sent),
      `${(share * 100).toFixed(1)} %`,
      `${(used * 100).toFixed(1)} %`,
      isOurs ? (ok ? 'yes' : 'NO') : '',
    ],
    ...[rateOf(free).toFixed(0), isBack(after) ? `${after.length - RECOVERED_FOR} s` : `not in ${after.length} s`],
    ...[calls.toFixed(2), redisUs.toFixed(0), `${lost}, ${twice}`],
  ]
  const values = { share, used, free, limited, after, lost, twice, calls, redisUs }
  return { setup: contender, reached: cells.join(', '), cells, values, ...(isOurs && { ok }) }
}

export const feedback: readonly Figure[] = [
  {
    name: 'feedback-stop',
    title: `From the commit of the first pause to the last start in the fleet, ${FLEET_WORDS}, calls of 20 ms: p50, p99, max`,
    headings: ['', 'asked', 'last start', 'ok', 'last slot', 'starts after it'],
    run: stopRows,
  },
  {
    /** The purpose of feedback: to adapt to a limit that was not configured. */
    name: 'feedback-refused',
    title:
      `${FLEET_WORDS}, calls of 20 ms; an HTTP server holds a limit of ${LIMIT.perSecond}/s (bursts of ${LIMIT.burst}, ` +
      `Retry-After) for ${PHASES.limited} s (--quick: ${QUICK_PHASES.limited}). Asked of the first: <= ` +
      `${ASKED.refused * 100} % of those sent refused, >= ${ASKED.used * 100} % of the allowed rate used, none lost`,
    headings: [
      ...['', 'sent', 'refused', 'allowed rate used', 'ok', 'rate before', 'back at it after'],
      ...['scripts/job', 'Redis µs/job', 'lost, twice'],
    ],
    run: (bench) => inTurn(Object.keys(CONTENDERS), (contender) => limitedRow(bench, contender)),
  },
]
