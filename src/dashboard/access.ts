import type { FastifyRequest } from 'fastify'
import { type TokenEntry, tokenHash } from '../http/auth/token-entry.ts'
import { readTokenFile } from '../http/auth/token-file.ts'
import { type TokenReload, tokens } from '../http/auth/tokens.ts'
import type { HttpRequest, Identity } from '../http/door.ts'
import { DashboardProblem } from './problem-error.ts'
import { Sessions } from './sessions.ts'
import { WrongTokens } from './wrong-tokens.ts'

export const SESSION_COOKIE = 'sluice_session'

/** Who asks. */
export interface Caller {
  /** undefined where nobody is asked who he is. */
  readonly identity: Identity | undefined
  /** Whether he showed a token with this request. */
  readonly hasBearer: boolean
}

export interface Access {
  /** @throws DashboardProblem 401, 403 or 429 */
  callerOf(request: FastifyRequest): Promise<Caller>
  /** Opens a session for who shows a token. @throws DashboardProblem 401, 404 or 429 */
  login(token: string, request: FastifyRequest): Promise<{ readonly id: string; readonly lifetimeMs: number }>
  logout(request: FastifyRequest): void
  close(): void
}

/**
 * Nobody is asked who he is.
 * @param guardedBefore whether something before knows who calls: else callers have to be on this machine
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
      throw new DashboardProblem(404, 'nobody has to log in here')
    },
    logout() {},
    close() {},
  }
}

/** Asks for a token of a file, or for the session that was opened with one. */
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
    // A proxy's own scheme, such as Basic, says nothing here.
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

  /** Sessions of tokens that are gone are over, and the others may do what the file says now. It may have changed again. */
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
    // A right one always passes: others may share its address, and it is compared in constant time.
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

/** All that the door of tokens looks at. */
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
 * Whether a host, as a request names it, is this machine by its own name. A name of somebody else's that leads here is
 * not: a page of his would be of the same origin as the dashboard. (DNS rebinding)
 */
export function isLoopbackHost(host: string | undefined): boolean {
  if (host === undefined || !URL.canParse(`http://${host}`)) return false
  const { hostname, pathname } = new URL(`http://${host}`)
  if (pathname !== '/') return false
  return /^(.+\.)?localhost$/.test(hostname) || /^127(\.\d+){3}$/.test(hostname) || hostname === '[::1]'
}
