import type { Job } from 'bullmq'
import { Inspector } from '../../../src/inspect/index.ts'
import { shardPrefix } from '../../../src/redis/shards.ts'
import {
  ShardedQueue,
  type ShardedQueueOptions,
  ShardedWorker,
  type ShardedWorkerOptions,
} from '../../../src/sharding/index.ts'
import { onTestFinished } from '../../support/concurrent.ts'

/** Queues and workers of one test, closed when it ends. */
export class ShardShop {
  readonly #options: Pick<ShardedQueueOptions, 'connection' | 'prefix'>
  readonly errors: Error[] = []

  constructor(options: Pick<ShardedQueueOptions, 'connection' | 'prefix'>) {
    this.#options = options
  }

  /** @param last whether what it leaves in Redis is removed */
  queue(name: string, options: Omit<ShardedQueueOptions, 'connection' | 'prefix'>): ShardedQueue {
    const queue = new ShardedQueue(name, { ...this.#options, ...options })
    queue.on('error', (error) => this.errors.push(error))
    onTestFinished(() => queue.close())
    return queue
  }

  worker(
    name: string,
    process: (job: Job) => Promise<unknown>,
    options: Omit<ShardedWorkerOptions, 'connection' | 'prefix'>,
  ): ShardedWorker {
    const worker = new ShardedWorker(name, process, { ...this.#options, ...options })
    worker.on('error', (error) => this.errors.push(error))
    onTestFinished(() => worker.close(true))
    return worker
  }

  /**
   * The slots of the departures of all shards, by their audits. µs. The slot of a job that was given back before it
   * started goes to another one: of each job counts the last one, and those at which it started.
   */
  async slotsUs(queue: ShardedQueue): Promise<number[]> {
    const { prefix = 'bull', connection } = this.#options
    const slots = Array.from({ length: queue.shards }, async (_, shard) => {
      const inspector = new Inspector({ connection, prefix: shardPrefix(prefix, queue.name, shard) })
      const entries = await inspector.audit(queue.name)
      await inspector.close()
      const last = new Map(entries.map((entry) => [entry.jobId, entry]))
      const departed = entries.filter((entry) => entry.startedUs !== undefined || last.get(entry.jobId) === entry)
      return departed.map(({ slotUs }) => slotUs)
    })
    return (await Promise.all(slots)).flat()
  }
}

/** Collects the ids of ended jobs. */
export function endsOf(...workers: ShardedWorker[]): { readonly ids: string[]; reach(count: number): Promise<void> } {
  const ids: string[] = []
  let check = () => {}
  for (const worker of workers) {
    worker.on('completed', ({ id }) => {
      ids.push(id as string)
      check()
    })
  }
  const reach = (count: number) =>
    new Promise<void>((resolve) => {
      check = () => {
        if (ids.length >= count) resolve()
      }
      check()
    })
  return { ids, reach }
}
