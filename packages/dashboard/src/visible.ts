import { isDeepStrictEqual } from 'node:util'
import type { EffectiveShape } from 'sluice'
import type { GroupHolder } from 'sluice/inspect'
import type { Identity } from 'sluice-gateway'
import { ProblemError } from 'sluice-gateway/internal'

/** Whether the caller may see and change a queue: a token may be restricted to some queues. */
export function maySee(identity: Identity | undefined, queueName: string): boolean {
  return identity?.queues === undefined || identity.queues.includes(queueName)
}

/**
 * Checks another queue that a field names. The response is the same whether or not it exists.
 * @throws ProblemError 403
 */
export function checkReach(identity: Identity | undefined, queueName: string): void {
  if (maySee(identity, queueName)) return
  throw new ProblemError(403, `this token is not for the queue ${JSON.stringify(queueName)}`)
}

/** Jobs of other queues may hold the places of a shared limit: a token that is restricted to some queues does not see them. */
export function withoutForeign<T extends { readonly holders: readonly GroupHolder[] }>(
  identity: Identity | undefined,
  found: T,
): T {
  if (identity?.queues === undefined) return found
  return { ...found, holders: found.holders.filter(({ queue }) => queue === undefined) }
}

/**
 * Checks what an override affects besides its own queue: the queue that dropped jobs go to, limits shared with other
 * queues, and `durability`, which lets everything on the same connection wait for replicas. Values that the queue
 * already has are allowed.
 * @param has the shape before the change
 * @throws ProblemError 403
 */
export function checkShapeReach(
  identity: Identity | undefined,
  override: Readonly<Record<string, unknown>>,
  has: EffectiveShape | undefined,
): void {
  if (identity?.queues === undefined) return
  const { overflowTo, limits, durability } = override
  const had = (field: 'overflowTo' | 'limits' | 'durability') => [has?.[field], has?.declared[field]?.value]
  if (typeof overflowTo === 'string' && !had('overflowTo').includes(overflowTo)) checkReach(identity, overflowTo)
  if (durability && !had('durability').some((one) => isDeepStrictEqual(one, durability))) {
    throw new ProblemError(403, 'this token is limited to some queues: it cannot make calls wait for replicas')
  }
  const known = had('limits').flat()
  const foreign = [limits]
    .flat()
    .find((limit) => isShared(limit) && !known.some((one) => isDeepStrictEqual(one, limit)))
  if (foreign === undefined) return
  throw new ProblemError(403, 'this token is limited to some queues: it cannot set a limit that others share')
}

function isShared(limit: unknown): boolean {
  return typeof limit === 'object' && limit !== null && Boolean((limit as { shared?: unknown }).shared)
}
