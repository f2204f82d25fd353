import { createHash, randomBytes } from 'node:crypto'

/** Minimum length of a token in bytes, and the number of random bytes in a new one. */
export const MIN_TOKEN_BYTES = 32

/** One token of a token file: its hash, and what its holder may do. */
export interface TokenEntry {
  /** The caller: it appears in logs and in keys of limits, and is not a secret. */
  readonly name: string
  /** SHA-256 of the token, 64 hexadecimal digits. */
  readonly sha256: string
  /** The queues that it may use; undefined means all. */
  readonly queues?: readonly string[] | undefined
  readonly tier?: string | undefined
  /** The class used for shedding. */
  readonly trafficClass?: string | undefined
}

/** SHA-256 of a token. Tokens are random and long, so they need no salt and no slow hash. */
export function tokenHash(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

/** Generates a token of 256 random bits. The token is only for its holder; the entry goes into the token file. */
export function newToken(name: string): { readonly token: string; readonly entry: TokenEntry } {
  const token = `sluice_${randomBytes(MIN_TOKEN_BYTES).toString('base64url')}`
  return { token, entry: { name, sha256: tokenHash(token).toString('hex') } }
}
