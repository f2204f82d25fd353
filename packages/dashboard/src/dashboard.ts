import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { negotiate } from '@fastify/accept-negotiator'
import type { CookieSerializeOptions } from '@fastify/cookie'
import cookie from '@fastify/cookie'
import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import { Inspector } from 'sluice/inspect'
import { ProblemError, problemResponse, sendResponse } from 'sluice-gateway/internal'
import { z } from 'zod'
import { type Access, type Caller, openAccess, SESSION_COOKIE, TokenAccess } from './access.ts'
import { readAction } from './action.ts'
import { addApiRoutes, knownName } from './api-routes.ts'
import { readingConnection } from './connections.ts'
import { EventHub } from './event-hub.ts'
import { EventStream } from './event-stream.ts'
import { type FleetFacts, FleetReader } from './fleet-reader.ts'
import { admit, checkChange } from './guard.ts'
import { type DashboardOptions, type ResolvedOptions, resolveOptions } from './options.ts'
import { addPage } from './page.ts'
import { nameIn } from './path-segment.ts'
import { errorResponse } from './problems.ts'
import { QueueChanges } from './queue-changes.ts'
import { eventsQuery, readQuery } from './queue-params.ts'
import { QueueReads } from './queue-reads.ts'
import { SECURITY_HEADERS } from './security-headers.ts'

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
    const access = openAccessOf(resolved, app)
    app.addHook('onClose', async () => access.close())
    await prepare(app)
    const reading = readingParts(resolved)
    app.addHook('onClose', () => reading.inspector.close())
    await app.register(addPage)
    addSessionRoutes(app, access)
    await app.register(async (api) => addApi(api, access, resolved, reading), { prefix: '/api' })
  }
}

function openAccessOf({ tokens, guardedBefore }: ResolvedOptions, app: FastifyInstance): Access {
  if (tokens === undefined) return openAccess(guardedBefore)
  return new TokenAccess(tokens, (result) => {
    if ('tokens' in result) app.log.info({ file: tokens, tokens: result.tokens }, 'tokens were read again')
    else app.log.error({ err: result.error, file: tokens }, 'token file is wrong: the tokens stay as they were')
  })
}

/** Settings for every response. */
async function prepare(app: FastifyInstance): Promise<void> {
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(SECURITY_HEADERS)
  })
  if (!app.hasReplyDecorator('setCookie')) await app.register(cookie)
  // At the root of an app, what is not found is not only ours.
  if (app.prefix !== '') {
    app.setNotFoundHandler(async () => {
      throw nothingHere()
    })
  }
  // Content types that the app parses are not accepted here.
  app.removeAllContentTypeParsers()
  const options = { parseAs: 'string', bodyLimit: MAX_BODY_BYTES } as const
  app.addContentTypeParser('application/json', options, app.getDefaultJsonParser('error', 'error'))
  app.setErrorHandler((error, request, reply) => {
    const response = errorResponse(error, request.method !== 'GET')
    if (response) return sendResponse(reply, response)
    request.log.error({ err: error }, 'the dashboard failed')
    return sendResponse(reply, problemResponse({ status: 500, kind: 'about:blank', detail: 'the dashboard failed' }))
  })
}

interface ReadingParts {
  readonly inspector: Inspector
  readonly fleet: FleetReader
  readonly reads: QueueReads
  readonly facts: FleetFacts
}

/** What the API reads with. */
function readingParts(options: ResolvedOptions): ReadingParts {
  const { prefix, allowActions, showData, title } = options
  const inspector = new Inspector({ connection: readingConnection(options.readConnection), prefix })
  const fleet = new FleetReader(inspector)
  const reads = new QueueReads(inspector, fleet, { prefix, showData })
  return { inspector, fleet, reads, facts: { title, allowActions, showData } }
}

function addApi(api: FastifyInstance, access: Access, options: ResolvedOptions, reading: ReadingParts): void {
  const { prefix, allowActions, actor } = options
  const { inspector, fleet, reads, facts } = reading
  const hub = new EventHub({
    ...{ inspector, reader: fleet, facts },
    onTurn: (failure) =>
      failure === undefined
        ? api.log.info('Redis is read again')
        : api.log.error({ err: failure }, 'Redis cannot be read'),
  })
  const changes = new QueueChanges({
    ...{ connection: options.connection, prefix, inspector },
    onEnd: ({ error, ...news }) =>
      error === undefined
        ? api.log.info(news, 'a change ended')
        : api.log.error({ ...news, err: error }, 'a change failed'),
  })
  // A stream does not end by itself: the server would wait for it.
  api.addHook('preClose', async () => hub.close())
  api.addHook('onClose', () => changes.close())
  compressJson(api)
  const callerOf = addGuard(api, access)
  addApiRoutes(api, { fleet, callerOf, facts, reads })
  addEventRoutes(api, { fleet, hub, access, callerOf })
  addActionRoutes(api, { fleet, reads, changes, allowActions, actor, callerOf })
  api.all('/*', async () => {
    throw nothingHere()
  })
}

function nothingHere(): ProblemError {
  return new ProblemError(404, 'there is nothing here')
}

