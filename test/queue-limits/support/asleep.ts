import { setTimeout as delay } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { ShapedQueue } from '../../../src/index.ts'

/**
 * Resolves once so many workers of the queue sleep for a minute or more: no matter whether a call for jobs or the end of
 * one told them that a limit is met, and nothing else than news wakes them. The shape has to let jobs be late: one that
 * goes back leaves its worker asleep for a moment, as if it had run.
 */
export async function asleep(queue: ShapedQueue, client: Redis, workers = 1): Promise<void> {
  const key = queue.toKey('meta:sleepers')
  for (;;) {
    const [seconds] = await client.time()
    const sleepers = await client.zcount(key, (Number(seconds) + 60) * 1_000_000, '+inf')
    const { active } = await queue.getJobCounts('active')
    if (sleepers >= workers && active === 0) return
    await delay(5)
  }
}
