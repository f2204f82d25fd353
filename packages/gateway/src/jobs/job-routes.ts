import type { HttpResponse, Identity } from '../middleware.ts'
import type { GatewayQueue } from './gateway-queue.ts'
import { hasEnded } from './job-place.ts'
import { problem } from './request-problem.ts'
import { jobResponse, jsonResponse } from './responses.ts'

/** A job that the caller added. @throws RequestProblem 404, QueueUnavailableError */
export async function getJob(queue: GatewayQueue, id: string, caller: Identity | undefined): Promise<HttpResponse> {
  const place = (await queue.isOf(caller, id)) ? await queue.locate(id) : undefined
  if (!place) throw unknownJob()
  const ending = queue.rule.results && hasEnded(place.state) ? await queue.ending(id) : undefined
  return jobResponse(id, place, ending)
}

/** Removes a waiting job that the caller added. @throws RequestProblem 404, 409; QueueUnavailableError */
export async function deleteJob(queue: GatewayQueue, id: string, caller: Identity | undefined): Promise<HttpResponse> {
  const removal = (await queue.isOf(caller, id)) ? await queue.remove(id) : 'unknown'
  if (removal === 'removed') return { status: 204, headers: { 'cache-control': 'no-store' } }
  if (removal === 'unknown') throw unknownJob()
  throw problem(409, removal === 'ended' ? 'The job has ended.' : 'The job is already running.')
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
  return problem(404, 'There is no such job: it never came through here, was removed, or is not kept any more.')
}
