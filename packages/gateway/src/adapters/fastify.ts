import type {
  FastifyPluginCallback,
  FastifyReply,
  FastifyRequest,
  RawServerBase,
  RawServerDefault,
  RouteGenericInterface,
} from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { checkMaxBodyBytes, DEFAULT_MAX_BODY_BYTES } from '../body.ts'
import type { HttpResponse, Middleware } from '../middleware.ts'
import { type AdapterOptions, enter, GONE } from './enter.ts'
import { isGone, whenOver } from './node-close.ts'
import { NodeRequest } from './node-request.ts'
import { isList, joined } from './response-headers.ts'

/** A hook for `onRequest` of a route or a scope. */
export type FastifyHook<Server extends RawServerBase = RawServerDefault> = (
  request: FastifyRequest<RouteGenericInterface, Server>,
  reply: FastifyReply<RouteGenericInterface, Server>,
) => Promise<FastifyReply<RouteGenericInterface, Server> | undefined>

/**
 * A Fastify 5 plugin: middleware before every route of the scope in which it is registered, including those of inner
 * scopes and requests that match no route.
 *
 * ```ts
 * await app.register(fastifyMiddleware(middleware))
 * ```
 * @throws InvalidInputError
 */
export function fastifyMiddleware<Server extends RawServerBase = RawServerDefault>(
  middleware: Middleware,
  options: AdapterOptions = {},
): FastifyPluginCallback<Record<never, never>, Server> {
  const hook = fastifyHook(middleware, options)
  const plugin: FastifyPluginCallback = (app, _options, done) => {
    app.addHook('onRequest', hook)
    done()
  }
  const named = fastifyPlugin(plugin, { fastify: '5.x', name: 'sluice-middleware' })
  return named as unknown as FastifyPluginCallback<Record<never, never>, Server>
}

/**
 * Middleware before one route of Fastify. Errors that it throws go to Fastify's error handler; a body that it reads is
 * still there for Fastify's parsers.
 *
 * ```ts
 * app.get('/search', { onRequest: fastifyHook(middleware) }, search)
 * ```
 * @throws InvalidInputError
 */
export function fastifyHook<Server extends RawServerBase = RawServerDefault>(
  middleware: Middleware,
  options: AdapterOptions = {},
): FastifyHook<Server> {
  const maxBodyBytes = checkMaxBodyBytes(options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES)
  const hook: FastifyHook = async (request, reply) => {
    const [req, res] = [request.raw, reply.raw]
    const entry = await enter(middleware, NodeRequest.of(req, res, request, request.originalUrl, maxBodyBytes))
    if (entry.response) return send(reply, entry.response)
    if (entry.leave) whenOver(req, res, entry.leave)
    // A disconnected caller needs no response, and what it held was given back.
    if (isGone(req, res)) return send(reply, GONE)
    addAll(reply, entry.headers)
    return undefined
  }
  // The parts of requests and replies used here are the same in servers of every kind.
  return hook as unknown as FastifyHook<Server>
}

function send(reply: FastifyReply, { status, headers, body }: HttpResponse): FastifyReply {
  addAll(reply, headers)
  // A custom serializer, because Fastify would add a charset, which JSON does not have (RFC 8259, section 11). A
  // string, because Node sends it in one write with the header.
  return reply.code(status).serializer(asItIs).send(body)
}

function asItIs(body: unknown): string {
  return body as string
}

function addAll(reply: FastifyReply, headers: HttpResponse['headers'] = {}): void {
  for (const name in headers) {
    const value = headers[name] as string
    reply.header(name, isList(name) ? joined(name, reply.getHeader(name)?.toString(), value) : value)
  }
}
