/**
 * Middleware, independent of the framework: a request enters it, and passes or gets a response.
 */

/** A request as middleware sees it. */
export interface HttpRequest {
  readonly method: string
  /** Path and query, as received. */
  readonly url: string
  /** A field of the request; several with one name are joined by ', '. @param name in lower case */
  header(name: string): string | undefined
  /** The remote address of the connection; that of a proxy, if there is one. */
  readonly remoteAddress: string | undefined
  /**
   * The body, as received. It is read once, at the first call.
   * @throws BodyTooLargeError
   */
  body(): Promise<Uint8Array>
  /** The caller, if earlier middleware identified it. */
  identity?: Identity
  /** Aborted when the caller disconnects. */
  readonly signal: AbortSignal
  /** The framework's own request object, for user functions. */
  readonly raw: unknown
}

/** The caller. */
export interface Identity {
  readonly name: string
  readonly tier?: string
  /** The class used for shedding. */
  readonly trafficClass?: string
  /** The queues that it may use; undefined means all. */
  readonly queues?: readonly string[]
}

export interface HttpResponse {
  readonly status: number
  /** By name, in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Default: none. */
  readonly body?: string
}

/** What middleware does with a request: sends a response, or lets it pass. */
export type Entry = { readonly response: HttpResponse } | Pass

export interface Pass {
  readonly response?: undefined
  /** Fields to add to the response of the code behind it. */
  readonly headers?: Readonly<Record<string, string>>
  /** Called once when the response was sent, or the caller has disconnected. Never throws. */
  readonly leave?: () => void
}

export interface Middleware {
  enter(request: HttpRequest): Promise<Entry> | Entry
}

/** The path of a URL as received, without the query, which may hold secrets. */
export function pathOf(url: string): string {
  const query = url.indexOf('?')
  return query === -1 ? url : url.slice(0, query)
}
