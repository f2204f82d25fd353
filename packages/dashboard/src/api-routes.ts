import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError } from 'sluice-gateway/internal'
import type { Caller } from './access.ts'
import { type FleetFacts, type FleetReader, fleetAnswer } from './fleet-reader.ts'
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

/** The routes that only read. */
export function addApiRoutes(api: FastifyInstance, parts: ApiParts): void {
  const { fleet, reads, facts, callerOf } = parts
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
  addQueueRoutes(api, parts)
}

/** A request about a queue, or about a part of it. */
type QueueRequest = FastifyRequest<{ Params: { name: string; id: string; limit: string } }>

function addQueueRoutes(api: FastifyInstance, { fleet, reads, callerOf }: ApiParts): void {
  const identityOf = (request: QueueRequest) => callerOf(request as FastifyRequest).identity
  const add = (path: string, read: (name: string, request: QueueRequest) => Promise<unknown>) =>
    api.get(`/queues/:name${path}`, async (request: QueueRequest) => {
      const name = await knownName(fleet, callerOf(request as FastifyRequest), request.params.name)
      return orNothing(await within(read(name, request)))
    })
  add('', (name) => reads.news(name))
  add('/series', async (name, { query }) => reads.series(name, readQuery(seriesQuery, query).since))
  add('/jobs', async (name, { query }) => {
    const { state, failedReason, ...page } = readQuery(jobsQuery, query)
    return failedReason === undefined ? reads.jobs(name, state, page) : reads.failedJobs(name, failedReason, page)
  })
  add('/failed-reasons', (name) => reads.failedReasons(name))
  add('/dead', async (name, request) => {
    const { from, ...page } = readQuery(deadQuery, request.query)
    checkReach(identityOf(request), from)
    return reads.dead(name, from, page)
  })
  add('/groups', (name) => reads.groups(name))
  add('/groups/:id', (name, { params }) => reads.group(name, params.id))
  add('/limits', (name) => reads.limitValues(name))
  add('/limits/:limit', async (name, request) => {
    const { keys } = readQuery(limitQuery, request.query)
    const found = await reads.limitValue(name, request.params.limit, keys)
    return found && withoutForeign(identityOf(request), found)
  })
  add('/jobs/:id', (name, { params }) => reads.job(name, params.id))
  add('/jobs/:id/explain', async (name, request) => {
    const found = await reads.explain(name, request.params.id)
    return found && withoutForeign(identityOf(request), found)
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
