import {
  checkCallOptions,
  checkFields,
  type FieldCheck,
  InvalidInputError,
  numberFrom,
  wholeFrom,
} from 'sluice/internal'
import type { WaitReason } from './gate.ts'

/** A function that is called like the global `fetch`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

/** A request that does not start immediately. */
export interface FetchWait {
  /** How long, ms, as far as is known now: later answers may extend it, and other requests may be ahead in line. */
  readonly waitMs: number
  /** The downstream said so; its quota runs out; another request probes first; the request's own backoff. */
  readonly reason: WaitReason
  /** The origin, or the origin and the downstream's name for the bucket. */
  readonly bucket: string
  /** Which attempt of the request waits, from 1. */
  readonly attempt: number
}

export interface PoliteFetchOptions {
  /** Sends the requests. Default: the global `fetch`. Its own retries must be off. */
  readonly fetch?: Fetch
  /** The most times a request is sent, the first included. Default 5. */
  readonly attempts?: number
  /** The backoff is random, up to `min(capMs, baseMs × 2^(attempt − 1))`. ms, default 500. */
  readonly baseMs?: number
  /** The longest backoff. ms, default 20,000. */
  readonly capMs?: number
  /** The longest that a call may take until the headers of its answer arrive, waits included. ms, default 300,000. */
  readonly timeoutMs?: number
  /** The share of a limit at which requests are spread over the time to the reset: 0 (never) to 1. Default 0.2. */
  readonly slowBelow?: number
  /** How many buckets are remembered. Default 1,000. */
  readonly maxBuckets?: number
  /** Called with `{ waitMs, reason, bucket, attempt }` for each attempt that waits. An error in it rejects the call. */
  readonly onWait?: (wait: FetchWait) => void
}

export type ResolvedOptions = Required<Omit<PoliteFetchOptions, 'onWait'>> & Pick<PoliteFetchOptions, 'onWait'>

// Looked up at each call, so that a later replacement of the global one is used.
const globalFetch: Fetch = (input, init) => globalThis.fetch(input, init)

const MS = numberFrom(0, 'of ms')
const FUNCTION: FieldCheck = { expected: 'a function', ok: (value) => typeof value === 'function' }

const CHECKS: Readonly<Record<keyof PoliteFetchOptions, FieldCheck>> = {
  fetch: FUNCTION,
  attempts: wholeFrom(1),
  ...{ baseMs: MS, capMs: MS, timeoutMs: MS },
  slowBelow: { expected: 'a number from 0 to 1', ok: (value) => MS.ok(value) && (value as number) <= 1 },
  maxBuckets: wholeFrom(1),
  onWait: FUNCTION,
}

/**
 * Validates the options and fills in defaults.
 * @throws InvalidInputError
 */
export function resolveOptions(options: PoliteFetchOptions): ResolvedOptions {
  checkCallOptions('createPoliteFetch', options, Object.keys(CHECKS))
  checkFields(options, CHECKS, InvalidInputError)
  const { fetch = globalFetch, attempts = 5, baseMs = 500, capMs = 20_000, timeoutMs = 300_000 } = options
  const { slowBelow = 0.2, maxBuckets = 1000, onWait } = options
  return { fetch, attempts, baseMs, capMs, timeoutMs, slowBelow, maxBuckets, ...(onWait && { onWait }) }
}
