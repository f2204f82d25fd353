import { type JobsOptions, Queue, type RateLimiterOptions, Worker } from 'bullmq'
import { type BatchOptions, type Shape, ShapedQueue, ShapedWorker } from 'sluice'
import { connectionTo, type RedisAddress } from './figure.ts'

const BULK = 1000
/** Every measured Sluice queue is bounded, as in real use, but never full. */
const CAPACITY = 1_000_000

/** The library whose queue or worker is measured. */
export type System = 'sluice' | 'bullmq'

/** A rate that holds nothing, so that every job goes through the meter without delay. */
export const OPEN_METER: Shape = { rate: '1000000/s', burst: 1_000_000 }
/** Groups with limits so wide that no job is held. */
export const OPEN_GROUPS = { rate: '1000000/s', burst: 1_000_000, concurrency: 1000 } as const

/** Where a queue is made. */
interface Place {
  readonly redis: RedisAddress
}

let queues = 0

/** Creates a queue with a unique name; Sluice's has the shape and a capacity, BullMQ's has neither. */
export async function makeQueue(place: Place, system: 'sluice', purpose: string, shape?: Shape): Promise<ShapedQueue>
export async function makeQueue(place: Place, system: System, purpose: string, shape?: Shape): Promise<Queue>
export async function makeQueue(place: Place, system: System, purpose: string, shape: Shape = {}): Promise<Queue> {
  queues += 1
  const name = `${purpose}-${queues}`
  const connection = connectionTo(place.redis)
  const queue: Queue =
    system === 'sluice'
      ? new ShapedQueue(name, { connection, shape: { capacity: CAPACITY, ...shape } })
      : new Queue(name, { connection })
  await queue.waitUntilReady()
  return queue
}

export interface WorkerSpec {
  readonly system: System
  readonly queue: string
  readonly redis: RedisAddress
  readonly concurrency: number
  /** Which completed jobs are kept. Default: all. */
  readonly removeOnComplete?: { readonly count: number }
  /** Whether Sluice's workers report themselves. Default true. */
  readonly report?: boolean
  /** Of Sluice's workers. */
  readonly batch?: BatchOptions
  /** BullMQ's own limiter, for its workers only. */
  readonly limiter?: RateLimiterOptions
}

type Processor = ConstructorParameters<typeof Worker>[1]

/** @param processor default: the cheapest possible */
export function makeWorker(spec: WorkerSpec, processor: Processor = async () => {}): Worker {
  const { system, queue, redis, concurrency, removeOnComplete, report = true, batch, limiter } = spec
  const options = {
    connection: connectionTo(redis),
    concurrency,
    ...(removeOnComplete && { removeOnComplete }),
  }
  const worker: Worker =
    system === 'sluice'
      ? new ShapedWorker(queue, processor as never, { ...options, report, ...(batch && { batch }) })
      : new Worker(queue, processor, { ...options, ...(limiter && { limiter }) })
  worker.on('error', (error) => console.error(`${queue}: ${error.stack ?? error}`))
  return worker
}

/** One job per interval, or the nearest to it in whole milliseconds. */
export function spacedLimiter(perSecond: number): RateLimiterOptions {
  const duration = Math.max(1, 1000 / perSecond)
  return { max: (perSecond * duration) / 1000, duration }
}

/** Options of all jobs, or of the one with this number. */
export type OptionsOf = JobsOptions | ((i: number) => JobsOptions)

export const inGroup = (id: string): JobsOptions => ({ group: { id } }) as JobsOptions

/** Jobs go round the groups, so that each group has as many. */
export const amongGroups = (groups: number) => (i: number) => inGroup(`tenant-${i % groups}`)

export function jobsFrom(from: number, count: number, opts: OptionsOf = {}) {
  return Array.from({ length: count }, (_, n) => {
    const i = from + n
    return { name: 'job', data: { i }, opts: typeof opts === 'function' ? opts(i) : opts }
  })
}

/** @param bulk how many are added by one call */
export async function addJobs(queue: Queue, count: number, opts: OptionsOf = {}, bulk = BULK): Promise<void> {
  for (let added = 0; added < count; added += bulk)
    await queue.addBulk(jobsFrom(added, Math.min(bulk, count - added), opts))
}

/** One call for each job, so many of them at a time. */
export async function addInFlight(queue: Queue, jobs: number, inFlight: number): Promise<void> {
  let added = 0
  const producer = async () => {
    while (added < jobs) {
      added += 1
      await queue.add('job', { i: added })
    }
  }
  await Promise.all(Array.from({ length: inFlight }, producer))
}

export async function removeQueue(queue: Queue): Promise<void> {
  await queue.obliterate({ force: true })
  await queue.close()
}

/** Resolves when a worker has completed so many. */
export function completions(worker: { on(event: 'completed', listener: () => void): unknown }, jobs: number) {
  return new Promise<void>((resolve) => {
    let left = jobs
    worker.on('completed', () => {
      left -= 1
      if (left === 0) resolve()
    })
  })
}
