import type { ShapedQueue } from '../index.ts'
import { intervalUs, parseRate } from '../rate.ts'
import type { QueueFacts } from './liveness.ts'

/** Looks at a queue for the liveness of its workers. Rejects when Redis does not answer. */
export async function readQueueFacts(queue: Pick<ShapedQueue, 'meter'>): Promise<QueueFacts> {
  const { waiting, active, paused, pausedUntil, rate, shape } = await queue.meter()
  return {
    waiting,
    paused: paused || pausedUntil !== undefined,
    full: active >= (shape?.concurrency ?? Number.POSITIVE_INFINITY),
    intervalMs: rate === undefined ? 0 : intervalUs(parseRate(rate)) / 1000,
    burst: shape?.burst ?? 1,
  }
}
