import { OBLITERATED, ownKeysPattern, wakeChannel } from './keys.ts'
import type { Client } from './redis-commands.ts'
import { delistShapedQueue } from './shaped-queues.ts'

/**
 * Removes what Sluice keeps for a queue, which BullMQ's obliterate does not know, and tells the workers that live to
 * forget its shape.
 */
export async function removeOwnKeys(client: Client, base: string): Promise<void> {
  // A node of a cluster tells of no keys but its own.
  for (const node of client.nodes?.() ?? [client]) {
    const found: AsyncIterable<string[]> = node.scanStream({ match: ownKeysPattern(base), count: 1000 })
    for await (const keys of found) if (keys.length > 0) await client.del(...keys)
  }
  await delistShapedQueue(client, base)
  const publisher = client as unknown as { publish(channel: string, message: string): Promise<number> }
  await publisher.publish(wakeChannel(base), OBLITERATED)
}
