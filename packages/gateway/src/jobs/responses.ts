import type { HttpResponse } from '../middleware.ts'
import { retryAfterSeconds } from '../responses/retry-after.ts'
import { hasEnded, type JobPlace } from './job-place.ts'
import type { Ending } from './result-events.ts'

/** The longest poll interval suggested to clients that wait for a job, ms. */
const MAX_POLL_MS = 60_000

/** A response of JSON that must not be cached. @param headers further fields; the response takes over the object */
export function jsonResponse(status: number, value: unknown, headers: Record<string, string> = {}): HttpResponse {
  // No spread: it costs as much as encoding a small response.
  headers['content-type'] = 'application/json'
  headers['cache-control'] = 'no-store'
  return { status, headers, body: JSON.stringify(value) }
}

/** The current state of a job. @param ending only if it may be shown */
export function jobResponse(id: string, place: JobPlace, ending?: Ending, nowMs = Date.now()): HttpResponse {
  return jsonResponse(200, { id, ...place, ...ending }, hasEnded(place.state) ? {} : pollHint(place, nowMs))
}

/** A job that ended while its caller waited. */
export function endedResponse(id: string, ending: Ending, waitedS: number): HttpResponse {
  return jsonResponse(200, { id, ...ending }, { 'preference-applied': `wait=${waitedS}` })
}

/** `Retry-After` of a response that is no refusal: when to poll again. */
function pollHint({ startsAt }: JobPlace, nowMs: number): Record<string, string> {
  const untilStartMs = (startsAt?.getTime() ?? nowMs) - nowMs
  return { 'retry-after': String(retryAfterSeconds(Math.min(untilStartMs, MAX_POLL_MS))) }
}
