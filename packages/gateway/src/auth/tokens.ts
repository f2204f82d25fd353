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
  const store = new TokenStore(options)
  return { enter: (request) => enter(request, store), reload: () => store.reload(), close: () => store.close() }
}

/** The tokens of a file, as long as it is watched. Only their hashes are kept. */
export class TokenStore {
  readonly #file: string
  readonly #onReload: TokensOptions['onReload']
  readonly #looking: NodeJS.Timeout | undefined
  #version: string
  #known: readonly Known[]
  #closed = false

  /** @throws InvalidInputError, InvalidTokenFileError */
  constructor(options: TokensOptions) {
    checkCallOptions('tokens', options, ['file', 'checkIntervalMs', 'onReload'])
    checkArgument(typeof options.file === 'string', 'tokens: file', 'the path of the token file', options.file)
    const { file, checkIntervalMs = DEFAULT_CHECK_INTERVAL_MS, onReload } = options
    this.#file = file
    this.#onReload = onReload
    // Taken before the file is read, so that a change in between is noticed, at worst by one reload too many.
    this.#version = versionOf(statSync(file, NONE_IF_GONE))
    this.#known = readTokenFile(file).map(knownOf)
    this.#looking = checkIntervalMs > 0 ? setInterval(() => void this.#look(), checkIntervalMs).unref() : undefined
  }

  reload(): boolean {
    this.#version = versionOf(statSync(this.#file, NONE_IF_GONE))
    try {
      this.#known = readTokenFile(this.#file).map(knownOf)
    } catch (error) {
      this.#onReload?.({ error })
      return false
    }
    this.#onReload?.({ tokens: this.#known.length })
    return true
  }

  close(): void {
    this.#closed = true
    clearInterval(this.#looking)
  }

  /** The holder of the token in a field `Authorization`. */
  holderOf(authorization: string): Identity | undefined {
    const token = BEARER.exec(authorization.trim())?.[1] ?? ''
    const bytes = Buffer.byteLength(token)
    return bytes < MIN_TOKEN_BYTES || bytes > MAX_TOKEN_BYTES ? undefined : this.holderOfHash(tokenHash(token))
  }

  /** All entries are compared, each in constant time, so that timing reveals nothing. */
  holderOfHash(hash: Buffer): Identity | undefined {
    let holder: Identity | undefined
    for (const known of this.#known) if (timingSafeEqual(known.hash, hash)) holder = known.identity
    return holder
  }

  /** Checked by path: editors and mounted secrets replace the file instead of writing to it. */
  async #look(): Promise<void> {
    const now = versionOf(await stat(this.#file).catch(() => undefined))
    if (!this.#closed && now !== this.#version) this.reload()
  }
}

function versionOf(stats: Stats | undefined): string {
  return stats ? `${stats.mtimeMs} ${stats.ino} ${stats.size}` : 'gone'
}

function enter(request: HttpRequest, store: TokenStore): Entry {
  const authorization = request.header('authorization')
  if (authorization === undefined) {
    return {
      response: unauthorized('a bearer token is needed: Authorization: Bearer <token>', 'Bearer realm="sluice"'),
    }
  }
  const holder = store.holderOf(authorization)
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

function knownOf(entry: TokenEntry): Known {
  return { hash: Buffer.from(entry.sha256, 'hex'), identity: identityOf(entry) }
}

function identityOf({ name, tier, trafficClass, queues }: TokenEntry): Identity {
  return {
    name,
    ...(tier !== undefined && { tier }),
    ...(trafficClass !== undefined && { trafficClass }),
    ...(queues !== undefined && { queues }),
  }
}
