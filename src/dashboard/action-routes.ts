import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Caller } from './access.ts'
import { readAction } from './action.ts'
import { knownName } from './api-routes.ts'
import type { FleetReader } from './fleet-reader.ts'
import { DashboardProblem } from './problem-error.ts'
import type { QueueChanges } from './queue-changes.ts'

export interface ActionParts {
  readonly fleet: FleetReader
  readonly changes: QueueChanges
  readonly allowActions: boolean
  readonly actor: ((request: FastifyRequest) => string) | undefined
  readonly callerOf: (request: FastifyRequest) => Caller
}

const DEFAULT_ACTOR = 'dashboard'

/** The routes that make changes; each change needs a reason. */
export function addActionRoutes(api: FastifyInstance, parts: ActionParts): void {
  const { fleet, changes, allowActions, actor, callerOf } = parts
  const onRequest = async () => {
    if (!allowActions) throw new DashboardProblem(403, 'nothing can be changed here: actions are not allowed')
  }
  api.post<{ Params: { name: string } }>('/queues/:name/actions', { onRequest }, async (request, reply) => {
    const asked = request as FastifyRequest
    const caller = callerOf(asked)
    const name = await knownName(fleet, caller, request.params.name)
    const by = actor?.(asked) || caller.identity?.name || DEFAULT_ACTOR
    await changes.make(name, readAction(request.body), { by, identity: caller.identity })
    return reply.code(204).send()
  })
}
