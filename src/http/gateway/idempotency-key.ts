import { createHash } from 'node:crypto'
import { parseItem } from 'structured-headers'
import type { Identity } from '../door.ts'
import { problem } from './request-problem.ts'

const MAX_LENGTH = 128
/** What many clients send instead of a String: a UUID, a ULID. */
const BARE = /^[\w.~+/=:-]+$/

/**
 * The field Idempotency-Key: a String of RFC 9651 (draft-ietf-httpapi-idempotency-key-header-07, section 2.1), at most
 * 128 characters. The same characters without quotes are the same key, since many clients send it that way.
 * @throws RequestProblem 400
 */
export function readIdempotencyKey(field: string | undefined, required: boolean): string | undefined {
  if (field === undefined) {
    if (!required) return undefined
    throw problem(400, 'This queue needs an Idempotency-Key, such as "8e03978e-40d5-43dd-bc93-6894a57f9324".')
  }
  const key = BARE.test(field) ? field : stringOf(field)
  if (key !== undefined && key.length >= 1 && key.length <= MAX_LENGTH) return key
  throw problem(400, `The Idempotency-Key is not one String of RFC 9651 with 1 to ${MAX_LENGTH} characters.`)
}

/** A caller's key as it is stored in Redis: equal keys of two callers are unrelated. */
export function scopedKey(identity: Identity | undefined, key: string): string {
  // JSON keeps the parts apart.
  return sha256(JSON.stringify([identity?.name ?? null, key]))
}

/** The content of a request, byte by byte. */
export function fingerprintOf(body: Uint8Array): string {
  return sha256(body)
}

function stringOf(field: string): string | undefined {
  try {
    const [value] = parseItem(field)
    return typeof value === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

function sha256(bytes: string | Uint8Array): string {
  return createHash('sha256').update(bytes).digest('base64url')
}
