import { orLate } from 'sluice/internal'
import { ProblemError } from 'sluice-gateway/internal'

/** The result of a promise, or an error when it takes longer. @throws ProblemError 503 */
export function withinMs<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
  return orLate(timeoutMs, promise, () => new ProblemError(503, `Redis did not answer within ${timeoutMs} ms`))
}
