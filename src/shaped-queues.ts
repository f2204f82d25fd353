import { queueNameOf, shapedQueuesKey } from './keys.ts'
import type { Client } from './redis-commands.ts'

/** Commands of ioredis that BullMQ's client does not know. */
interface SetCommands {
  sadd(key: string, member: string): Promise<number>
  srem(key: string, member: string): Promise<number>
}

/** Whoever looks for shaped queues finds this one. */
export async function enlistShapedQueue(client: Client, base: string): Promise<void> {
  await (client as unknown as SetCommands).sadd(shapedQueuesKey(base), queueNameOf(base))
}

/** It is gone. */
export async function delistShapedQueue(client: Client, base: string): Promise<void> {
  await (client as unknown as SetCommands).srem(shapedQueuesKey(base), queueNameOf(base))
}
