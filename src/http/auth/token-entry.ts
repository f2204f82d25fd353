import { createHash, randomBytes } from 'node:crypto'

/** Bytes that a token has at least: what is drawn for a new one. */
export const MIN_TOKEN_BYTES = 32

/** One token as it stands in a token file: its hash, and what its holder may do. */
export interface TokenEntry {
  /** Who calls: goes into logs and keys of limits, and is no secret. */
  readonly name: string
  /** SHA-256 of the token, 64 hexadecimal digits. */
  readonly sha256: string
  /** The queues that it may use; undefined: all. */
  readonly queues?: readonly string[] | undefined
  readonly tier?: string | undefined
  /** The class that shedding goes by. */
  readonly trafficClass?: string | undefined
}

/** SHA-256 of a token. A token is random and long, so that no salt and no slow hash are needed. */
export function tokenHash(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

/** Draws a token of 256 random bits. The token is for its holder alone; the entry is for the token file. */
export function newToken(name: string): { readonly token: string; readonly entry: TokenEntry } {
  const token = `sluice_${randomBytes(MIN_TOKEN_BYTES).toString('base64url')}`
  return { token, entry: { name, sha256: tokenHash(token).toString('hex') } }
}
