import { BodyBytes, CallerGoneError } from '../body.ts'
import type { HttpRequest, Identity } from '../door.ts'

/** A request of the Fetch API. */
export class FetchRequest implements HttpRequest {
  /** One instance per request, even if it reaches several doors in different ways: they share its identity and body. */
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
