import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import { SluiceError } from 'sluice/internal'
import { type BodyBytes, CallerGoneError } from '../body.ts'
import type { Entry, Middleware } from '../middleware.ts'
import { type AdapterOptions, ArrivedRequest, addFields, closingProblem, enter, maxBodyBytesOf } from './core.ts'

/**
 * Enters middleware with a request of `node:http` or `node:http2`, and of every framework on top of them. Answers
 * requests with several Host fields itself: the target of the request is ambiguous, and so may be where the next
 * request begins. (RFC 9112, section 3.2)
 * @param raw the framework's own request
 */
export async function enterNode(
  middleware: Middleware,
  [req, res]: readonly [IncomingMessage, ServerResponse],
  { raw, url, maxBodyBytes }: { readonly raw: unknown; readonly url: string; readonly maxBodyBytes: number },
): Promise<Entry> {
  if (hasSeveralHosts(req)) return { response: closingProblem(400, 'The request has several Host fields.') }
  const request = ArrivedRequest.of(req, maxBodyBytes, () => new NodeRequest(req, res, raw, url))
  return enter(middleware, request, (callback) => whenOver(req, res, callback))
}

const HOST = 'host'

/** Node takes the first of several Host fields; a proxy in front of it may have taken another. */
function hasSeveralHosts({ rawHeaders }: IncomingMessage): boolean {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string
    if (name.length === HOST.length && name.toLowerCase() === HOST) hosts += 1
  }
  return hosts > 1
}

/** Rarely needed parts are created on demand. */
class NodeRequest extends ArrivedRequest {
  readonly method: string
  readonly url: string
  readonly remoteAddress: string | undefined
  readonly raw: unknown
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  #signal: AbortSignal | undefined

  constructor(req: IncomingMessage, res: ServerResponse, raw: unknown, url: string) {
    super()
    this.method = req.method ?? 'GET'
    this.url = url
    this.remoteAddress = req.socket.remoteAddress
    this.raw = raw
    this.#req = req
    this.#res = res
  }

  get isGone(): boolean {
    return isGone(this.#req, this.#res)
  }

  header(name: string): string | undefined {
    const value = this.#req.headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

  get signal(): AbortSignal {
    this.#signal ??= this.#makeSignal()
    return this.#signal
  }

  #makeSignal(): AbortSignal {
    const controller = new AbortController()
    whenOver(this.#req, this.#res, () => {
      if (this.isGone) controller.abort()
    })
    return controller.signal
  }

  /** Puts back what it reads. (HTTP/2: it is not put back) */
  protected async read(bytes: BodyBytes): Promise<Uint8Array> {
    const req = this.#req
    if (req.readableDidRead || req.readableEnded) return readBefore(req, bytes)
    // A body that arrived with the header ends within this tick; only then is it known whether there is one.
    await undefined
    if (isWhole(req)) {
      pull(req, bytes)
      putBack(req, bytes)
    } else if (!isEmpty(req)) await taken(req, bytes)
    return bytes.joined()
  }
}

/** Whether the whole announced body is buffered, as when a short body arrived with the header. */
function isWhole(req: IncomingMessage): boolean {
  const { readableLength: length, destroyed, aborted } = req
  return length > 0 && Number(req.headers['content-length']) === length && !destroyed && !aborted && !http2StreamOf(req)
}

/** Takes what is buffered. @throws BodyTooLargeError */
function pull(req: IncomingMessage, bytes: BodyBytes): void {
  for (let part = req.read(); part !== null; part = req.read()) bytes.push(part)
}

/** Call it in the tick of the last read: in the next one the stream emits its end and accepts nothing more. */
function putBack(req: IncomingMessage, bytes: BodyBytes): void {
  req.unshift(bytes.joined())
}

/** Whether the body is complete and empty. Reading it would emit `end`, which later code may wait for. */
function isEmpty(req: IncomingMessage): boolean {
  return req.complete && !brokeOff(req) && req.readableLength === 0
}

/** An aborted HTTP/2 stream also emits `end`. */
function brokeOff(req: IncomingMessage): boolean {
  return req.aborted || http2StreamOf(req)?.closed === true
}

