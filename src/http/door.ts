/**
 * What every part of the front door is made of, whatever framework it stands in: a request comes to a door, which lets it
 * pass or answers it.
 */

/** A request as a door sees it. */
export interface HttpRequest {
  readonly method: string
  /** Path and query, as they came. */
  readonly url: string
  /** A field of the request; several of one name are joined by ', '. @param name in lower case */
  header(name: string): string | undefined
  /** The address at the other end of the connection; a proxy's, where there is one. */
  readonly remoteAddress: string | undefined
  /**
   * The body, as it came. It is read once, at the first call.
   * @throws BodyTooLargeError
   */
  body(): Promise<Uint8Array>
  /** Who calls, where a door before this one found it out. */
  identity?: Identity
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal
  /** The framework's own request, for functions of users. */
  readonly raw: unknown
}

/** Who calls. */
export interface Identity {
  readonly name: string
  readonly tier?: string
  /** The class that shedding goes by. */
  readonly trafficClass?: string
  /** The queues that it may use; undefined: all. */
  readonly queues?: readonly string[]
}

export interface Answer {
  readonly status: number
  /** By name, in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Default: none. */
  readonly body?: string
}

/** What a door does with a request: answers it, or lets it pass. */
export type Entry = { readonly answer: Answer } | Pass

export interface Pass {
  readonly answer?: undefined
  /** Fields for the answer that somebody behind the door gives. */
  readonly headers?: Readonly<Record<string, string>>
  /** Called once when the answer was sent, or the caller has gone. Never throws. */
  readonly leave?: () => void
}

export interface Door {
  enter(request: HttpRequest): Promise<Entry> | Entry
}
