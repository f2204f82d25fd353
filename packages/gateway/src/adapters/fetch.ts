import { type BodyBytes, CallerGoneError } from '../body.ts'
import type { Middleware, Pass } from '../middleware.ts'
import { type AdapterOptions, ArrivedRequest, addFields, enter, maxBodyBytesOf } from './core.ts'

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
  const maxBodyBytes = maxBodyBytesOf(options)
  const addressOf = options.remoteAddress ?? ((_request, ...[info]) => (info as FetchInfo | undefined)?.remoteAddress)
  return async (request, ...given) => {
    const rest = given as unknown as Rest
    const arrived = ArrivedRequest.of(
      request,
      maxBodyBytes,
      () => new FetchRequest(request, addressOf(request, ...rest)),
    )
    let leave: (() => void) | undefined
    const entry = await enter(middleware, arrived, (callback) => {
      leave = once(callback)
      if (request.signal.aborted) leave()
      else request.signal.addEventListener('abort', leave, { once: true })
    })
    if (entry.response) return new Response(entry.response.body ?? null, entry.response)
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
    addFields(response.headers, headers)
    return response
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    const copy = new Response(response.body, response)
    addFields(copy.headers, headers)
    return copy
  }
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
class FetchRequest extends ArrivedRequest {
  readonly method: string
  readonly url: string
  readonly remoteAddress: string | undefined
  readonly raw: Request

  constructor(raw: Request, remoteAddress: string | undefined) {
    super()
    const { pathname, search } = new URL(raw.url)
    this.method = raw.method
    this.url = pathname + search
    this.remoteAddress = remoteAddress
    this.raw = raw
  }

  get signal(): AbortSignal {
    return this.raw.signal
  }

  get isGone(): boolean {
    return this.signal.aborted
  }

  header(name: string): string | undefined {
    return this.raw.headers.get(name) ?? undefined
  }

  /** Reads a clone, so that the handler can still read the body. */
  protected async read(bytes: BodyBytes): Promise<Uint8Array> {
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