function taken(req: IncomingMessage, bytes: BodyBytes): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (settle: () => void) => {
      req.off('readable', read)
      req.off('end', ended)
      req.off('error', gone)
      req.off('close', gone)
      settle()
    }
    const ended = () => (brokeOff(req) ? gone() : stop(resolve))
    const gone = (cause?: unknown) => stop(() => reject(new CallerGoneError({ cause })))
    const read = () => {
      if (bytes.length === 0 && isEmpty(req)) return ended()
      try {
        pull(req, bytes)
      } catch (error) {
        return stop(() => reject(error))
      }
      if (!req.complete || brokeOff(req)) return
      putBack(req, bytes)
      ended()
    }
    req.on('readable', read)
    req.on('end', ended)
    req.on('error', gone)
    req.on('close', gone)
    if (req.destroyed || brokeOff(req)) gone()
  })
}

/** The bytes kept by an earlier parser, as `express.raw()` does. */
function readBefore(req: IncomingMessage, bytes: BodyBytes): Uint8Array {
  const { body, rawBody } = req as { body?: unknown; rawBody?: unknown }
  const kept = [rawBody, body].find((one) => one instanceof Uint8Array)
  if (kept) bytes.push(kept)
  else if (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0) {
    throw new SluiceError('the body was read before the middleware: put the middleware before body parsers')
  }
  return bytes.joined()
}

/** Callbacks for the end of a connection: one listener for all requests in flight on it. */
const waiting = new WeakMap<Socket, Set<() => void>>()

/** Whether the response was sent completely, or the caller has disconnected. */
function isOver(req: IncomingMessage, res: ServerResponse): boolean {
  const stream = http2StreamOf(req)
  return stream ? stream.destroyed : res.writableFinished || res.closed || isGone(req, res)
}

/** Whether the caller disconnected before everything was sent. */
function isGone(req: IncomingMessage, res: ServerResponse): boolean {
  const stream = http2StreamOf(req)
  if (stream) return stream.destroyed && !res.writableEnded
  return !res.writableFinished && (res.destroyed || req.socket.destroyed)
}

/** Calls back once: when the response was sent, or the caller has disconnected. */
function whenOver(req: IncomingMessage, res: ServerResponse, callback: () => void): void {
  if (isOver(req, res)) {
    callback()
    return
  }
  const over = () => {
    res.off('finish', over)
    res.off('close', over)
    waiting.get(req.socket)?.delete(over)
    callback()
  }
  res.on('finish', over)
  res.on('close', over)
  // A pipelined response that waits for earlier ones gets no event when its connection closes.
  if (!http2StreamOf(req)) waitingOn(req.socket).add(over)
}

function waitingOn(socket: Socket): Set<() => void> {
  const known = waiting.get(socket)
  if (known) return known
  const made = new Set<() => void>()
  waiting.set(socket, made)
  socket.once('close', () => {
    for (const over of made) over()
  })
  return made
}

/** An HTTP/2 request has a stream of its own, and ends with it. */
function http2StreamOf(req: IncomingMessage): Http2Stream | undefined {
  return (req as { stream?: Http2Stream }).stream
}

export type ConnectMiddleware = (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => void

/**
 * Middleware before the routes of Express, Connect, or a server of `node:http`. Put it before body parsers.
 *
 * ```ts
 * const guard = connectMiddleware(middleware)
 * app.use('/api', guard)
 * createServer((req, res) => guard(req, res, (error) => void (error ? res.writeHead(500).end() : res.end('found'))))
 * ```
 * Errors that the middleware throws go to `next`.
 * @throws InvalidInputError
 */
export function connectMiddleware(middleware: Middleware, options: AdapterOptions = {}): ConnectMiddleware {
  const maxBodyBytes = maxBodyBytesOf(options)
  return (req, res, next) => {
    const url = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
    enterNode(middleware, [req, res], { raw: req, url, maxBodyBytes })
      .then((entry) => {
        // A timeout that ran out before the middleware may have sent a response already.
        if (res.headersSent) return false
        const { response } = entry
        const set = (name: string, value: string) => res.setHeader(name, value)
        addFields({ get: (name) => res.getHeader(name)?.toString(), set }, response ? response.headers : entry.headers)
        if (response) res.writeHead(response.status).end(response.body)
        return !response
      })
      .then((passed) => {
        if (passed) next()
      }, next)
  }
}
