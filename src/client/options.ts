import { InvalidInputError } from '../errors.ts'
import type { WaitReason } from './gate.ts'

/** Thrown for an option of `createPoliteFetch` that can never work; says which, what was expected and what came. */
export class InvalidPoliteFetchOptionError extends InvalidInputError {}

/** What is called like the global `fetch`. */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>

/** A request that does not start at once. */
export interface FetchWait {
  /** How long, ms, as far as is known now: later answers may make it longer, and others may be before it in line. */
  readonly waitMs: number
  /** The other side said so; its quota runs out; another request probes first; the request's own backoff. */
  readonly reason: WaitReason
  /** The origin, or the origin and the name that the other side gave to the bucket. */
  readonly bucket: string
  /** Which attempt of the request waits, from 1. */
  readonly attempt: number
}

export interface PoliteFetchOptions {
  /** What sends the requests. Default: the global `fetch`. Its own repeats have to be off. */
  readonly fetch?: Fetch
  /** How often a request is sent at most, the first time with it. Default 5. */
  readonly attempts?: number
  /** Backoff is anything between nothing and `min(capMs, baseMs × 2^attempt)`. ms, default 500. */
  readonly baseMs?: number
  /** ms, default 20,000. */
  readonly capMs?: number
  /**
   * How long a call may take in all until the headers of its answer are there: waits and attempts together. A wait that
   * would be longer is not begun. ms, default 300,000.
   */
  readonly timeoutMs?: number
  /** Requests are spread over the time to the reset once so much of a limit is left: 0 (never) to 1. Default 0.2. */
  readonly slowBelow?: number
  /** How many buckets are remembered; the one that was used longest ago is forgotten. Default 1,000. */
  readonly maxBuckets?: number
  /** Called when a request does not start at once; once for each attempt. What it throws rejects the call. */
  readonly onWait?: (wait: FetchWait) => void
}

export type ResolvedOptions = Required<Omit<PoliteFetchOptions, 'onWait'>> & Pick<PoliteFetchOptions, 'onWait'>

// As late as possible: what is put in the place of the global one afterwards is used.
const globalFetch: Fetch = (input, init) => globalThis.fetch(input, init)

const isMs = (value: unknown) => Number.isFinite(value) && (value as number) >= 0
const isWhole = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 1
const isShare = (value: unknown) => typeof value === 'number' && value >= 0 && value <= 1
const isFunction = (value: unknown) => typeof value === 'function'

const CHECKS: Readonly<Record<keyof PoliteFetchOptions, readonly [expected: string, ok: (value: unknown) => boolean]>> =
  {
    fetch: ['a function', isFunction],
    attempts: ['a whole number >= 1', isWhole],
    baseMs: ['a number of ms >= 0', isMs],
    capMs: ['a number of ms >= 0', isMs],
    timeoutMs: ['a number of ms >= 0', isMs],
    slowBelow: ['a number from 0 to 1', isShare],
    maxBuckets: ['a whole number >= 1', isWhole],
    onWait: ['a function', isFunction],
  }

/**
 * Fills and checks.
 * @throws InvalidPoliteFetchOptionError
 */
export function resolveOptions(options: PoliteFetchOptions): ResolvedOptions {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new InvalidPoliteFetchOptionError(`expected an object of options; got ${shown(options)}`)
  }
  for (const [name, value] of Object.entries(options)) {
    const check = CHECKS[name as keyof PoliteFetchOptions]
    if (!check) {
      throw new InvalidPoliteFetchOptionError(`${name} is no option: expected one of ${Object.keys(CHECKS).join(', ')}`)
    }
    const [expected, ok] = check
    if (value !== undefined && !ok(value)) {
      throw new InvalidPoliteFetchOptionError(`${name} must be ${expected}; got ${shown(value)}`)
    }
  }
  const { fetch = globalFetch, attempts = 5, baseMs = 500, capMs = 20_000, timeoutMs = 300_000 } = options
  const { slowBelow = 0.2, maxBuckets = 1000, onWait } = options
  return { fetch, attempts, baseMs, capMs, timeoutMs, slowBelow, maxBuckets, ...(onWait && { onWait }) }
}

function shown(value: unknown): string {
  // A bigint is nothing that JSON knows.
  return typeof value === 'object' || typeof value === 'string' ? JSON.stringify(value) : String(value)
}
