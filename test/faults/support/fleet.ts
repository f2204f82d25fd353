import type { Job } from 'bullmq'
import {
  type Departure,
  ShapedQueue,
  type ShapedQueueOptions,
  ShapedWorker,
  type ShapedWorkerOptions,
  type StateLoss,
} from '../../../src/index.ts'
import { onTestFinished } from '../../support/concurrent.ts'

/** What the system and ioredis say of a connection that is gone. */
const CONNECTION = /ECONNRE(FUSED|SET)|EPIPE|Connection is closed/

const PATIENCE_MS = 120_000

/** What the workers and queues of a test tell of themselves. */
export class Fleet {
  readonly departures: (Departure & { readonly jobId: string; readonly startedMs: number })[] = []
  readonly losses: StateLoss[] = []
  readonly clockSteps: number[] = []
  readonly completed: string[] = []
  readonly failed: string[] = []
  readonly stalled: string[] = []
  /** Errors that are not about the connection, with the time they came at. */
  readonly errors: { readonly error: Error; readonly atMs: number }[] = []
  readonly workers: ShapedWorker[] = []
  #watchers: (() => void)[] = []

  /** Starts a worker, which is closed with the test. */
  worker(
    name: string,
    options: ShapedWorkerOptions,
    process: (job: Job, token?: string, signal?: AbortSignal) => Promise<unknown> = async () => {},
  ) {
    const worker = new ShapedWorker(name, process, options)
    worker.on('departed', (job, departure) =>
      this.#note(() => this.departures.push({ ...departure, jobId: job.id as string, startedMs: performance.now() })),
    )
    worker.on('completed', (job) => this.#note(() => this.completed.push(job.id as string)))
    worker.on('failed', (job) => this.#note(() => this.failed.push(job?.id as string)))
    worker.on('stalled', (id) => this.#note(() => this.stalled.push(id)))
    worker.on('stateLoss', (loss) => this.#note(() => this.losses.push(loss)))
    worker.on('clockStep', ({ backUs }) => this.#note(() => this.clockSteps.push(backUs)))
    worker.on('error', (error) => this.#noteError(error))
    this.workers.push(worker)
    onTestFinished(() => worker.close())
    return worker
  }

  /** Opens a queue, which is closed with the test. */
  queue(name: string, options: ShapedQueueOptions): ShapedQueue {
    const queue = new ShapedQueue(name, options)
    queue.on('stateLoss', (loss) => this.#note(() => this.losses.push(loss)))
    queue.on('error', (error) => this.#noteError(error))
    onTestFinished(() => queue.close())
    return queue
  }

  get slotsUs(): number[] {
    return this.departures.map(({ departureTimeUs }) => departureTimeUs)
  }

  /**
   * Resolves once it holds; looked at whenever something above was added.
   * @throws an error that tells what was seen, well before a test is over its time
   */
  async until(holds: () => boolean): Promise<void> {
    const since = new Error('waited two minutes in vain')
    let isLate = false
    const timer = setTimeout(() => {
      isLate = true
      this.#note(() => undefined)
    }, PATIENCE_MS)
    while (!holds() && !isLate) await new Promise<void>((resolve) => this.#watchers.push(resolve))
    clearTimeout(timer)
    if (holds()) return
    const errors = this.errors.slice(-5).map(({ error }) => error.message)
    const { departures, completed, failed, stalled, losses } = this
    since.message += `: ${JSON.stringify({ departures: departures.length, completed, failed, stalled, losses, errors })}`
    throw since
  }

  #note(add: () => void): void {
    add()
    for (const wake of this.#watchers.splice(0)) wake()
  }

  #noteError(error: Error): void {
    if (!CONNECTION.test(`${error.message} ${(error as NodeJS.ErrnoException).code}`))
      this.#note(() => this.errors.push({ error, atMs: performance.now() }))
  }
}

/** The id of each job that was added. */
export function idsOf(jobs: readonly { readonly id?: string | undefined }[]): string[] {
  return jobs.map(({ id }) => id as string)
}
