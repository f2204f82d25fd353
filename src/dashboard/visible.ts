import type { Identity } from '../http/door.ts'

/** Whether somebody may see a queue, and change it: a token may be for some queues alone. */
export function maySee(identity: Identity | undefined, queueName: string): boolean {
  return identity?.queues === undefined || identity.queues.includes(queueName)
}
