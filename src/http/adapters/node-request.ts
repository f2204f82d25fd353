import type { IncomingMessage, ServerResponse } from 'node:http'
import type { HttpRequest, Identity } from '../door.ts'
import { readNodeBody } from './node-body.ts'
import { isGone, whenOver } from './node-close.ts'

/** Where a request of Node keeps its NodeRequest. A WeakMap would give the garbage collector more to do. */
const KNOWN = Symbol('sluice.request')

const HOST = 'host'

interface KnownRequest extends IncomingMessage {
  [KNOWN]?: NodeRequest
}

/** A request of `node:http`, and of every framework on it. What few doors need is created on demand. */
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
   * One instance per request, even if it reaches several doors in different ways: they share its identity and body.
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
