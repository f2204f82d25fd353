import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { Logger } from 'sluice-programs'
import { fastifyMiddleware, sendResponse } from '../adapters/fastify.ts'
import { type Middleware, type ProblemTerms, problemResponse } from '../index.ts'
import { answerClientError } from './client-errors.ts'
import { Connections } from './connections.ts'
import type { GatewayHealth, Health } from './health.ts'

/** Limits on what a client may send, and on how slowly. */
export interface ServerLimits {
  /** Until a whole request has arrived. ms */
  readonly requestTimeoutMs: number
  /** For a connection without a request. ms */
  readonly keepAliveTimeoutMs: number
  /** For a connection on which nothing is sent or received. ms */
  readonly idleTimeoutMs: number
  readonly maxBodyBytes: number
  readonly maxHeaderBytes: number
  readonly maxConnections: number
}

export interface ServerOptions {
  readonly limits: ServerLimits
  readonly log: Logger
  /** Whether health responses contain the reason. */
  readonly tellsReasons: boolean
  /** Called for each response except health responses. */
  readonly onAnswer: (request: FastifyRequest, reply: FastifyReply) => void
}

/** Upper bound on the time for the headers: slow headers are cut off sooner than a slow body. */
const MAX_HEADERS_TIMEOUT_MS = 10_000
/** How often the server checks for late requests. With Node's default they would be cut off up to 30 s later. */
const CHECK_MS = 500

export class GatewayServer {
  readonly connections: Connections
  readonly #app: FastifyInstance
  readonly #options: ServerOptions
  #leaving = false

  constructor(options: ServerOptions) {
    this.#options = options
    const { requestTimeoutMs, keepAliveTimeoutMs, idleTimeoutMs, ...limits } = options.limits
    this.#app = fastify({
      logger: false,
      bodyLimit: limits.maxBodyBytes,
      requestTimeout: requestTimeoutMs,
      keepAliveTimeout: keepAliveTimeoutMs,
      connectionTimeout: idleTimeoutMs,
      http: {
        headersTimeout: Math.min(MAX_HEADERS_TIMEOUT_MS, requestTimeoutMs),
        connectionsCheckingInterval: CHECK_MS,
        maxHeaderSize: limits.maxHeaderBytes,
      },
      // A request id sent by the caller is ignored.
      requestIdHeader: false,
      genReqId: () => randomUUID(),
      return503OnClosing: false,
      frameworkErrors: (error, request, reply) => this.#fail(error, request, reply),
      clientErrorHandler: (error, socket) => answerClientError(error, socket as Socket, this.connections),
    })
    this.#app.server.maxConnections = limits.maxConnections
    this.connections = new Connections(this.#app.server)
    this.#app.setErrorHandler((error, request, reply) => this.#fail(error, request, reply))
    this.#app.setNotFoundHandler((_request, reply) => refuse(reply, 404, NOTHING))
    this.#app.addHook('onSend', async (_request, reply) => {
      if (this.#leaving) reply.header('connection', 'close')
    })
  }

  /** Puts the middleware before everything but the health routes, and listens. @returns the port */
  async listen(middleware: Middleware, health: GatewayHealth, host: string, port: number): Promise<number> {
    this.#app.get('/healthz', async (_request, reply) => this.#tell(reply, health.live()))
    this.#app.get('/readyz', async (_request, reply) => this.#tell(reply, await health.ready()))
    await this.#app.register(async (scope) => {
      const { maxBodyBytes } = this.#options.limits
      await scope.register(fastifyMiddleware(middleware, { maxBodyBytes }))
      scope.addHook('onResponse', async (request, reply) => this.#options.onAnswer(request, reply))
      scope.all('/*', async (_request, reply) => refuse(reply, 404, NOTHING))
    })
    await this.#app.listen({ host, port })
    const address = this.#app.server.address()
    return typeof address === 'object' && address ? address.port : port
  }

  /** From now on every response closes its connection. */
  leave(): void {
    this.#leaving = true
  }

  /** Stops listening, and resolves when all admitted requests have a response. */
  async close(): Promise<void> {
    this.leave()
    await this.connections.close(this.#options.limits.requestTimeoutMs)
    await this.#app.close()
  }

  #tell(reply: FastifyReply, { ok, reason }: Health): FastifyReply {
    const { tellsReasons } = this.#options
    return reply
      .code(ok ? 200 : 503)
      .header('cache-control', 'no-store')
      .send(tellsReasons ? { ok, reason } : { ok })
  }

  /** A caller's mistake gets its own status; for any other error, the caller only gets a request id to report. */
  #fail(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const { statusCode = 500, code } = error as { statusCode?: number; code?: string }
    if (statusCode >= 400 && statusCode < 500) return refuse(reply, statusCode, `refused: ${code ?? ''}`)
    this.#options.log.error({ err: error, requestId: request.id }, 'failed')
    return refuse(reply, 500, 'the gateway failed', { requestId: request.id })
  }
}

const NOTHING = 'there is nothing here'

function refuse(reply: FastifyReply, status: number, detail: string, extra?: ProblemTerms['extra']): FastifyReply {
  return sendResponse(reply, problemResponse({ status, kind: 'about:blank', detail, extra }))
}
