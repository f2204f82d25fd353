import type { HttpRequest } from '../../../src/middleware.ts'

/** A request for functions of requests; whole ones come over sockets in other tests. */
export function requestOf({
  headers = {},
  ...fields
}: Partial<HttpRequest> & { headers?: Record<string, string> } = {}): HttpRequest {
  return {
    method: 'GET',
    url: '/',
    header: (name) => headers[name],
    remoteAddress: '203.0.113.7',
    body: async () => new Uint8Array(),
    signal: new AbortController().signal,
    raw: undefined,
    ...fields,
  }
}
