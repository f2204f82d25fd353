import { timingSafeEqual } from 'node:crypto'
import { type Stats, statSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { checkArgument, checkCallOptions } from 'sluice/internal'
import type { Entry, HttpRequest, HttpResponse, Identity, Middleware } from '../middleware.ts'
import { problemResponse } from '../responses/problem.ts'
import { MIN_TOKEN_BYTES, type TokenEntry, tokenHash } from './token-entry.ts'
import { readTokenFile } from './token-file.ts'

const BEARER = /^Bearer +([A-Za-z0-9\-._~+/]+=*)$/i
const DEFAULT_CHECK_INTERVAL_MS = 2000
const NONE_IF_GONE = { throwIfNoEntry: false } as const

/** The result of reading a token file again. */
export type TokenReload = { readonly tokens: number } | { readonly error: unknown }

export interface TokensOptions {
  /** The token file: a JSON list of `{ name, sha256, queues?, tier?, trafficClass? }`. */
  readonly file: string
  /** How often the file is checked for changes. ms; 0: never. Default 2000. */
  readonly checkIntervalMs?: number
  /** Called after each reload. After an error the previous tokens stay in force. */
  readonly onReload?: (result: TokenReload) => void
}

/** Lets requests with a token from the file pass, and responds to all others with 401. */
export interface TokenMiddleware extends Middleware {
  /** Reads the file again now. @returns false if it is invalid: the previous tokens stay in force */
  reload(): boolean
  /** Stops checking the file. */
  close(): void
}

/**
 * Middleware that requires a bearer token (RFC 6750) and puts its holder into `request.identity`. The file holds
 * hashes, not tokens; a change takes effect without a restart.
 *
 * @throws InvalidTokenFileError when the file is invalid at the start.
 */
export function tokens(options: TokensOptions): TokenMiddleware {
  checkCallOptions('tokens', options, ['file', 'checkIntervalMs', 'onReload'])
  checkArgument(typeof options.file === 'string', 'tokens: file', 'the path of the token file', options.file)
  const { file, checkIntervalMs = DEFAULT_CHECK_INTERVAL_MS, onReload } = options
  // Taken before the file is read, so that a change in between is noticed, at worst by one reload too many.
  let version = versionOf(statSync(file, NONE_IF_GONE))
  let known = new KnownTokens(readTokenFile(file))
  const reload = (): boolean => {
    version = versionOf(statSync(file, NONE_IF_GONE))
    try {
      known = new KnownTokens(readTokenFile(file))
    } catch (error) {
      onReload?.({ error })
      return false
    }
    onReload?.({ tokens: known.size })
    return true
  }
  // Checked by path: editors and mounted secrets replace the file instead of writing to it.
  const look = async () => {
    const now = versionOf(await stat(file).catch(() => undefined))
    if (!closed && now !== version) reload()
  }
  let closed = false
  const looking = checkIntervalMs > 0 ? setInterval(look, checkIntervalMs).unref() : undefined
  return {
    enter: (request) => enter(request, known),
    reload,
    close() {
      closed = true
      clearInterval(looking)
    },
  }
}

function versionOf(stats: Stats | undefined): string {
  return stats ? `${stats.mtimeMs} ${stats.ino} ${stats.size}` : 'gone'
}

function enter(request: HttpRequest, known: KnownTokens): Entry {
  const authorization = request.header('authorization')
  if (authorization === undefined) {
    return {
      response: unauthorized('a bearer token is needed: Authorization: Bearer <token>', 'Bearer realm="sluice"'),
    }
  }
  const holder = known.holderOf(BEARER.exec(authorization.trim())?.[1] ?? '')
  if (!holder) {
    return { response: unauthorized('the token is not known', 'Bearer realm="sluice", error="invalid_token"') }
  }
  request.identity = holder
  return {}
}

function unauthorized(detail: string, challenge: string): HttpResponse {
  return problemResponse({ status: 401, kind: 'about:blank', detail, headers: { 'www-authenticate': challenge } })
}

/** Longer tokens are refused without hashing. */
const MAX_TOKEN_BYTES = 1024

interface Known {
  readonly hash: Buffer
  readonly identity: Identity
}

/** Known tokens and their holders. Only hashes of the tokens are kept. */
class KnownTokens {
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
