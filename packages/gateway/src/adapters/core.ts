// What all adapters share. It knows only what web standards have in common: a request of the Fetch API is one that
// arrived, and a response is made of status, headers and body.

import { BodyBytes, BodyTooLargeError, CallerGoneError, checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { Entry, HttpRequest, HttpResponse, Identity, Middleware } from '../middleware.ts'
import { problemResponse } from '../responses/problem.ts'

export interface AdapterOptions {
  /** The longest body that the middleware may read. Bytes, default 1 MiB. */
  readonly maxBodyBytes?: number
}

/** @throws InvalidInputError */
export function maxBodyBytesOf({ maxBodyBytes = DEFAULT_MAX_BODY_BYTES }: AdapterOptions): number {
  return checkMaxBodyBytes(maxBodyBytes)
}

/** Where a framework's request keeps what arrived. A WeakMap would give the garbage collector more to do. */
const ARRIVED = Symbol('sluice.request')

/** A request that middleware may enter. */
export abstract class ArrivedRequest implements HttpRequest {
  abstract readonly method: string
  abstract readonly url: string
  abstract readonly remoteAddress: string | undefined
  abstract readonly raw: unknown
  abstract readonly signal: AbortSignal
  /** Whether the caller has disconnected. */
  abstract readonly isGone: boolean
  identity?: Identity
  #maxBodyBytes = 0
  #body: Promise<Uint8Array> | undefined

  /**
   * One instance per request, even if it reaches middleware in different ways: they share its identity and body.
   * @param maxBodyBytes for reading the body from now on
   */
  static of<T extends ArrivedRequest>(request: object, maxBodyBytes: number, make: () => T): T {
    const known = request as { [ARRIVED]?: T }
    known[ARRIVED] ??= make()
    known[ARRIVED].#maxBodyBytes = maxBodyBytes
    return known[ARRIVED]
  }

  abstract header(name: string): string | undefined

  body(): Promise<Uint8Array> {
    this.#body ??= this.#read()
    return this.#body
  }

  /** Reads the whole body, so that later code can read it again. @throws BodyTooLargeError, CallerGoneError */
  protected abstract read(bytes: BodyBytes): Promise<Uint8Array>

  async #read(): Promise<Uint8Array> {
    return this.read(new BodyBytes(this.#maxBodyBytes, this.header('content-length')))
  }
}

/** For a disconnected caller: only logs show it. (NGINX: 499 client closed request) */
const GONE: HttpResponse = { status: 499, headers: {} }

/**
 * Calls the middleware; answers overlong bodies and disconnected callers itself.
 * @param whenOver calls back once, when the response was sent or the caller has disconnected
 */
export async function enter(
  middleware: Middleware,
  request: ArrivedRequest,
  whenOver: (callback: () => void) => void,
): Promise<Entry> {
  try {
    const entry = await middleware.enter(request)
    if (entry.response) return entry
    if (entry.leave) whenOver(entry.leave)
    // A disconnected caller needs no response, and what it held was given back.
    return request.isGone ? { response: GONE } : entry
  } catch (error) {
    if (error instanceof CallerGoneError) return { response: GONE }
    if (error instanceof BodyTooLargeError) return { response: closingProblem(413, error.message) }
    throw error
  }
}

/** Closes the connection: otherwise the rest of the body would have to be read before the next request. */
export function closingProblem(status: number, detail: string): HttpResponse {
  return problemResponse({ status, kind: 'about:blank', detail, headers: { connection: 'close' } })
}

/** Fields that are lists: the values of all middleware are joined. For any other field the last value wins. */
const LISTS: ReadonlySet<string> = new Set(['ratelimit', 'ratelimit-policy', 'vary', 'server-timing', 'link'])

/** The fields of a response, as `Headers` and `Map` have them. */
interface Fields {
  get(name: string): string | null | undefined
  set(name: string, value: string): unknown
}

export function addFields(to: Fields, added: HttpResponse['headers'] = {}): void {
  for (const name in added) {
    const before = LISTS.has(name) ? to.get(name) : undefined
    to.set(name, before ? `${before}, ${added[name]}` : (added[name] as string))
  }
}
