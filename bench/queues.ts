import { type JobsOptions, Queue } from 'bullmq'
import { type Shape, ShapedQueue } from 'sluice'
import { type Bench, connectionTo } from './figure.ts'
import type { System } from './fleet/protocol.ts'

const BULK = 1000
/** Every measured Sluice queue is bounded, as in real use, but never full. */
const CAPACITY = 1_000_000

let queues = 0

/** Creates a queue with a unique name; Sluice's has the shape and a capacity, BullMQ's has neither. */
export async function makeQueue(bench: Bench, system: 'sluice', purpose: string, shape?: Shape): Promise<ShapedQueue>
export async function makeQueue(bench: Bench, system: System, purpose: string, shape?: Shape): Promise<Queue>
export async function makeQueue(bench: Bench, system: System, purpose: string, shape: Shape = {}): Promise<Queue> {
  queues += 1
  const name = `${purpose}-${queues}`
  const connection = connectionTo(bench.redis)
  const queue: Queue =
    system === 'sluice'
      ? new ShapedQueue(name, { connection, shape: { capacity: CAPACITY, ...shape } })
      : new Queue(name, { connection })
  await queue.waitUntilReady()
  return queue
}

/** Options of all jobs, or of the one with this number. */
export type OptionsOf = JobsOptions | ((i: number) => JobsOptions)

export async function addJobs(queue: Queue, count: number, opts: OptionsOf = {}): Promise<void> {
  const optionsOf = typeof opts === 'function' ? opts : () => opts
  for (let added = 0; added < count; added += BULK) {
    const size = Math.min(BULK, count - added)
    await queue.addBulk(
      Array.from({ length: size }, (_, i) => ({ name: 'job', data: { i: added + i }, opts: optionsOf(added + i) })),
    )
  }
}

export async function removeQueue(queue: Queue): Promise<void> {
  await queue.obliterate({ force: true })
  await queue.close()
}
