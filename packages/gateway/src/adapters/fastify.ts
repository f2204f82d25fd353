import type {
  FastifyPluginCallback,
  FastifyReply,
  FastifyRequest,
  RawServerBase,
  RawServerDefault,
  RouteGenericInterface,
} from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { HttpResponse, Middleware, Pass } from '../middleware.ts'
import { type AdapterOptions, addFields, maxBodyBytesOf } from './core.ts'
import { enterNode } from './node.ts'

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
  const maxBodyBytes = maxBodyBytesOf(options)
  const hook: FastifyHook = async (request, reply) => {
    const of = { raw: request, url: request.originalUrl, maxBodyBytes }
    const entry = await enterNode(middleware, [request.raw, reply.raw], of)
    const { response } = entry
    if (response) return sendResponse(reply, response)
    addAll(reply, entry.headers)
    return undefined
  }
  // The parts of requests and replies used here are the same in servers of every kind.
  return hook as unknown as FastifyHook<Server>
}

/** Sends a response as it is, with the fields that the reply already has. */
export function sendResponse(reply: FastifyReply, { status, headers, body }: HttpResponse): FastifyReply {
  addAll(reply, headers)
  // A custom serializer, because Fastify would add a charset, which JSON does not have (RFC 8259, section 11). A
  // string, because Node sends it in one write with the header.
  return reply.code(status).serializer(asItIs).send(body)
}

function addAll(reply: FastifyReply, headers: Pass['headers']): void {
  const set = (name: string, value: string) => reply.header(name, value)
  addFields({ get: (name) => reply.getHeader(name)?.toString(), set }, headers)
}

function asItIs(body: unknown): string {
  return body as string
}
