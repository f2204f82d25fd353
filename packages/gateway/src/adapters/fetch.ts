import { BodyBytes, CallerGoneError, checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { HttpRequest, HttpResponse, Identity, Middleware, Pass } from '../middleware.ts'
import { type AdapterOptions, enter, GONE } from './enter.ts'
import { joined } from './response-headers.ts'

/** What a runtime may provide besides the request. */
export interface FetchInfo {
  /** The remote address of the connection. */
  readonly remoteAddress?: string | undefined
}

export interface FetchMiddlewareOptions<Rest extends readonly unknown[]> extends AdapterOptions {
  /** The remote address of the connection, from the runtime's arguments. Default: `remoteAddress` of the second one. */
  readonly remoteAddress?: (request: Request, ...rest: Rest) => string | undefined
}

/**
 * Middleware before a handler of the Fetch API, as in Hono, Deno, Bun, Next and others. The handler also gets the
 * runtime's other arguments.
 *
 * ```ts
 * const guarded = fetchMiddleware(middleware, (request) => new Response('found'))
 * const response = await guarded(new Request('http://localhost/search'), { remoteAddress: '203.0.113.7' })
 * ```
 * Errors of the middleware or the handler are thrown. What the request holds is released when the runtime has read the
 * response to its end or cancels it, or when the request's signal aborts.
 * @throws InvalidInputError
 */
export function fetchMiddleware<Rest extends readonly unknown[]>(
  middleware: Middleware,
  handler: (request: Request, ...rest: Rest) => Response | Promise<Response>,
  options: FetchMiddlewareOptions<Rest> = {},
): (request: Request, ...rest: Rest | [info?: FetchInfo]) => Promise<Response> {
  const maxBodyBytes = checkMaxBodyBytes(options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES)
  const addressOf = options.remoteAddress ?? ((_request, ...[info]) => (info as FetchInfo | undefined)?.remoteAddress)
  return async (request, ...given) => {
    const rest = given as unknown as Rest
    const entry = await enter(middleware, FetchRequest.of(request, addressOf(request, ...rest), maxBodyBytes))
    if (entry.response) return responseOf(entry.response)
    const leave = entry.leave && once(entry.leave)
    if (leave && request.signal.aborted) {
      leave()
      return responseOf(GONE)
    }
    if (leave) request.signal.addEventListener('abort', leave, { once: true })
    try {
      return passed(request, await handler(request, ...rest), entry.headers, leave)
    } catch (error) {
      leave?.()
      throw error
    }
  }
}

function passed(request: Request, response: Response, headers: Pass['headers'], leave?: () => void): Response {
  const sent = headers ? withHeaders(response, headers) : response
  if (!leave) return sent
  // The body of a response to HEAD is never read.
  if (request.method !== 'HEAD' && sent.body) return whenRead(sent, sent.body, leave)
  leave()
  return sent
}

/** A response from `fetch` or `Response.redirect` is immutable: it is copied. */
function withHeaders(response: Response, headers: NonNullable<Pass['headers']>): Response {
  try {
    add(response.headers, headers)
    return response
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const copy = new Response(response.body, response)
    add(copy.headers, headers)
    return copy
  }
}

function add(to: Headers, headers: NonNullable<Pass['headers']>): void {
  for (const [name, value] of Object.entries(headers)) to.set(name, joined(name, to.get(name) ?? undefined, value))
}

function responseOf({ status, headers, body }: HttpResponse): Response {
  return new Response(body ?? null, { status, headers })
}

function once(leave: () => void): () => void {
  let left = false
  return () => {
    if (left) return
    left = true
    leave()
  }
}

/** The same response, with a callback once its body was read to the end, failed or was cancelled. */
function whenRead(response: Response, body: ReadableStream<Uint8Array>, callback: () => void): Response {
  const reader = body.getReader()
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (!done) return controller.enqueue(value)
        controller.close()
      } catch (error) {
        controller.error(error)
      }
      callback()
    },
    async cancel(reason) {
      callback()
      await reader.cancel(reason)
    },
  })
  return new Response(stream, response)
}

/** A request of the Fetch API. */
class FetchRequest implements HttpRequest {
  /** One instance per request, even if it reaches middleware in different ways: they share its identity and body. */
  static readonly #known = new WeakMap<Request, FetchRequest>()

  readonly method: string
  readonly url: string
  readonly remoteAddress: string | undefined
  readonly raw: Request
  identity?: Identity
  #maxBodyBytes = 0
  #body: Promise<Uint8Array> | undefined

  private constructor(raw: Request, remoteAddress: string | undefined) {
    const { pathname, search } = new URL(raw.url)
    this.method = raw.method
    this.url = pathname + search
    this.remoteAddress = remoteAddress
    this.raw = raw
  }

  /** @param maxBodyBytes for reading the body from now on */
  static of(raw: Request, remoteAddress: string | undefined, maxBodyBytes: number): FetchRequest {
    const request = FetchRequest.#known.get(raw) ?? new FetchRequest(raw, remoteAddress)
    FetchRequest.#known.set(raw, request)
    request.#maxBodyBytes = maxBodyBytes
    return request
  }

  get signal(): AbortSignal {
    return this.raw.signal
  }

  header(name: string): string | undefined {
    return this.raw.headers.get(name) ?? undefined
  }

  body(): Promise<Uint8Array> {
    this.#body ??= this.#read()
    return this.#body
  }

  /** Reads a clone, so that the handler can still read the body. */
  async #read(): Promise<Uint8Array> {
    const bytes = new BodyBytes(this.#maxBodyBytes, this.header('content-length'))
    const reader = this.raw.clone().body?.getReader()
    if (!reader) return bytes.joined()
    try {
      for (;;) {
        const { done, value } = await reader.read().catch((cause: unknown) => {
          throw new CallerGoneError({ cause })
        })
        if (done) return bytes.joined()
        bytes.push(value)
      }
    } catch (error) {
      void Promise.all([reader.cancel(error), this.raw.body?.cancel(error)]).catch(() => {})
      throw error
    }
  }
}
