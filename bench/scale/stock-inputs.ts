import { Queue, Worker, type WorkerOptions } from 'bullmq'
import { Redis } from 'ioredis'
import { type Bench, connectionTo } from '../figure.ts'
import type { RedisAddress } from '../fleet/protocol.ts'
import { addJobs, makeQueue } from '../queues.ts'
import type { Depth } from './deep-queue.ts'
import { BULK, fails, HOUR_MS, largeJobs, MIB, optionsAt, PLACES, untilEnded, type WorstInput } from './worst-inputs.ts'

/** A queue of BullMQ's own in which as many jobs wait. */
export interface StockScene {
  readonly near: Queue
  /** The same queue, measured. */
  readonly far: Queue
  /** That of `far`: all scripts of BullMQ are defined on it. */
  readonly client: Redis
  /** That of each worker, measured: later rounds send no text of scripts. */
  readonly workers: Redis
  readonly jobs: number
  readonly opts: Depth['opts']
}

export async function openStock(
  bench: Bench,
  { opts }: Depth,
  jobs: number,
  measured: RedisAddress,
): Promise<StockScene> {
  const near = await makeQueue(bench, 'bullmq', 'stock')
  await addJobs(near, jobs, opts)
  const client = new Redis(connectionTo(measured))
  const far = new Queue(near.name, { connection: client })
  const workers = new Redis(connectionTo(measured))
  return { near, far, client, workers, jobs, opts }
}

/** What BullMQ's own producers and workers send: as much of worst-inputs.ts as they have, with the same words. */
export function stockInputs(scene: StockScene): WorstInput[] {
  const { far } = scene
  const opts = (more: object = {}) => optionsAt(scene, 0, more)
  return [
    { what: 'add', run: () => far.add('job', {}, opts()) },
    { what: 'add of 1 MiB', run: () => far.add('job', { text: 'x'.repeat(MIB) }, opts()) },
    { what: 'add with a delay', run: () => far.add('job', {}, opts({ delay: HOUR_MS })) },
    { what: 'add with a priority', run: () => far.add('job', {}, opts({ priority: 3 })) },
    {
      what: `addBulk of ${BULK}`,
      run: () => far.addBulk(Array.from({ length: BULK }, () => ({ name: 'job', data: {}, opts: opts() }))),
    },
    { what: 'a job scheduler', run: (round) => far.upsertJobScheduler(`s-${round}`, { every: HOUR_MS }) },
    ...stockWorkers(scene),
    { what: 'remove of the last job', run: async () => (await far.add('job', {}, opts())).remove() },
    { what: 'drain', run: (round) => (round === 1 ? far.drain(true) : Promise.resolve()) },
  ]
}

function stockWorkers({ near, workers }: StockScene): WorstInput[] {
  const work = (
    what: string,
    jobs: number,
    options: Partial<WorkerOptions> = {},
    process: () => Promise<unknown> = async () => {},
  ): WorstInput => ({
    what,
    run: () => untilEnded(new Worker(near.name, process, { connection: workers, ...options }), jobs),
  })
  const many = { concurrency: PLACES }
  return [
    work(`${PLACES} at once`, 3 * PLACES, many),
    work(`${PLACES} at once, not kept`, 3 * PLACES, { ...many, removeOnComplete: { count: 0 } }),
    largeJobs(near, (jobs, processor) =>
      untilEnded(new Worker(near.name, processor, { connection: workers, ...many }), jobs),
    ),
    work('one at once', 50),
    work('results of 1 MiB', 10, {}, async () => 'x'.repeat(MIB)),
    work('jobs fail', 50, { concurrency: 10 }, fails),
  ]
}

export async function closeStock({ near, far, client, workers }: StockScene): Promise<void> {
  await far.close()
  client.disconnect()
  workers.disconnect()
  await near.obliterate({ force: true })
  await near.close()
}
