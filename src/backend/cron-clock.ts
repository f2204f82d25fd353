import { defaultRepeatStrategy, type JobSchedulerJobOptions } from 'bullmq'

/** Clocks that agree to this are left to BullMQ's own computation: a trip to Redis takes a part of it. */
const AGREEING_MS = 1000

/** The next iteration of a scheduler, as BullMQ found it on the local clock. */
export interface FoundIteration {
  readonly schedulerId: string
  readonly nextMs: number
  readonly jobOpts: JobSchedulerJobOptions
  /** Of the iteration that makes it; '' for the first. */
  readonly producerId: string
}

/**
 * The next time of a cron pattern on Redis's clock, and the options of its job. On a clock that is ahead each iteration
 * would skip as much.
 * @param redisMs Redis's time
 */
export async function onRedisClock(found: FoundIteration, redisMs: number): Promise<[number, JobSchedulerJobOptions]> {
  const { schedulerId, nextMs, jobOpts, producerId } = found
  const localMs = Date.now()
  const { repeat } = jobOpts
  if (!repeat?.pattern || Math.abs(localMs - redisMs) < AGREEING_MS) return [nextMs, jobOpts]
  const lastMs = Number(producerId.slice(producerId.lastIndexOf(':') + 1)) || 0
  const byPattern = await defaultRepeatStrategy(Math.max(localMs, lastMs), repeat)
  // What is no time of the pattern is to be made at once.
  const next = byPattern === nextMs ? await defaultRepeatStrategy(Math.max(redisMs, lastMs), repeat) : redisMs
  if (next === undefined) return [nextMs, jobOpts]
  const millis = Math.ceil(next)
  return [millis, { ...jobOpts, jobId: `repeat:${schedulerId}:${millis}`, prevMillis: millis }]
}
