import type { Shape } from 'sluice'
import type { Bench } from '../figure.ts'
import type { System } from '../fleet/protocol.ts'
import { addJobs, makeQueue, removeQueue } from '../queues.ts'
import { redisCpuUs } from './redis-usage.ts'

export interface Drain {
  readonly perSecond: number
  readonly clientUs: number
  readonly redisUs: number
}

/**
 * Drains a backlog with one worker in a separate process. @param shape of the queue, default none. @param report
 * whether the worker reports itself
 */
export async function drainOnce(
  bench: Bench,
  system: System,
  concurrency: number,
  jobs: number,
  shape?: Shape,
  report = true,
): Promise<Drain> {
  const { fleet, client, redis } = bench
  const queue = await makeQueue(bench, system, 'drain', shape)
  await queue.pause()
  await addJobs(queue, jobs)
  const process = fleet.process(`drain ${system}`)
  await process.call('open', {
    system,
    queue: queue.name,
    redis,
    workers: 1,
    concurrency,
    jobMs: 0,
    expected: jobs,
    report,
  })
  const before = await redisCpuUs(client)
  await queue.resume()
  const { elapsedMs, cpuMs } = await process.call('drained', queue.name)
  const redisUs = (await redisCpuUs(client)) - before
  await process.call('close', queue.name)
  await removeQueue(queue)
  return { perSecond: (jobs / elapsedMs) * 1000, clientUs: (cpuMs * 1000) / jobs, redisUs: redisUs / jobs }
}
