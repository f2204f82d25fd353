import { InvalidInputError, QueueUnavailableError } from '../errors.ts'
import type { Answer } from '../http/door.ts'
import { problemAnswer } from '../http/responses/problem.ts'
import { failureKind } from '../redis/failures.ts'
import { DashboardProblem } from './problem-error.ts'

const RETRY_MS = 2000

/**
 * The answer to an error; undefined for an internal one, which becomes a 500. 422 for what can never work, 503 where
 * Redis does not answer.
 */
export function errorAnswer(error: unknown): Answer | undefined {
  if (error instanceof DashboardProblem) return problemAnswer(error.terms)
  if (!(error instanceof Error)) return undefined
  if (error instanceof InvalidInputError) {
    return problemAnswer({ status: 422, kind: 'about:blank', detail: error.message })
  }
  if (error instanceof QueueUnavailableError || failureKind(error)) return unavailable()
  const { statusCode, code } = error as { statusCode?: number; code?: string }
  if (statusCode === undefined || statusCode < 400 || statusCode >= 500) return undefined
  return problemAnswer({
    status: statusCode,
    kind: 'about:blank',
    detail: `refused: ${code ?? 'the request is wrong'}`,
  })
}

/** Without the message of Redis or the system, which names hosts. */
function unavailable(): Answer {
  const detail = 'Redis can not be reached, or can not serve now; a change may have been made nevertheless'
  return problemAnswer({ status: 503, kind: 'about:blank', detail, retryAfterMs: RETRY_MS })
}
