import type { FastifyRequest } from 'fastify'
import { ProblemError } from 'sluice-gateway/internal'
import { type Access, type Caller, SESSION_COOKIE } from './access.ts'

const JSON_TYPE = /^application\/json *(;|$)/i

/**
 * Admits authorized callers.
 * @throws ProblemError 401, 403, 415 or 429
 */
export async function admit(request: FastifyRequest, access: Access): Promise<Caller> {
  // Another site cannot read the response, but its requests would load this server.
  if (request.headers['sec-fetch-site'] === 'cross-site') {
    throw new ProblemError(403, 'cross-site requests are refused')
  }
  const caller = await access.callerOf(request)
  if (isChange(request)) checkChange(request, caller.hasBearer)
  return caller
}

/**
 * A change has to come from the page itself, as JSON.
 * @throws ProblemError 403 or 415
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
  throw new ProblemError(415, 'expected Content-Type: application/json')
}

function isChange({ method }: FastifyRequest): boolean {
  return method !== 'GET' && method !== 'HEAD'
}

/** The origin of a request, by its headers. */
export interface Provenance {
  /** `Sec-Fetch-Site`: set by browsers; a page cannot set it. (W3C Fetch Metadata) */
  readonly fetchSite: string | undefined
  readonly origin: string | undefined
  /** The requested host, with its port. */
  readonly host: string | undefined
  /** Whether this request carries a bearer token, which a foreign page cannot make a browser send. */
  readonly hasBearer: boolean
  readonly hasCookie: boolean
}

/**
 * Refuses requests that another site may have made a browser send: `Sec-Fetch-Site` has to be `same-origin`; where a
 * browser does not send it, `Origin` has to be this host. (OWASP Cross-Site Request Forgery Prevention Cheat Sheet)
 * @throws ProblemError 403
 */
export function checkSameOrigin(request: Provenance): void {
  if (isSameOrigin(request)) return
  const given = request.fetchSite ?? request.origin ?? 'neither Sec-Fetch-Site nor Origin'
  throw new ProblemError(403, `changes are accepted only from this page; got ${JSON.stringify(given.slice(0, 200))}`)
}

function isSameOrigin({ fetchSite, origin, host, hasBearer, hasCookie }: Provenance): boolean {
  const isProgram = hasBearer && !hasCookie
  if (fetchSite !== undefined) return fetchSite === 'same-origin' || (fetchSite === 'none' && isProgram)
  if (origin !== undefined) return isOriginOf(origin, host)
  return isProgram
}

/** The scheme is ignored: behind a proxy that terminates TLS it is unknown here. */
function isOriginOf(origin: string, host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(origin)) return false
  const { protocol, host: given } = new URL(origin)
  const own = `${protocol}//${host}`
  return /^https?:$/.test(protocol) && URL.canParse(own) && given !== '' && given === new URL(own).host
}