/** Runs before every route of the API. @returns a function that gives the caller of a request */
function addGuard(api: FastifyInstance, access: Access): (request: FastifyRequest) => Caller {
  const callers = new WeakMap<FastifyRequest, Caller>()
  api.addHook('onRequest', async (request, reply) => {
    reply.header('cache-control', 'no-store')
    callers.set(request, await admit(request, access))
  })
  api.addHook('preValidation', async ({ params }) => {
    const names = params as Record<string, string>
    for (const [param, segment] of Object.entries(names)) names[param] = nameIn(segment)
  })
  return (request) => callers.get(request) as Caller
}

const loginSchema = z.strictObject({ token: z.string().min(1).max(1024) })

function addSessionRoutes(app: FastifyInstance, access: Access): void {
  // Another site must not log a browser in under another identity.
  const onRequest = async (request: FastifyRequest) => checkChange(request, false)
  const path = app.prefix === '' ? '/' : app.prefix
  const terms = (request: FastifyRequest): CookieSerializeOptions => ({
    path,
    httpOnly: true,
    sameSite: 'strict',
    secure: request.protocol === 'https',
  })
  app.post('/login', { onRequest }, async (request, reply) => {
    const parsed = loginSchema.safeParse(request.body)
    if (!parsed.success) throw new ProblemError(422, 'expected {"token": "…"}')
    const { id, lifetimeMs } = await access.login(parsed.data.token, request)
    // A new login closes the previous session.
    access.logout(request)
    reply.setCookie(SESSION_COOKIE, id, { ...terms(request), maxAge: Math.floor(lifetimeMs / 1000) })
    return reply.code(204).send()
  })
  app.post('/logout', { onRequest }, async (request, reply) => {
    access.logout(request)
    reply.clearCookie(SESSION_COOKIE, terms(request))
    return reply.code(204).send()
  })
}

interface ActionParts {
  readonly fleet: FleetReader
  readonly reads: QueueReads
  readonly changes: QueueChanges
  readonly allowActions: boolean
  readonly actor: ((request: FastifyRequest) => string) | undefined
  readonly callerOf: (request: FastifyRequest) => Caller
}

const DEFAULT_ACTOR = 'dashboard'

/** The routes that make changes; each change needs a reason. */
function addActionRoutes(api: FastifyInstance, parts: ActionParts): void {
  const { fleet, reads, changes, allowActions, actor, callerOf } = parts
  const onRequest = async () => {
    if (!allowActions) throw new ProblemError(403, 'nothing can be changed here: actions are not allowed')
  }
  api.post<{ Params: { name: string } }>('/queues/:name/actions', { onRequest }, async (request, reply) => {
    const asked = request as FastifyRequest
    const caller = callerOf(asked)
    const name = await knownName(fleet, caller, request.params.name)
    const by = actor?.(asked) || caller.identity?.name || DEFAULT_ACTOR
    await changes.make(name, readAction(request.body), { by, identity: caller.identity })
    reads.forget()
    return reply.code(204).send()
  })
}

/** How soon a page asks for a stream again, if there are too many. ms */
const FULL_RETRY_MS = 10_000
const STREAM_ID = /^\d{1,15}-\d{1,15}$/

interface EventParts {
  readonly fleet: FleetReader
  readonly hub: EventHub
  readonly access: Access
  readonly callerOf: (request: FastifyRequest) => Caller
}

/** Server-sent events. `Last-Event-ID` is the last change of the queue that the page has received. */
function addEventRoutes(api: FastifyInstance, { fleet, hub, access, callerOf }: EventParts): void {
  api.get('/events', { exposeHeadRoute: false }, async (request, reply) => {
    const { queue, fleet: withFleet, ...page } = readQuery(eventsQuery, request.query)
    if (queue !== undefined) await knownName(fleet, callerOf(request), queue)
    const holder = { token: callerOf(request).identity?.name, address: request.ip }
    if (!hub.hasRoom) throw new ProblemError(503, 'too many pages are open', { retryAfterMs: FULL_RETRY_MS })
    if (!hub.hasShareFor(holder)) {
      throw new ProblemError(429, 'you have too many pages open: close some', { retryAfterMs: FULL_RETRY_MS })
    }
    const lastId = request.headers['last-event-id']
    const stream = new EventStream(reply.raw, {
      holder,
      page,
      queue,
      // Otherwise nothing would be sent.
      fleet: withFleet || queue === undefined,
      zips: takesGzip(request.headers['accept-encoding']),
      lastId: typeof lastId === 'string' && STREAM_ID.test(lastId) ? lastId : undefined,
      identify: () => access.callerOf(request).catch(() => undefined),
    })
    reply.hijack()
    stream.open(SECURITY_HEADERS)
    hub.add(stream)
    return reply
  })
}

/** Less than a packet is not worth the time. */
const MIN_BYTES = 1200
/** A fifth of the time of the best level, for a tenth more bytes: responses are made anew each time. */
const LEVEL = 3
const zip = promisify(gzip)

/** Compresses the JSON of a scope: two hundred queues are 290 KB of it, and 30 KB compressed. */
function compressJson(api: FastifyInstance): void {
  api.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || payload.length < MIN_BYTES) return payload
    reply.header('vary', 'accept-encoding')
    if (!takesGzip(request.headers['accept-encoding'])) return payload
    const body = await zip(payload, { level: LEVEL })
    reply.header('content-encoding', 'gzip').header('content-length', body.length)
    return body
  })
}

function takesGzip(acceptEncoding: string | string[] | undefined): boolean {
  return negotiate([acceptEncoding ?? []].flat().join(), ['gzip']) === 'gzip'
}
