import type { Job } from 'bullmq'
import type { ShapedJobsOptions } from '../admission/job-options.ts'
import { RunTimeoutError } from '../errors.ts'
import { MAX_TIMER_MS } from '../max-timer.ts'

/**
 * Watches a run of a job that has `runTimeoutMs`. An option that a foreign producer has stored may be no time: it is ignored.
 * @param abort called once the run has taken too long
 * @returns stops that
 */
export function onRunTimeout(
  { id, opts }: Pick<Job, 'id' | 'opts'>,
  abort: (error: RunTimeoutError) => void,
): () => void {
  const { runTimeoutMs } = opts as ShapedJobsOptions
  if (typeof runTimeoutMs !== 'number' || !(runTimeoutMs > 0 && runTimeoutMs <= MAX_TIMER_MS)) return () => {}
  const timer = setTimeout(() => abort(new RunTimeoutError(id as string, runTimeoutMs)), runTimeoutMs)
  return () => clearTimeout(timer)
}
