import Bottleneck from 'bottleneck'
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { type FeedbackChange, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'
import { StartLog } from './harness/clock.ts'
import { connectionTo, type RedisAddress } from './harness/figure.ts'
import { spacedLimiter } from './harness/queues.ts'

// A process of a fleet that calls the server, with one of the clients that differ in how they treat a refusal.

/** How often the round trip to Redis is measured. */
const PING_MS = 10
/** Jobs per process that Bottleneck holds in memory, so that it never runs dry. */
const SCHEDULED = 100

export interface SenderSpec {
  readonly contender: Contender
  /** The queue that is drained; for Bottleneck, which has none, the id that its processes share. */
  readonly queue: string
  readonly redis: RedisAddress
  readonly url: string
  readonly perSecond: number
  /** Per process; and the number of processes. */
  readonly concurrency: number
  readonly processes: number
  /** Whether to record what `seen` tells: it costs Redis pings. */
  readonly observed: boolean
}

type Send = (job: string) => Promise<Response>
/** Lets running calls finish. @returns the number of jobs that the process created itself, without a queue */
type Close = () => Promise<number>
type Open = (spec: SenderSpec, send: Send) => Promise<Close>

let log: StartLog
const changes: FeedbackChange[] = []
let pausesUs: number[] = []
let roundTrips: { atMs: number; ms: number }[] = []

function sluice(adapt: boolean): Open {
  return async ({ queue, redis, concurrency }, send) => {
    const connection = connectionTo(redis)
    const options = { connection, concurrency, feedback: profiles.http, adapt }
    const worker = new ShapedWorker(queue, (job) => send(job.id as string), options)
    log.watch(worker)
    worker.on('feedback', (change) => {
      changes.push(change)
      if (change.kind === 'pause') pausesUs.push(Number(change.at) * 1000)
    })
    return running(worker, () => worker.close())
  }
}

const retryAfterMs = ({ headers }: Response): number => Number(headers.get('Retry-After')) * 1000

/** As in BullMQ's documentation. */
function bullmq(limiterFor: (perSecond: number) => { max: number; duration: number }): Open {
  return async ({ queue: name, redis, concurrency, perSecond }, send) => {
    const connection = connectionTo(redis)
    const queue = new Queue(name, { connection })
    const work = async (job: { id?: string }) => {
      const answer = await send(job.id as string)
      if (answer.status !== 429) return
      await queue.rateLimit(retryAfterMs(answer))
      throw Worker.RateLimitError()
    }
    const worker = new Worker(name, work, { connection, concurrency, limiter: limiterFor(perSecond) })
    return running(worker, () => worker.close().then(() => queue.close()))
  }
}

async function running(worker: Worker, close: () => Promise<void>): Promise<Close> {
  worker.on('error', (error) => console.error(`${worker.name}: ${error.stack ?? error}`))
  await worker.waitUntilReady()
  return () => close().then(() => 0)
}

/** All processes share one limiter in Redis. A failed call is retried after the delay, and keeps its place until then. */
const bottleneck: Open = async ({ queue: id, redis, concurrency, processes, perSecond }, send) => {
  const limiter = new Bottleneck({
    ...{ id, datastore: 'ioredis', Redis, clientOptions: { host: redis.host, port: redis.port } },
    ...{ minTime: 1000 / perSecond, maxConcurrent: concurrency * processes },
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

export type Contender = 'adapting' | 'pausing' | 'bullmq windowed' | 'bullmq spaced' | 'bottleneck'
const OPENS: Readonly<Record<Contender, Open>> = {
  adapting: sluice(true),
  pausing: sluice(false),
  'bullmq windowed': bullmq((perSecond) => ({ max: perSecond, duration: 1000 })),
  'bullmq spaced': bullmq(spacedLimiter as (perSecond: number) => { max: number; duration: number }),
  bottleneck,
}

let closeSender: Close
let client: Redis

async function ping(): Promise<void> {
  const atMs = performance.now()
  await client.ping()
  roundTrips.push({ atMs, ms: performance.now() - atMs })
}

let pinging: NodeJS.Timeout | undefined

export const methods = {
  /** Resolves when it is connected and waits for jobs. */
  async open(spec: SenderSpec): Promise<void> {
    client = new Redis(connectionTo(spec.redis))
    log = new StartLog(client)
    await log.clock.sample()
    if (spec.observed) pinging = setInterval(() => void ping(), PING_MS)
    closeSender = await OPENS[spec.contender](spec, (job) => {
      if (spec.observed) log.started(job)
      return fetch(`${spec.url}/${job}`)
    })
  },
  /**
   * Since the last call, on Redis's clock: starts, round trips, and when the pauses that this process was the first to
   * learn of were committed, in whole ms: the script's own time, rounded down.
   */
  async seen() {
    const starts = await log.take()
    const seen = {
      starts,
      pausesUs,
      roundTrips: roundTrips.map(({ atMs, ms }) => ({ atUs: log.clock.toRedisUs(atMs), ms })),
    }
    pausesUs = []
    roundTrips = []
    return seen
  },
  async close() {
    const given = await closeSender()
    clearInterval(pinging)
    client.disconnect()
    return { given, changes }
  },
}
