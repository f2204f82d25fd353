import type { FastifyRequest } from 'fastify'
import { type TokenEntry, tokenHash } from '../http/auth/token-entry.ts'
import { readTokenFile } from '../http/auth/token-file.ts'
import { type TokenReload, tokens } from '../http/auth/tokens.ts'
import type { HttpRequest, Identity } from '../http/door.ts'
import { DashboardProblem } from './problem-error.ts'
import { Sessions } from './sessions.ts'
import { WrongTokens } from './wrong-tokens.ts'

export const SESSION_COOKIE = 'sluice_session'

export interface Caller {
  /** undefined where callers are not authenticated. */
  readonly identity: Identity | undefined
  /** Whether this request carries a bearer token. */
  readonly hasBearer: boolean
}

export interface Access {
  /** @throws DashboardProblem 401, 403 or 429 */
  callerOf(request: FastifyRequest): Promise<Caller>
  /** Opens a session for a valid token. @throws DashboardProblem 401, 404 or 429 */
  login(token: string, request: FastifyRequest): Promise<{ readonly id: string; readonly lifetimeMs: number }>
  logout(request: FastifyRequest): void
  close(): void
}

/**
 * Access without authentication.
 * @param guardedBefore whether something in front of the dashboard authenticates callers: otherwise only this machine
 * is answered
 */
export function openAccess(guardedBefore: boolean): Access {
  return {
    async callerOf(request) {
      if (!guardedBefore && !isLoopbackAddress(request.socket.remoteAddress)) {
        throw new DashboardProblem(403, 'without a token file only this machine is answered')
      }
      if (!guardedBefore && !isLoopbackHost(request.headers.host)) {
        throw new DashboardProblem(403, 'without a token file only localhost is answered, by that name or its address')
      }
      return { identity: undefined, hasBearer: false }
    },
    async login() {
      throw new DashboardProblem(404, 'no login is needed here')
    },
    logout() {},
    close() {},
  }
}

/** Requires a token of a file, or a session that was opened with one. */
export class TokenAccess implements Access {
  readonly #door: ReturnType<typeof tokens>
  readonly #sessions = new Sessions<string>()
  readonly #wrong = new WrongTokens()
  #identities: ReadonlyMap<string, Identity>

  /** @throws InvalidTokenFileError */
  constructor(file: string, onReload: (result: TokenReload) => void) {
    this.#identities = identitiesOf(readTokenFile(file))
    this.#door = tokens({
      file,
      onReload: (result) => {
        onReload('tokens' in result ? this.#reread(file, result) : result)
      },
    })
  }

  async callerOf(request: FastifyRequest): Promise<Caller> {
    const { authorization } = request.headers
    // Another scheme, such as a proxy's Basic, is ignored.
    if (authorization !== undefined && /^Bearer /i.test(authorization)) {
      return { identity: await this.#check(authorization, request.ip), hasBearer: true }
    }
    const hash = this.#sessions.holderOf(request.cookies[SESSION_COOKIE] ?? '')
    const identity = hash === undefined ? undefined : this.#identities.get(hash)
    if (identity) return { identity, hasBearer: false }
    throw unauthorized('a token is needed')
  }

  async login(token: string, request: FastifyRequest): Promise<{ readonly id: string; readonly lifetimeMs: number }> {
    await this.#check(`Bearer ${token}`, request.ip)
    return this.#sessions.open(tokenHash(token).toString('hex'))
  }

  logout(request: FastifyRequest): void {
    this.#sessions.close(request.cookies[SESSION_COOKIE] ?? '')
  }

  close(): void {
    this.#door.close()
  }

  /**
   * Drops the sessions of removed tokens and updates the rights of the others. The file may have changed again since
   * the reload.
   */
  #reread(file: string, result: TokenReload): TokenReload {
    try {
      this.#identities = identitiesOf(readTokenFile(file))
      return result
    } catch (error) {
      return { error }
    }
  }

  async #check(authorization: string, address: string): Promise<Identity> {
    const request = requestWith(authorization)
    await this.#door.enter(request)
    // A valid token is never blocked: its address may be shared with others, and it is compared in constant time.
    if (request.identity) return request.identity
    const retryAfterMs = this.#wrong.retryAfterMs(address)
    if (retryAfterMs > 0) throw new DashboardProblem(429, 'too many wrong tokens', { retryAfterMs })
    this.#wrong.note(address)
    throw unauthorized('the token is not known')
  }
}

function identitiesOf(entries: readonly TokenEntry[]): ReadonlyMap<string, Identity> {
  return new Map(
    entries.map(({ sha256, name, queues }) => [
      sha256.toLowerCase(),
      { name, ...(queues !== undefined && { queues }) },
    ]),
  )
}

/** The fields that the token door reads. */
function requestWith(authorization: string): HttpRequest {
  return {
    method: 'GET',
    url: '/',
    header: (name) => (name === 'authorization' ? authorization : undefined),
    remoteAddress: undefined,
    body: async () => new Uint8Array(),
    signal: new AbortController().signal,
    raw: undefined,
  }
}

function unauthorized(detail: string): DashboardProblem {
  return new DashboardProblem(401, detail, { headers: { 'www-authenticate': 'Bearer realm="sluice"' } })
}

/** Whether an address is this machine's own. */
export function isLoopbackAddress(address: string | undefined): boolean {
  return address !== undefined && (/^(::ffff:)?127\./i.test(address) || address === '::1')
}

/**
 * Whether a request's host names this machine by a name of its own. A foreign name that resolves to this machine does
 * not: a page under that name would have the same origin as the dashboard. (DNS rebinding)
 */
export function isLoopbackHost(host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(`http://${host}`)) return false
  const { hostname, pathname } = new URL(`http://${host}`)
  if (pathname !== '/') return false
  return /^(.+\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]'
}
