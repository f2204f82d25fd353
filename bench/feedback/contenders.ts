import Bottleneck from 'bottleneck'
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { type FeedbackChange, ShapedWorker } from 'sluice'
import { profiles } from 'sluice/egress'
import { connectionTo } from '../figure.ts'
import { spacedLimiter } from '../paced-runs.ts'
import type { Observer } from './observer.ts'
import type { Closed, Contender, SenderSpec } from './protocol.ts'

export type Send = (job: string) => Promise<Response>

/** The client of the server in one process. */
export interface Sender {
  close(): Promise<Closed>
}

type Open = (spec: SenderSpec, send: Send, observer: Observer | undefined) => Promise<Sender>

/** Jobs per process that Bottleneck holds in memory, so that it never runs dry. */
const SCHEDULED = 100

class Refused extends Error {
  readonly retryAfterMs: number

  constructor(retryAfterMs: number) {
    super(`refused, for ${retryAfterMs} ms`)
    this.retryAfterMs = retryAfterMs
  }
}

const retryAfterMs = ({ headers }: Response): number => Number(headers.get('Retry-After')) * 1000

function sluice(adapt: boolean): Open {
  return async ({ queue, redis, concurrency }, send, observer) => {
    const worker = new ShapedWorker(queue, (job) => send(job.id as string), {
      connection: connectionTo(redis),
      concurrency,
      feedback: profiles.http,
      adapt,
    })
    const changes: FeedbackChange[] = []
    worker.on('feedback', (change) => changes.push(change))
    observer?.watch(worker)
    return running(worker, () => worker.close(), changes)
  }
}

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
    return running(worker, async () => {
      await worker.close()
      await queue.close()
    })
  }
}

async function running(
  worker: Worker,
  close: () => Promise<void>,
  changes: readonly FeedbackChange[] = [],
): Promise<Sender> {
  worker.on('error', (error) => console.error(`${worker.name}: ${error.stack ?? error}`))
  await worker.waitUntilReady()
  return { close: () => close().then(() => ({ given: 0, changes })) }
}

/**
 * All processes share one limiter in Redis. A failed call is retried after the delay, and keeps its place until then.
 */
const bottleneck: Open = async ({ queue: id, redis, concurrency, processes, perSecond }, send) => {
  const limiter = new Bottleneck({
    id,
    datastore: 'ioredis',
    Redis,
    clientOptions: { host: redis.host, port: redis.port },
    minTime: 1000 / perSecond,
    maxConcurrent: concurrency * processes,
  })
  limiter.on('error', (error) => console.error(`bottleneck: ${error instanceof Error ? error.stack : error}`))
  limiter.on('failed', (error: unknown) => (error instanceof Refused ? error.retryAfterMs : undefined))
  await limiter.ready()
  let scheduled = 0
  let closing = false
  const sendOne = async (job: string) => {
    const answer = await send(job)
    if (answer.status === 429) throw new Refused(retryAfterMs(answer))
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
  return {
    close: async () => {
      closing = true
      await ended
      await limiter.disconnect()
      return { given: scheduled, changes: [] }
    },
  }
}

const OPENS: Readonly<Record<Contender, Open>> = {
  adapting: sluice(true),
  pausing: sluice(false),
  'bullmq windowed': bullmq((perSecond) => ({ max: perSecond, duration: 1000 })),
  'bullmq spaced': bullmq(spacedLimiter),
  bottleneck,
}

export function openSender(spec: SenderSpec, send: Send, observer: Observer | undefined): Promise<Sender> {
  return OPENS[spec.contender](spec, send, observer)
}
