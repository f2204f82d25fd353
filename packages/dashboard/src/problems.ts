import { failureKind, InvalidInputError, orLate, QueueFullError, QueueUnavailableError } from 'sluice/internal'
import type { HttpResponse } from 'sluice-gateway'
import { ProblemError, problemResponse } from 'sluice-gateway/internal'

/** The result of a promise, or an error when it takes longer. @throws ProblemError 503 */
export function withinMs<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
  return orLate(timeoutMs, promise, () => new ProblemError(503, `Redis did not answer within ${timeoutMs} ms`))
}

/** Why Redis does not serve, by its error or ioredis's, in the words of the page. */
const CAUSES: readonly (readonly [error: RegExp, words: string])[] = [
  [/^LOADING\b/, 'Redis is loading its data'],
  [/^BUSY\b/, 'Redis is busy with a script'],
  [/^(NOAUTH|WRONGPASS|NOPERM)\b/, 'Redis refuses the user of this dashboard'],
  [/^MASTERDOWN\b/, 'Redis is a replica that has lost its master'],
  [/^READONLY\b/, 'Redis is a replica, which takes no writes'],
  [/^OOM\b/, 'Redis refuses writes: its memory is full'],
  [/^MISCONF\b/, 'Redis refuses writes: its disk fails'],
  [/^NOREPLICAS\b/, 'Redis refuses writes: too few replicas are in step'],
  [/^(CLUSTERDOWN|TRYAGAIN|MOVED|ASK)\b|Cluster|slots cache|startup nodes/, 'The Redis cluster does not serve now'],
  [/timed out|is silent|ETIMEDOUT/i, 'Redis does not answer'],
]

/** For callers: the message of Redis or the system would name hosts. */
export function redisTrouble(error: unknown): string {
  if (error instanceof ProblemError) return error.message
  const { message } = error as Error
  return CAUSES.find(([pattern]) => pattern.test(message))?.[1] ?? 'Redis cannot be reached'
}

const RETRY_MS = 2000

/**
 * The response to an error; undefined for an internal one, which becomes a 500. 422 for what can never work, 429
 * for a full queue, 503 where Redis does not answer.
 */
export function errorResponse(error: unknown, changes: boolean): HttpResponse | undefined {
  if (error instanceof ProblemError) return problemResponse(error.terms)
  if (!(error instanceof Error)) return undefined
  if (error instanceof InvalidInputError) {
    return problemResponse({ status: 422, kind: 'about:blank', detail: error.message })
  }
  if (error instanceof QueueFullError) {
    const { message: detail, retryAfterMs, depth, capacity } = error
    return problemResponse({ status: 429, kind: 'quota-exceeded', detail, retryAfterMs, extra: { depth, capacity } })
  }
  if (error instanceof QueueUnavailableError || failureKind(error)) return unavailable(error, changes)
  const { statusCode, code } = error as { statusCode?: number; code?: string }
  if (statusCode === undefined || statusCode < 400 || statusCode >= 500) return undefined
  return problemResponse({
    status: statusCode,
    kind: 'about:blank',
    detail: `refused: ${code ?? 'the request is wrong'}`,
  })
}

function unavailable(error: Error, changes: boolean): HttpResponse {
  const state = redisTrouble(error)
  const detail = changes ? `${state}; a change may have been made nevertheless` : state
  return problemResponse({ status: 503, kind: 'about:blank', detail, retryAfterMs: RETRY_MS })
}
