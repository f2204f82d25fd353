import { checkCallOptions } from 'sluice/internal'
import { systemClock } from './clock.ts'
import { type GatewayClient, type GatewayClientOptions, HttpGatewayClient } from './gateway.ts'
import type { Fetch, PoliteFetchOptions } from './options.ts'
import { PoliteClient } from './polite-fetch.ts'

export { LimitExceededError } from 'sluice/internal'
export type { WaitReason } from './gate.ts'
export type {
  CallOptions,
  EnqueueAllOptions,
  EnqueueOptions,
  GatewayClient,
  GatewayClientOptions,
  JobTerms,
  NewGatewayJob,
} from './gateway.ts'
export type { EnqueuedJob, GatewayJob, GatewayJobState, GatewayMeter } from './gateway-answers.ts'
export {
  type BodyProblem,
  GatewayError,
  type GatewayProblem,
  GatewayRefusedError,
  InvalidGatewayCallError,
} from './gateway-errors.ts'
export type { Fetch, FetchWait, PoliteFetchOptions } from './options.ts'

/**
 * A `fetch` that obeys the limits of the downstream. It retries what was refused or failed, never before the time that
 * the answer gave, and finally returns the last answer whatever its status; it starts requests more slowly as a quota
 * runs out; requests that share a bucket wait together. Each instance has its own state: create one for each
 * credential.
 *
 * It throws what `fetch` throws, the reason of an aborted `signal`, a `TimeoutError` if no answer arrived in time,
 * and LimitExceededError if a request could not even start in time.
 * @throws InvalidInputError
 */
export function createPoliteFetch(options: PoliteFetchOptions = {}): Fetch {
  return new PoliteClient(options, systemClock).fetch
}

/** One instance for the whole program, with the defaults; see {@link createPoliteFetch}. */
export const fetchPolitely: Fetch = createPoliteFetch()

/**
 * A client of a gateway's queues. Each request that adds jobs has an Idempotency-Key, so that it may be repeated, as
 * the default fetch does after refusals and failures.
 *
 * ```ts
 * const jobs = createGatewayClient({ url: 'https://jobs.example.com', token })
 * const { id, startsAt } = await jobs.enqueue('emails', { to })
 * ```
 * @throws InvalidGatewayCallError, InvalidInputError
 */
export function createGatewayClient(options: GatewayClientOptions): GatewayClient {
  checkCallOptions('createGatewayClient', options, ['url', 'token', 'fetch'])
  return new HttpGatewayClient({ ...options, fetch: options.fetch ?? createPoliteFetch() })
}
