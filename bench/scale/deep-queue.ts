import type { Queue } from 'bullmq'
import type { Shape, ShapedQueue } from 'sluice'
import type { Bench } from '../figure.ts'
import type { SlowCommand, SlowCommands } from '../measure/slow-commands.ts'
import { addJobs, makeQueue, type OptionsOf } from '../queues.ts'

/** Where a million jobs can wait. */
export interface Depth {
  /** The name of its figure. */
  readonly figure: string
  readonly what: string
  readonly shape: Shape
  readonly opts: OptionsOf
}

const GROUPS = 10_000
const FILLINGS = 10
/** For what the inputs of scale-scripts add, however few jobs wait before. */
const ROOM = 50_000

export const DEPTHS: readonly Depth[] = [
  { figure: 'scale-waiting', what: 'the wait list', shape: {}, opts: {} },
  { figure: 'scale-priorities', what: 'priorities', shape: {}, opts: (i) => ({ priority: 1 + (i % 5) }) },
  {
    figure: 'scale-groups',
    what: `${GROUPS} groups`,
    shape: { groups: { concurrency: 2 } },
    opts: (i) => ({ group: { id: `g${i % GROUPS}` } }) as object,
  },
  { figure: 'scale-delays', what: 'delays', shape: {}, opts: (i) => ({ delay: 3_600_000 + i }) },
]

/** Of a queue in which so many jobs wait. */
export const capacityFor = (jobs: number): number => 2 * jobs + ROOM

export const jobsOf = (bench: Bench): number => (bench.quick ? 50_000 : 1_000_000)

export async function memoryOf({ client }: Bench): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await client.info('memory'))?.[1])
}

export interface DeepQueue {
  readonly queue: ShapedQueue
  readonly filling: readonly SlowCommand[]
  readonly bytesPerJob: number
  readonly keysPerJob: number
}

/** A shaped queue in which so many jobs wait, filled in some rounds. */
export async function deepQueue(bench: Bench, depth: Depth, jobs: number, slow: SlowCommands): Promise<DeepQueue> {
  const { what, shape, opts } = depth
  const queue = await makeQueue(bench, 'sluice', 'deep', { rate: '500/s', capacity: capacityFor(jobs), ...shape })
  const [bytes, keys] = [await memoryOf(bench), await bench.client.dbsize()]
  const filling = await slow.during(FILLINGS, () => addJobs(queue, jobs / FILLINGS, opts))
  const waiting = await queue.getJobCountByTypes('wait', 'prioritized', 'delayed')
  if (waiting !== jobs) throw new Error(`expected ${jobs} jobs in ${what}; there are ${waiting}`)
  return {
    queue,
    filling,
    bytesPerJob: ((await memoryOf(bench)) - bytes) / jobs,
    keysPerJob: ((await bench.client.dbsize()) - keys) / jobs,
  }
}

/** Adds as many jobs as have left. */
export async function refill(queue: Queue, jobs: number, opts: OptionsOf): Promise<void> {
  const left = jobs - (await queue.getJobCountByTypes('wait', 'prioritized'))
  if (left > 0) await addJobs(queue, left, opts)
}
