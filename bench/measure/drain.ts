import type { Shape } from 'sluice'
import type { Bench } from '../figure.ts'
import type { GroupSpec, System } from '../fleet/protocol.ts'
import { addJobs, makeQueue, type OptionsOf, removeQueue } from '../queues.ts'
import { redisCpuUs } from './redis-usage.ts'

export interface Drain {
  readonly perSecond: number
  readonly clientUs: number
  readonly redisUs: number
}

/** How a queue is drained. */
export interface Drained extends Pick<GroupSpec, 'report' | 'removeOnComplete'> {
  readonly concurrency: number
  readonly jobs: number
  /** Options of the jobs. */
  readonly opts?: OptionsOf
  /** Of Sluice's queue. Default none. */
  readonly shape?: Shape
}

/** Drains a backlog with one worker in a separate process. */
export async function drainOnce(bench: Bench, system: System, drained: Drained): Promise<Drain> {
  const { fleet, client, redis } = bench
  const { shape, jobs, opts, ...worker } = drained
  const queue = await makeQueue(bench, system, 'drain', shape)
  await queue.pause()
  await addJobs(queue, jobs, opts)
  const process = fleet.process(`drain ${system}`)
  await process.call('open', { system, queue: queue.name, redis, workers: 1, jobMs: 0, expected: jobs, ...worker })
  const before = await redisCpuUs(client)
  await queue.resume()
  const { elapsedMs, cpuMs } = await process.call('drained', queue.name)
  const redisUs = (await redisCpuUs(client)) - before
  await process.call('close', queue.name)
  await removeQueue(queue)
  return { perSecond: (jobs / elapsedMs) * 1000, clientUs: (cpuMs * 1000) / jobs, redisUs: redisUs / jobs }
}
