import type { Client } from './commands.ts'
import { OBLITERATED, ownKeysPattern, queueNameOf, shapedQueuesKey, wakeChannel } from './keys.ts'

/** Commands of ioredis that BullMQ's client type lacks. */
interface SetCommands {
  sadd(key: string, member: string): Promise<number>
  srem(key: string, member: string): Promise<number>
}

/** Lists the queue for tools that look for shaped queues. */
export async function enlistShapedQueue(client: Client, base: string): Promise<void> {
  await (client as unknown as SetCommands).sadd(shapedQueuesKey(base), queueNameOf(base))
}

async function delistShapedQueue(client: Client, base: string): Promise<void> {
  await (client as unknown as SetCommands).srem(shapedQueuesKey(base), queueNameOf(base))
}

/**
 * Removes Sluice's keys of a queue, which BullMQ's obliterate does not know, and tells live workers to forget its
 * shape.
 */
export async function removeOwnKeys(client: Client, base: string): Promise<void> {
  // A node of a cluster lists only its own keys.
  for (const node of client.nodes?.() ?? [client]) {
    const found: AsyncIterable<string[]> = node.scanStream({ match: ownKeysPattern(base), count: 1000 })
    for await (const keys of found) if (keys.length > 0) await client.del(...keys)
  }
  await delistShapedQueue(client, base)
  const publisher = client as unknown as { publish(channel: string, message: string): Promise<number> }
  await publisher.publish(wakeChannel(base), OBLITERATED)
}
