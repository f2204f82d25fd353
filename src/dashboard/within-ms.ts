import { DashboardProblem } from './problem-error.ts'

/** The result of a promise, or an error when it takes longer. @throws DashboardProblem 503 */
export async function withinMs<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const problem = new DashboardProblem(503, `Redis did not answer within ${timeoutMs} ms`)
    timer = setTimeout(() => reject(problem), timeoutMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
