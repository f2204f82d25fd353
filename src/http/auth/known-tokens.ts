import { timingSafeEqual } from 'node:crypto'
import type { Identity } from '../door.ts'
import { MIN_TOKEN_BYTES, type TokenEntry, tokenHash } from './token-entry.ts'

/** Longer texts are refused without hashing. */
const MAX_TOKEN_BYTES = 1024

interface Known {
  readonly hash: Buffer
  readonly identity: Identity
}

/** Known tokens and their holders. Only hashes of the tokens are kept. */
export class KnownTokens {
  readonly #known: readonly Known[]

  constructor(entries: readonly TokenEntry[]) {
    this.#known = entries.map((entry) => ({ hash: Buffer.from(entry.sha256, 'hex'), identity: identityOf(entry) }))
  }

  get size(): number {
    return this.#known.length
  }

  /** The holder of a token. All entries are compared, each in constant time, so that timing reveals nothing. */
  holderOf(token: string): Identity | undefined {
    const bytes = Buffer.byteLength(token)
    if (bytes < MIN_TOKEN_BYTES || bytes > MAX_TOKEN_BYTES) return undefined
    const hash = tokenHash(token)
    let holder: Identity | undefined
    for (const known of this.#known) if (timingSafeEqual(known.hash, hash)) holder = known.identity
    return holder
  }
}

function identityOf({ name, tier, trafficClass, queues }: TokenEntry): Identity {
  return {
    name,
    ...(tier !== undefined && { tier }),
    ...(trafficClass !== undefined && { trafficClass }),
    ...(queues !== undefined && { queues }),
  }
}
