import { BodyTooLargeError, CallerGoneError } from '../body.ts'
import type { Entry, HttpRequest, HttpResponse, Middleware } from '../middleware.ts'
import { problemResponse } from '../responses/problem.ts'
import { NodeRequest } from './node-request.ts'

/** For a disconnected caller: only logs show it. (NGINX: 499 client closed request) */
export const GONE: HttpResponse = { status: 499, headers: {} }

export interface AdapterOptions {
  /** The longest body that the middleware may read. Bytes, default 1 MiB. */
  readonly maxBodyBytes?: number
}

/** Calls the middleware; answers overlong bodies, disconnected callers and requests with several Host fields itself. */
export async function enter(middleware: Middleware, request: HttpRequest): Promise<Entry> {
  if (request instanceof NodeRequest && request.hasSeveralHosts) return { response: severalHosts() }
  try {
    return await middleware.enter(request)
  } catch (error) {
    if (error instanceof CallerGoneError) return { response: GONE }
    if (error instanceof BodyTooLargeError) return { response: tooLarge(error) }
    throw error
  }
}

/** RFC 9112, section 3.2: the target of the request is ambiguous, and so may be where the next request begins. */
function severalHosts(): HttpResponse {
  const detail = 'The request has several Host fields.'
  return problemResponse({ status: 400, kind: 'about:blank', detail, headers: { connection: 'close' } })
}

/** Closes the connection: otherwise the rest of the body would have to be read before the next request. */
function tooLarge(error: BodyTooLargeError): HttpResponse {
  const headers = { connection: 'close' }
  return problemResponse({ status: 413, kind: 'about:blank', detail: error.message, headers })
}
