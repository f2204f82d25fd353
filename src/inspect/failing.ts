import { addedEnds, byReason } from '../reports/recent-ends.ts'
import type { Failing, WorkerStatus } from './queue-status.ts'

/** A queue fails if at least this many attempts of the last minutes failed, and at least this share of them. */
const LEAST_FAILED = 5
const LEAST_SHARE = 0.1

/** From the workers' last reports about the preceding five minutes; undefined if too few attempts failed. */
export function failingOf(workers: readonly WorkerStatus[]): Failing | undefined {
  const { completed, failed, failedAttempts } = addedEnds(workers.map(({ recentEnds }) => recentEnds))
  const attempts = completed + failedAttempts
  if (failedAttempts < LEAST_FAILED || failedAttempts < LEAST_SHARE * attempts) return undefined
  const reasons = byReason(workers.flatMap(({ failureReasons }) => failureReasons))
  return { attempts, failedAttempts, failed, share: failedAttempts / attempts, reasons }
}
