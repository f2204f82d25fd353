import type { HttpResponse, Identity } from '../middleware.ts'
import { ProblemError } from '../responses/problem.ts'
import { retryAfterSeconds } from '../responses/retry-after.ts'
import type { GatewayQueue } from './gateway-queue.ts'
import { hasEnded, type JobPlace } from './job-place.ts'
import type { Ending } from './result-events.ts'

/** The longest poll interval suggested to clients that wait for a job, ms. */
const MAX_POLL_MS = 60_000

/** A job that the caller added. @throws ProblemError 404, QueueUnavailableError */
export async function getJob(queue: GatewayQueue, id: string, caller: Identity | undefined): Promise<HttpResponse> {
  const place = (await queue.isOf(caller, id)) ? await queue.locate(id) : undefined
  if (!place) throw unknownJob()
  const ending = queue.rule.results && hasEnded(place.state) ? await queue.ending(id) : undefined
  return jobResponse(id, place, ending)
}

/**
 * Removes a waiting job that the caller added, or has its run aborted.
 * @throws ProblemError 404, 409; QueueUnavailableError
 */
export async function deleteJob(queue: GatewayQueue, id: string, caller: Identity | undefined): Promise<HttpResponse> {
  const outcome = (await queue.isOf(caller, id)) ? await queue.cancel(id) : 'unknown'
  if (outcome === 'removed') return { status: 204, headers: { 'cache-control': 'no-store' } }
  if (outcome === 'aborting' || outcome === 'stalled') return jsonResponse(202, { id, state: 'active' })
  if (outcome === 'unknown') throw unknownJob()
  throw new ProblemError(409, outcome === 'ended' ? 'The job has ended.' : 'The job belongs to a scheduler.')
}

/**
 * What callers may know of the state of a queue: not who changed it, or why.
 * @throws QueueUnavailableError
 */
export async function getMeter(queue: GatewayQueue): Promise<HttpResponse> {
  const meter = await queue.meter()
  const { at, depth, capacity, waiting, delayed, active, paused, pausedUntil, level, nextDepartureAt } = meter
  const { rate, shape, cause, refusedTotal } = meter
  const places = { depth, capacity, waiting, delayed, active, refusedTotal }
  const departures = { rate, burst: shape?.burst, level, cause, nextDepartureAt, paused, pausedUntil }
  return jsonResponse(200, { at, ...places, ...departures })
}

function unknownJob() {
  return new ProblemError(
    404,
    'There is no such job: it never came through here, was removed, or is not kept any more.',
  )
}

/** A response of JSON that must not be cached. @param headers further fields; the response takes over the object */
export function jsonResponse(status: number, value: unknown, headers: Record<string, string> = {}): HttpResponse {
  // No spread: it costs as much as encoding a small response.
  headers['content-type'] = 'application/json'
  headers['cache-control'] = 'no-store'
  return { status, headers, body: JSON.stringify(value) }
}

/** The current state of a job. @param ending only if it may be shown */
function jobResponse(id: string, place: JobPlace, ending?: Ending, nowMs = Date.now()): HttpResponse {
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
