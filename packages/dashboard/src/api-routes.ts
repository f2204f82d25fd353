import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError } from 'sluice-gateway/internal'
import type { Caller } from './access.ts'
import type { FleetReader } from './fleet-reader.ts'
import { type FleetFacts, fleetAnswer } from './fleet-reader.ts'
import { withinMs } from './problems.ts'
import { deadQuery, fleetQuery, jobsQuery, limitQuery, readQuery, seriesQuery } from './queue-params.ts'
import type { QueueReads } from './queue-reads.ts'
import { checkReach, maySee, withoutForeign } from './visible.ts'

const READ_TIMEOUT_MS = 5000

export interface ApiParts {
  readonly fleet: FleetReader
  readonly reads: QueueReads
  readonly facts: FleetFacts
  readonly callerOf: (request: FastifyRequest) => Caller
}

interface Named {
  Params: { name: string }
}

/** The routes that only read. */
export function addApiRoutes(api: FastifyInstance, { fleet, reads, facts, callerOf }: ApiParts): void {
  const nameOf = (request: FastifyRequest<Named>) =>
    knownName(fleet, callerOf(request as FastifyRequest), request.params.name)
  api.get('/fleet', async (request) => {
    const terms = readQuery(fleetQuery, request.query)
    return fleetAnswer(await within(fleet.page(terms, callerOf(request).identity)), facts)
  })
  api.get<{ Params: { id: string } }>('/jobs/:id', async (request) => {
    const { identity } = callerOf(request as FastifyRequest)
    const seen = (await fleet.names()).filter((name) => maySee(identity, name))
    const { jobs, ...searched } = await within(reads.findJob(seen, request.params.id))
    return orNothing(jobs.length > 0 ? { jobs, ...searched } : undefined)
  })
  api.get<Named>('/queues/:name', async (request) => orNothing(await within(reads.news(await nameOf(request)))))
  api.get<Named>('/queues/:name/series', async (request) => {
    const { since } = readQuery(seriesQuery, request.query)
    return within(reads.series(await nameOf(request), since))
  })
  api.get<Named>('/queues/:name/jobs', async (request) => {
    const { state, failedReason, ...page } = readQuery(jobsQuery, request.query)
    const name = await nameOf(request)
    if (failedReason !== undefined) return within(reads.failedJobs(name, failedReason, page))
    return within(reads.jobs(name, state, page))
  })
  api.get<Named>('/queues/:name/failed-reasons', async (request) => within(reads.failedReasons(await nameOf(request))))
  api.get<Named>('/queues/:name/dead', async (request) => {
    const { from, ...page } = readQuery(deadQuery, request.query)
    const name = await nameOf(request)
    checkReach(callerOf(request as FastifyRequest).identity, from)
    return within(reads.dead(name, from, page))
  })
  addPartRoutes(api, { reads, callerOf, nameOf })
  api.get<Named & { Params: { id: string } }>('/queues/:name/jobs/:id', async (request) => {
    const name = await nameOf(request as FastifyRequest<Named>)
    return orNothing(await within(reads.job(name, request.params.id)))
  })
  api.get<Named & { Params: { id: string } }>('/queues/:name/jobs/:id/explain', async (request) => {
    const name = await nameOf(request as FastifyRequest<Named>)
    const found = orNothing(await within(reads.explain(name, request.params.id)))
    return withoutForeign(callerOf(request as FastifyRequest).identity, found)
  })
}

type PartsOfQueue = Pick<ApiParts, 'reads' | 'callerOf'> & {
  readonly nameOf: (request: FastifyRequest<Named>) => Promise<string>
}

/** Groups, and values of limits by keys. */
function addPartRoutes(api: FastifyInstance, { reads, callerOf, nameOf }: PartsOfQueue): void {
  api.get<Named>('/queues/:name/groups', async (request) =>
    orNothing(await within(reads.groups(await nameOf(request)))),
  )
  api.get<Named & { Params: { id: string } }>('/queues/:name/groups/:id', async (request) => {
    const name = await nameOf(request as FastifyRequest<Named>)
    return orNothing(await within(reads.group(name, request.params.id)))
  })
  api.get<Named>('/queues/:name/limits', async (request) =>
    orNothing(await within(reads.limitValues(await nameOf(request)))),
  )
  api.get<Named & { Params: { limit: string } }>('/queues/:name/limits/:limit', async (request) => {
    const { keys } = readQuery(limitQuery, request.query)
    const name = await nameOf(request as FastifyRequest<Named>)
    const found = await within(reads.limitValue(name, request.params.limit, keys))
    return withoutForeign(callerOf(request as FastifyRequest).identity, orNothing(found))
  })
}

/**
 * Names come from outside: only the names of queues that have a shape, and that the caller may see, are accepted.
 * @throws ProblemError 404
 */
export async function knownName(fleet: FleetReader, { identity }: Caller, name: string): Promise<string> {
  const names = await within(fleet.names())
  if (names.includes(name) && maySee(identity, name)) return name
  throw new ProblemError(404, 'there is no such queue')
}

function orNothing<T>(found: T | undefined): T {
  if (found === undefined) throw new ProblemError(404, 'there is nothing here')
  return found
}

function within<T>(promise: Promise<T>): Promise<T> {
  return withinMs(READ_TIMEOUT_MS, promise)
}
