import { type Route, routeOf } from './buckets.ts'

/** Repeating them has no further effect. (RFC 9110, section 9.2.2) */
const IDEMPOTENT = ['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'TRACE']

/** What a call requests, as far as waiting and repeating depend on it. */
export interface Call {
  readonly url: string
  readonly method: string
  readonly route: Route
  readonly signal: AbortSignal | undefined
  /** Whether it may be sent again even if it may have been processed. */
  readonly idempotent: boolean
  /** Whether its body can be sent again; a stream cannot. */
  readonly repeatable: boolean
}

/**
 * Reads the arguments of `fetch` without consuming a body.
 * @throws TypeError as `fetch` does for an invalid URL or headers
 */
export function callOf(input: string | URL | Request, init: RequestInit = {}): Call {
  const request = typeof input === 'object' && 'url' in input ? input : undefined
  const url = new URL(request?.url ?? String(input), baseUrl())
  const method = (init.method ?? request?.method ?? 'GET').toUpperCase()
  const headers = new Headers(init.headers ?? request?.headers)
  const signal = init.signal === undefined ? request?.signal : init.signal
  const body = init.body === undefined ? request?.body : init.body
  return {
    url: url.href,
    method,
    route: routeOf(method, url),
    // A signal of its own: many calls may share one, and Node warns of more than ten listeners.
    signal: signal ? AbortSignal.any([signal]) : undefined,
    idempotent: IDEMPOTENT.includes(method) || headers.has('idempotency-key'),
    repeatable: !isStream(body),
  }
}

/** In browsers, paths are relative to the page. */
function baseUrl(): string | undefined {
  return (globalThis as { readonly location?: { readonly href: string } }).location?.href
}

function isStream(body: unknown): boolean {
  return typeof body === 'object' && body !== null && ('getReader' in body || Symbol.asyncIterator in body)
}
