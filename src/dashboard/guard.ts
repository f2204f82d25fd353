import type { FastifyRequest } from 'fastify'
import type { Access, Caller } from './access.ts'
import { SESSION_COOKIE } from './access.ts'
import { DashboardProblem } from './problem-error.ts'
import { checkSameOrigin } from './same-origin.ts'

const JSON_TYPE = /^application\/json *(;|$)/i

/**
 * Admits authorized callers.
 * @throws DashboardProblem 401, 403, 415 or 429
 */
export async function admit(request: FastifyRequest, access: Access): Promise<Caller> {
  // Another site cannot read the answer, but its requests would load this server.
  if (request.headers['sec-fetch-site'] === 'cross-site') {
    throw new DashboardProblem(403, 'another site may not ask')
  }
  const caller = await access.callerOf(request)
  if (isChange(request)) checkChange(request, caller.hasBearer)
  return caller
}

/**
 * A change has to come from the page itself, as JSON.
 * @throws DashboardProblem 403 or 415
 */
export function checkChange(request: FastifyRequest, hasBearer: boolean): void {
  const { headers, cookies } = request
  checkSameOrigin({
    fetchSite: headers['sec-fetch-site'] as string | undefined,
    origin: headers.origin,
    host: request.host,
    hasBearer,
    hasCookie: cookies[SESSION_COOKIE] !== undefined,
  })
  if (JSON_TYPE.test(headers['content-type'] ?? '')) return
  throw new DashboardProblem(415, 'expected Content-Type: application/json')
}

function isChange({ method }: FastifyRequest): boolean {
  return method !== 'GET' && method !== 'HEAD'
}
