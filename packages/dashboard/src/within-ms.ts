import { orLate } from 'sluice/internal'
import { DashboardProblem } from './problem-error.ts'

/** The result of a promise, or an error when it takes longer. @throws DashboardProblem 503 */
export function withinMs<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
  return orLate(timeoutMs, promise, () => new DashboardProblem(503, `Redis did not answer within ${timeoutMs} ms`))
}
