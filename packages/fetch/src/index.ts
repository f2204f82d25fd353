export { type EgressAnswer, type EgressCall, type EgressFetch, egressFetch } from './egress-fetch.ts'
export {
  type FailedResponse,
  HttpResponseError,
  InvalidFetchOptionsError,
  InvalidRequestError,
  RefusedAddressError,
  RequestFailedError,
  RequestTimeoutError,
} from './errors.ts'
export type { EgressFetchOptions, Lookup } from './options.ts'
export type { EgressRequest, RequestingJob } from './request.ts'
export type { Method, Query, SecretHeader, TargetConfig } from './target.ts'
export { METHODS } from './target.ts'
