import type { IncomingMessage, ServerResponse } from 'node:http'
import { SluiceError } from 'sluice/internal'
import { BodyBytes, CallerGoneError } from '../body.ts'
import type { HttpRequest, Identity } from '../middleware.ts'
import { http2StreamOf, isGone, whenOver } from './node-close.ts'

/** Where a request of Node keeps its NodeRequest. A WeakMap would give the garbage collector more to do. */
const KNOWN = Symbol('sluice.request')

const HOST = 'host'

interface KnownRequest extends IncomingMessage {
  [KNOWN]?: NodeRequest
}

/** A request of `node:http`, and of every framework on top of it. Rarely needed parts are created on demand. */
export class NodeRequest implements HttpRequest {
  readonly method: string
  readonly url: string
  readonly remoteAddress: string | undefined
  readonly raw: unknown
  identity?: Identity
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  #maxBodyBytes = 0
  #body: Promise<Uint8Array> | undefined
  #signal: AbortSignal | undefined

  private constructor(req: IncomingMessage, res: ServerResponse, raw: unknown, url: string) {
    this.method = req.method ?? 'GET'
    this.url = url
    this.remoteAddress = req.socket.remoteAddress
    this.raw = raw
    this.#req = req
    this.#res = res
  }

  /**
   * One instance per request, even if it reaches middleware in different ways: they share its identity and body.
   * @param raw the framework's own request
   * @param maxBodyBytes for reading the body from now on
   */
  static of(req: KnownRequest, res: ServerResponse, raw: unknown, url: string, maxBodyBytes: number): NodeRequest {
    req[KNOWN] ??= new NodeRequest(req, res, raw, url)
    const request = req[KNOWN]
    request.#maxBodyBytes = maxBodyBytes
    return request
  }

  /** Node takes the first of several Host fields; a proxy in front of it may have taken another. */
  get hasSeveralHosts(): boolean {
    const { rawHeaders } = this.#req
    let hosts = 0
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i] as string
      if (name.length === HOST.length && name.toLowerCase() === HOST) hosts += 1
    }
    return hosts > 1
  }

  header(name: string): string | undefined {
    const value = this.#req.headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

  body(): Promise<Uint8Array> {
    this.#body ??= readNodeBody(this.#req, this.#maxBodyBytes)
    return this.#body
  }

  get signal(): AbortSignal {
    this.#signal ??= this.#makeSignal()
    return this.#signal
  }

  #makeSignal(): AbortSignal {
    const controller = new AbortController()
    whenOver(this.#req, this.#res, () => {
      if (isGone(this.#req, this.#res)) controller.abort()
    })
    return controller.signal
  }
}

/**
 * Reads the whole body and puts it back, so that later code can read it again. (HTTP/2: it is not put back)
 * @throws BodyTooLargeError, CallerGoneError
 */
async function readNodeBody(req: IncomingMessage, maxBytes: number): Promise<Uint8Array> {
  const bytes = new BodyBytes(maxBytes, req.headers['content-length'])
  if (req.readableDidRead || req.readableEnded) return readBefore(req, bytes)
  // A body that arrived with the header ends within this tick; only then is it known whether there is one.
  await undefined
  if (isWhole(req)) {
    pull(req, bytes)
    putBack(req, bytes)
  } else if (!isEmpty(req)) await taken(req, bytes)
  return bytes.joined()
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
