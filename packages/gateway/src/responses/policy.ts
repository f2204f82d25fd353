import { hash } from 'node:crypto'

/** What one limit allows, and what is left of it, as header fields report it. */
export interface Policy {
  /** The same in all responses; see {@link fieldName}. */
  readonly name: string
  /** Units that the window allows. Default: not reported. */
  readonly quota?: number | undefined
  /** Units that are left. Default: not reported. */
  readonly remaining?: number | undefined
  /** ms. Default: not reported. */
  readonly windowMs?: number | undefined
  /**
   * When more units are available than now (not: when all are), ms since 1970. The stored instant, so that successive
   * responses report the same one. Takes precedence over `resetMs`.
   */
  readonly resetAtMs?: number | undefined
  /** The same, ms from now. Default: not reported. */
  readonly resetMs?: number | undefined
  /** Now, ms since 1970, on the clock of the resets: Redis's. Default: the local one. */
  readonly clockMs?: number | undefined
  /** Default 'requests'. */
  readonly unit?: PolicyUnit | undefined
  /**
   * Whose quota it is. Strings are hashed, so they may be secret; bytes are sent as they are. See {@link partitionKey}.
   */
  readonly partitionKey?: string | Uint8Array | undefined
  /** A name for the limit that several routes share: `X-RateLimit-Bucket`. */
  readonly bucket?: string | undefined
}

/** The quota units of draft-ietf-httpapi-ratelimit-headers-10, section 3.1.2. */
export type PolicyUnit = 'requests' | 'content-bytes' | 'concurrent-requests'

/** The largest Integer of RFC 9651. */
const MAX_INTEGER = 999_999_999_999_999
/** 96 bits: enough that keys of two callers do not collide, and short enough for a field. */
const PARTITION_KEY_BYTES = 12

/** Units as they are reported: whole, rounded down, at least 0. */
export function wholeUnits(units: number): number {
  return Math.min(Math.max(0, Math.floor(units) || 0), MAX_INTEGER)
}

/** Seconds until more units are available, rounded up, at least 0; undefined if not reported. */
export function resetSeconds({ resetAtMs, resetMs, clockMs }: Policy, nowMs: number): number | undefined {
  const ms = resetAtMs === undefined ? resetMs : resetAtMs - (clockMs ?? nowMs)
  return ms === undefined ? undefined : wholeUnits(Math.ceil(ms / 1000))
}

/**
 * The window in seconds, rounded up: fields have no fractions of a second, and a rate must not look higher than it is.
 */
export function windowSeconds({ windowMs }: Policy): number | undefined {
  // Windows are computed from rates: 60,000.000001 ms is a minute.
  return windowMs === undefined || !(windowMs > 0) ? undefined : wholeUnits(Math.ceil(Math.round(windowMs) / 1000) || 1)
}

/**
 * `pk`: the first 12 bytes of the SHA-256 of the key in UTF-8. Callers that know their key can compute it beforehand;
 * others can learn the key from `pk` only by guessing it.
 */
export function partitionKey(key: string | Uint8Array): Uint8Array {
  return typeof key === 'string' ? hash('sha256', key, 'buffer').subarray(0, PARTITION_KEY_BYTES) : key
}

/** A name as fields can hold it: everything but printable ASCII is percent-encoded UTF-8. */
export function fieldName(name: string): string {
  return name.replaceAll(/[^\x20-\x7e]/gu, (character) =>
    Buffer.from(character).toString('hex').replaceAll(/../g, '%$&'),
  )
}

/** The policy closest to exhaustion: the one with the fewest units left, then the latest reset. */
export function tightest(policies: readonly Policy[], nowMs: number): Policy | undefined {
  if (policies.length < 2) return policies[0]
  const left = ({ remaining }: Policy) => remaining ?? Number.POSITIVE_INFINITY
  const takes = (policy: Policy) => resetSeconds(policy, nowMs) ?? 0
  return policies.toSorted((a, b) => left(a) - left(b) || takes(b) - takes(a))[0]
}
