import { rangesOf } from '../limits/address.ts'
import type { Middleware } from '../middleware.ts'
import { problemResponse } from '../responses/problem.ts'

/**
 * Middleware for a server behind proxies that authenticate callers: requests from any other address get 403.
 *
 * @param proxies addresses, ranges ('10.0.0.0/8'), 'loopback', 'linklocal' or 'uniquelocal'
 * @throws InvalidInputError
 */
export function onlyFrom(proxies: readonly string[]): Middleware {
  const isProxy = rangesOf('proxies', proxies)
  const detail = 'requests are taken from trusted proxies only'
  return {
    enter: ({ remoteAddress }) =>
      remoteAddress !== undefined && isProxy(remoteAddress)
        ? {}
        : { response: problemResponse({ status: 403, kind: 'about:blank', detail }) },
  }
}
