import { type JobsOptions, Queue, Worker } from 'bullmq'
import { type Shape, ShapedQueue, ShapedWorker } from 'sluice'
import { connectionTo } from './figure.ts'
import type { GroupSpec, RedisAddress, System } from './fleet/protocol.ts'

const BULK = 1000
/** Every measured Sluice queue is bounded, as in real use, but never full. */
const CAPACITY = 1_000_000

/** A rate that holds nothing, so that every job goes through the meter without delay. */
export const OPEN_METER: Shape = { rate: '1000000/s', burst: 1_000_000 }

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

/** A worker in this process, for what does not depend on how much of the processor it gets. */
export function makeWorker(
  place: Place,
  system: System,
  name: string,
  { report = true, ...options }: Pick<GroupSpec, 'concurrency' | 'removeOnComplete' | 'report'>,
): Worker {
  const connection = connectionTo(place.redis)
  const processor = async () => {}
  const worker: Worker =
    system === 'sluice'
      ? new ShapedWorker(name, processor, { ...options, connection, report })
      : new Worker(name, processor, { ...options, connection })
  worker.on('error', (error) => console.error(`${name}: ${error.stack ?? error}`))
  return worker
}

/** Options of all jobs, or of the one with this number. */
export type OptionsOf = JobsOptions | ((i: number) => JobsOptions)

export const inGroup = (id: string | number): JobsOptions => ({ group: { id: `tenant-${id}` } }) as JobsOptions

/** Groups with limits so wide that no job is held. */
export const OPEN_GROUPS = { rate: '1000000/s', burst: 1_000_000, concurrency: 1000 } as const

/** Jobs go round the groups, so that each group has as many. */
export const amongGroups = (groups: number) => (i: number) => inGroup(i % groups)

/** @param bulk how many are added by one call */
export async function addJobs(queue: Queue, count: number, opts: OptionsOf = {}, bulk = BULK): Promise<void> {
  const optionsOf = typeof opts === 'function' ? opts : () => opts
  for (let added = 0; added < count; added += bulk) {
    const size = Math.min(bulk, count - added)
    await queue.addBulk(
      Array.from({ length: size }, (_, i) => ({ name: 'job', data: { i: added + i }, opts: optionsOf(added + i) })),
    )
  }
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
