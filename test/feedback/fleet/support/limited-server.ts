import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll } from 'vitest'
import type { Answer, Dialect, Refusal } from './dialects.ts'
import { TokenBucket } from './token-bucket.ts'

/** One request, as the server saw and answered it. */
export interface SeenRequest {
  readonly jobId: string
  readonly process: string
  /** The slot it departed with, µs on Redis's clock. */
  readonly slotUs: number
  /** ms since 1970 */
  readonly arrivedMs: number
  readonly allowed: boolean
  readonly answeredMs: number
  /** The time that a refusal gave, ms since 1970. */
  readonly notBeforeMs?: number
}

export interface LimitedApi {
  readonly url: string
  readonly requests: readonly SeenRequest[]
}

export interface ApiOptions {
  readonly perSecond: number
  readonly burst: number
  /** When this request comes (the first is 1), somebody else takes what is left. */
  readonly drainedAt: number
  /** Nobody is answered before so many processes have asked. */
  readonly processes: number
  /** Waited for before each answer. */
  readonly beforeAnswer?: (seen: number) => Promise<unknown>
}

/** Runs one HTTP server for the tests of a file, with as many APIs as they want, each with a limit of its own. */
export function useLimitedServer(): { open(dialect: Dialect, options: ApiOptions): LimitedApi } {
  const apis = new Map<string, Api>()
  let port = 0
  const server = createServer((request, response) => void apis.get(request.url ?? '')?.answer(request, response))
  beforeAll(async () => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    port = (server.address() as AddressInfo).port
  })
  afterAll(async () => {
    const closed = once(server, 'close')
    server.close()
    server.closeAllConnections()
    await closed
  })
  return {
    open: (dialect, options) => {
      const path = `/${apis.size}`
      const api = new Api(`http://127.0.0.1:${port}${path}`, dialect, options)
      apis.set(path, api)
      return api
    },
  }
}

class Api implements LimitedApi {
  readonly url: string
  readonly requests: SeenRequest[] = []
  readonly #dialect: Dialect
  readonly #options: ApiOptions
  readonly #bucket: TokenBucket
  readonly #processes = new Set<string>()
  #waiting: (() => void)[] = []
  #came = 0

  constructor(url: string, dialect: Dialect, options: ApiOptions) {
    this.url = url
    this.#dialect = dialect
    this.#options = options
    this.#bucket = new TokenBucket(options.perSecond, options.burst)
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const arrivedMs = Date.now()
    const [jobId, process, slotUs] = ['x-job', 'x-process', 'x-slot-us'].map((name) => String(request.headers[name]))
    request.resume()
    this.#came += 1
    const came = this.#came
    await this.#allAsked(process as string)
    await this.#options.beforeAnswer?.(came)
    // At one time: nothing may come back between.
    const nowMs = Date.now()
    if (came === this.#options.drainedAt) this.#bucket.drain(nowMs)
    const allowed = this.#bucket.take(nowMs)
    const level = this.#bucket.level(nowMs)
    const answer: Refusal = allowed ? this.#accept(level) : this.#dialect.refuse(level)
    const { waitMs } = answer
    this.requests.push({
      ...{ jobId: jobId as string, process: process as string, slotUs: Number(slotUs), arrivedMs, allowed },
      answeredMs: level.nowMs,
      ...(waitMs !== undefined && { notBeforeMs: level.nowMs + waitMs }),
    })
    send(response, answer, level.nowMs)
  }

  #accept(level: ReturnType<TokenBucket['level']>): Answer {
    return this.#dialect.accept?.(level) ?? { status: 200, body: {} }
  }

  #allAsked(process: string): Promise<void> | undefined {
    this.#processes.add(process)
    if (this.#processes.size < this.#options.processes) {
      return new Promise((resolve) => this.#waiting.push(resolve))
    }
    for (const go of this.#waiting.splice(0)) go()
    return undefined
  }
}

function send(response: ServerResponse, { status, headers = {}, body = {} }: Answer, nowMs: number): void {
  const date = new Date(nowMs).toUTCString()
  response.writeHead(status, { 'content-type': 'application/json', date, ...headers }).end(JSON.stringify(body))
}
