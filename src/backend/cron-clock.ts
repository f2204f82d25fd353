import { defaultRepeatStrategy, type JobSchedulerJobOptions } from 'bullmq'

/**
 * If the clocks agree to within this, BullMQ's own result is kept; part of the difference is the round trip to Redis.
 */
const AGREEING_MS = 1000

/** The next iteration of a scheduler, as computed by BullMQ on the local clock. */
interface FoundIteration {
  readonly schedulerId: string
  readonly nextMs: number
  readonly jobOpts: JobSchedulerJobOptions
  /** Job id of the iteration that creates it; '' for the first. */
  readonly producerId: string
}

/**
 * The next time of a cron pattern on Redis's clock, and the options of its job. If the local clock
 * were ahead, each iteration would skip that much time.
 * @param redisMs Redis's time
 */
export async function onRedisClock(found: FoundIteration, redisMs: number): Promise<[number, JobSchedulerJobOptions]> {
  const { schedulerId, nextMs, jobOpts, producerId } = found
  const localMs = Date.now()
  const { repeat } = jobOpts
  if (!repeat?.pattern || Math.abs(localMs - redisMs) < AGREEING_MS) return [nextMs, jobOpts]
  const lastMs = Number(producerId.slice(producerId.lastIndexOf(':') + 1)) || 0
  const byPattern = await defaultRepeatStrategy(Math.max(localMs, lastMs), repeat)
  // A time that does not match the pattern means "at once".
  const next = byPattern === nextMs ? await defaultRepeatStrategy(Math.max(redisMs, lastMs), repeat) : redisMs
  if (next === undefined) return [nextMs, jobOpts]
  const millis = Math.ceil(next)
  return [millis, { ...jobOpts, jobId: `repeat:${schedulerId}:${millis}`, prevMillis: millis }]
}
