import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import type { Answer } from '../http/door.ts'
import { problemAnswer } from '../http/responses/problem.ts'
import { Inspector } from '../inspect/index.ts'
import { type Access, type Caller, openAccess, TokenAccess } from './access.ts'
import { addActionRoutes } from './action-routes.ts'
import { addApiRoutes } from './api-routes.ts'
import { addAssetRoutes } from './asset-routes.ts'
import { readAssets } from './assets.ts'
import { readingConnection } from './connections.ts'
import { errorAnswer } from './error-answer.ts'
import { EventHub } from './event-hub.ts'
import { addEventRoutes } from './event-routes.ts'
import { FleetReader } from './fleet-reader.ts'
import { admit } from './guard.ts'
import { type DashboardOptions, type ResolvedOptions, resolveOptions } from './options.ts'
import { DashboardProblem } from './problem-error.ts'
import { QueueChanges } from './queue-changes.ts'
import { QueueReads } from './queue-reads.ts'
import { SECURITY_HEADERS } from './security-headers.ts'
import { addSessionRoutes } from './session-routes.ts'

const MAX_BODY_BYTES = 65_536

/**
 * A Fastify 5 plugin: a page for the fleet and for each queue, and their API. It can be registered alongside other
 * plugins, and closes what it opened when the app closes.
 *
 * ```ts
 * await app.register(dashboard({ connection, tokens: 'tokens.json' }), { prefix: '/sluice' })
 * ```
 * Job ids and names of queues that are longer than the app's `maxParamLength`, 100 by default, are not found.
 * @throws InvalidInputError, InvalidTokenFileError
 */
export function dashboard(options: DashboardOptions): FastifyPluginAsync {
  const resolved = resolveOptions(options)
  return async (app) => {
    const assets = readAssets()
    const access = openAccessOf(resolved, app)
    app.addHook('onClose', async () => access.close())
    await prepare(app)
    addAssetRoutes(app, assets)
    addSessionRoutes(app, access)
    await app.register(async (api) => addApi(api, access, resolved), { prefix: '/api' })
  }
}

function openAccessOf({ tokens, guardedBefore }: ResolvedOptions, app: FastifyInstance): Access {
  if (tokens === undefined) return openAccess(guardedBefore)
  return new TokenAccess(tokens, (result) => {
    if ('tokens' in result) app.log.info({ file: tokens, tokens: result.tokens }, 'tokens were read again')
    else app.log.error({ err: result.error, file: tokens }, 'token file is wrong: the tokens stay as they were')
  })
}

/** Settings for every answer. */
async function prepare(app: FastifyInstance): Promise<void> {
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(SECURITY_HEADERS)
  })
  if (!app.hasReplyDecorator('setCookie')) await app.register(cookie)
  // Content types that the app parses are not accepted here.
  app.removeAllContentTypeParsers()
  const options = { parseAs: 'string', bodyLimit: MAX_BODY_BYTES } as const
  app.addContentTypeParser('application/json', options, app.getDefaultJsonParser('error', 'error'))
  app.setErrorHandler((error, request, reply) => {
    const answer = errorAnswer(error)
    if (answer) return sendAnswer(reply, answer)
    request.log.error({ err: error }, 'the dashboard failed')
    return sendAnswer(reply, problemAnswer({ status: 500, kind: 'about:blank', detail: 'the dashboard failed' }))
  })
}

function addApi(api: FastifyInstance, access: Access, options: ResolvedOptions): void {
  const { prefix, allowActions, showData, title, actor } = options
  const inspector = new Inspector({ connection: readingConnection(options.readConnection), prefix })
  const fleet = new FleetReader(inspector)
  const facts = { title, allowActions, showData }
  const hub = new EventHub({
    ...{ inspector, reader: fleet, facts },
    onTurn: (failure) =>
      failure === undefined
        ? api.log.info('Redis is read again')
        : api.log.error({ err: failure }, 'Redis can not be read'),
  })
  const changes = new QueueChanges({
    ...{ connection: options.connection, prefix },
    onRedrive: ({ error, ...news }) =>
      error === undefined ? api.log.info(news, 'redriven') : api.log.error({ ...news, err: error }, 'redrive failed'),
  })
  // A stream does not end by itself: the server would wait for it.
  api.addHook('preClose', async () => hub.close())
  api.addHook('onClose', async () => {
    await changes.close()
    await inspector.close()
  })
  const callerOf = addGuard(api, access)
  addApiRoutes(api, { fleet, callerOf, facts, reads: new QueueReads(inspector, fleet, { prefix, showData }) })
  addEventRoutes(api, { fleet, hub, access, callerOf })
  addActionRoutes(api, { fleet, changes, allowActions, actor, callerOf })
  api.all('/*', async () => {
    throw new DashboardProblem(404, 'there is nothing here')
  })
}

/** Runs before every route of the API. @returns a function that gives the caller of a request */
function addGuard(api: FastifyInstance, access: Access): (request: FastifyRequest) => Caller {
  const callers = new WeakMap<FastifyRequest, Caller>()
  api.addHook('onRequest', async (request, reply) => {
    reply.header('cache-control', 'no-store')
    callers.set(request, await admit(request, access))
  })
  return (request) => callers.get(request) as Caller
}

function sendAnswer(reply: FastifyReply, { status, headers, body }: Answer): FastifyReply {
  // As bytes: Fastify would add a charset to a string, which this media type does not have.
  return reply
    .code(status)
    .headers(headers)
    .send(Buffer.from(body ?? ''))
}
