import { ShapedWorker } from 'sluice'
import { connectionTo, type RedisAddress } from './harness/figure.ts'

// A worker whose jobs run until they are aborted.

/** ms since 1970, on the clock that all processes of this machine share, in parts of a ms. */
const nowMs = () => performance.timeOrigin + performance.now()

let worker: ShapedWorker | undefined
let begun = 0
let aborted: Record<string, number> = {}

export const methods = {
  /** Resolves when the worker waits for jobs. */
  async open(queue: string, redis: RedisAddress, concurrency: number): Promise<void> {
    worker = new ShapedWorker(
      queue,
      async (job, _token, signal) => {
        begun += 1
        await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()))
        aborted[job.id as string] = nowMs()
        throw new Error('aborted')
      },
      { connection: connectionTo(redis), concurrency },
    )
    await worker.waitUntilReady()
  },
  /** How many jobs have begun. */
  begun: async (): Promise<number> => begun,
  /** When jobs were aborted since the last call, by id. */
  async takeAborted(): Promise<Readonly<Record<string, number>>> {
    const taken = aborted
    aborted = {}
    return taken
  },
  async close(): Promise<void> {
    await worker?.close()
  },
}

export type CancelWorkerMethods = typeof methods
