import { createHash, randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import type { Identity, TokenReload } from 'sluice-gateway'
import { ProblemError, TokenStore, tokenHash } from 'sluice-gateway/internal'

export const SESSION_COOKIE = 'sluice_session'

export interface Caller {
  /** undefined where callers are not authenticated. */
  readonly identity: Identity | undefined
  /** Whether this request carries a bearer token. */
  readonly hasBearer: boolean
}

export interface Access {
  /** @throws ProblemError 401, 403 or 429 */
  callerOf(request: FastifyRequest): Promise<Caller>
  /** Opens a session for a valid token. @throws ProblemError 401, 404 or 429 */
  login(token: string, request: FastifyRequest): Promise<{ readonly id: string; readonly lifetimeMs: number }>
  logout(request: FastifyRequest): void
  close(): void
}

/**
 * Access without authentication.
 * @param guardedBefore whether something in front of the dashboard authenticates callers: otherwise only requests
 * from this machine are served
 */
export function openAccess(guardedBefore: boolean): Access {
  return {
    async callerOf(request) {
      if (!guardedBefore && !isLoopbackAddress(request.socket.remoteAddress)) {
        throw new ProblemError(403, 'without a token file only this machine is answered')
      }
      if (!guardedBefore && !isLoopbackHost(request.headers.host)) {
        throw new ProblemError(403, 'without a token file only localhost is answered, by that name or its address')
      }
      return { identity: undefined, hasBearer: false }
    },
    async login() {
      throw new ProblemError(404, 'no login is needed here')
    },
    logout() {},
    close() {},
  }
}

/** Requires a token of a file, or a session that was opened with one. */
export class TokenAccess implements Access {
  readonly #tokens: TokenStore
  readonly #sessions = new Sessions<string>()
  readonly #wrong = new WrongTokens()

  /** @throws InvalidTokenFileError */
  constructor(file: string, onReload: (result: TokenReload) => void) {
    this.#tokens = new TokenStore({ file, onReload })
  }

  async callerOf(request: FastifyRequest): Promise<Caller> {
    const { authorization } = request.headers
    // Another scheme, such as a proxy's Basic, is ignored.
    if (authorization !== undefined && /^Bearer /i.test(authorization)) {
      return { identity: this.#check(authorization, request.ip), hasBearer: true }
    }
    const hash = this.#sessions.holderOf(request.cookies[SESSION_COOKIE] ?? '')
    const identity = hash === undefined ? undefined : this.#tokens.holderOfHash(Buffer.from(hash, 'hex'))
    if (identity) return { identity, hasBearer: false }
    throw unauthorized('a token is needed')
  }

  async login(token: string, request: FastifyRequest): Promise<{ readonly id: string; readonly lifetimeMs: number }> {
    this.#check(`Bearer ${token}`, request.ip)
    return this.#sessions.open(tokenHash(token).toString('hex'))
  }

  logout(request: FastifyRequest): void {
    this.#sessions.close(request.cookies[SESSION_COOKIE] ?? '')
  }

  close(): void {
    this.#tokens.close()
  }

  #check(authorization: string, address: string): Identity {
    const identity = this.#tokens.holderOf(authorization)
    // A valid token is never blocked: its address may be shared with others, and it is compared in constant time.
    if (identity) return identity
    const retryAfterMs = this.#wrong.retryAfterMs(address)
    if (retryAfterMs > 0) throw new ProblemError(429, 'too many wrong tokens', { retryAfterMs })
    this.#wrong.note(address)
    throw unauthorized('the token is not known')
  }
}

function unauthorized(detail: string): ProblemError {
  return new ProblemError(401, detail, { headers: { 'www-authenticate': 'Bearer realm="sluice"' } })
}

/** Whether an address is this machine's own. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && (/^(::ffff:)?127\./i.test(address) || address === '::1')
}

/**
 * Whether a request's host is a loopback name or address. Another name that resolves to this machine does not count: a
 * page under that name would have the same origin as the dashboard. (DNS rebinding)
 */
export function isLoopbackHost(host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(`http://${host}`)) return false
  const { hostname, pathname } = new URL(`http://${host}`)
  if (pathname !== '/') return false
  return /^(.+\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]'
}

/** How many wrong tokens one caller may send in a burst, and after how long it may send another one. */
const BURST = 10
const INTERVAL_MS = 6000
const MAX_CALLERS = 10_000

/**
 * Counts wrong tokens by the caller's address: after too many, further ones get a 429 for a while. A token has 256
 * random bits and cannot be guessed; this slows down attempts and makes them show up in logs. It is a leaky bucket that
 * counts attempts (GCRA).
 */
export class WrongTokens {
  readonly #fullAtMs: LRUCache<string, number>
  readonly #nowMs: () => number

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
    this.#fullAtMs = new LRUCache({ max: MAX_CALLERS, ttlResolution: 0, perf: { now: nowMs } })
  }

  /** For how long another wrong token of a caller is answered with 429, ms; 0: not at all. */
  retryAfterMs(caller: string): number {
    return Math.max(0, (this.#fullAtMs.get(caller) ?? 0) - this.#nowMs() - (BURST - 1) * INTERVAL_MS)
  }

  note(caller: string): void {
    const nowMs = this.#nowMs()
    const fullAtMs = Math.max(this.#fullAtMs.get(caller) ?? nowMs, nowMs) + INTERVAL_MS
    this.#fullAtMs.set(caller, fullAtMs, { ttl: fullAtMs - nowMs })
  }
}

const ID_BYTES = 32
const LIFETIME_MS = 12 * 3_600_000
const MAX_SESSIONS = 1000

/** Open sessions. A session ends after twelve hours, with a logout, or with this process. */
export class Sessions<Holder extends string | number> {
  /** By the hash of their ids, so that the time of a look-up reveals nothing about an id. */
  readonly #holders: LRUCache<string, Holder>

  constructor(nowMs: () => number = () => performance.now()) {
    this.#holders = new LRUCache({ max: MAX_SESSIONS, ttl: LIFETIME_MS, ttlResolution: 0, perf: { now: nowMs } })
  }

  get size(): number {
    return this.#holders.size
  }

  /** @returns the id of a new session: random, and not derived from the token */
  open(holder: Holder): { readonly id: string; readonly lifetimeMs: number } {
    const id = randomBytes(ID_BYTES).toString('base64url')
    this.#holders.set(keyOf(id), holder)
    return { id, lifetimeMs: LIFETIME_MS }
  }

  holderOf(id: string): Holder | undefined {
    return this.#holders.get(keyOf(id))
  }

  close(id: string): void {
    this.#holders.delete(keyOf(id))
  }
}

function keyOf(id: string): string {
  return createHash('sha256').update(id).digest('base64url')
}
