import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Access, Caller } from './access.ts'
import { knownName } from './api-routes.ts'
import type { EventHub } from './event-hub.ts'
import { EventStream } from './event-stream.ts'
import type { FleetReader } from './fleet-reader.ts'
import { DashboardProblem } from './problem-error.ts'
import { eventsQuery, readQuery } from './queue-params.ts'
import { SECURITY_HEADERS } from './security-headers.ts'

const STREAM_ID = /^\d{1,15}-\d{1,15}$/

export interface EventParts {
  readonly fleet: FleetReader
  readonly hub: EventHub
  readonly access: Access
  readonly callerOf: (request: FastifyRequest) => Caller
}

/** Server-sent events. `Last-Event-ID` is the last change of the queue that the page has received. */
export function addEventRoutes(api: FastifyInstance, { fleet, hub, access, callerOf }: EventParts): void {
  api.get('/events', { exposeHeadRoute: false }, async (request, reply) => {
    const { queue, ...page } = readQuery(eventsQuery, request.query)
    if (queue !== undefined) await knownName(fleet, callerOf(request), queue)
    if (!hub.hasRoom) throw new DashboardProblem(503, 'too many pages are open', { retryAfterMs: 10_000 })
    const lastId = request.headers['last-event-id']
    const stream = new EventStream(reply.raw, {
      page,
      queue,
      lastId: typeof lastId === 'string' && STREAM_ID.test(lastId) ? lastId : undefined,
      identify: () => access.callerOf(request).catch(() => undefined),
    })
    reply.hijack()
    stream.open(SECURITY_HEADERS)
    hub.add(stream)
    return reply
  })
}
