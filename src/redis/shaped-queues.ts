import type { Client, PlainCommands } from './commands.ts'
import { OBLITERATED, queueNameOf, shapedQueuesKey, shapeKey, wakeChannel } from './keys.ts'

/** Lists the queue for tools that look for shaped queues. */
export async function enlistShapedQueue(client: Client, base: string): Promise<void> {
  await (client as unknown as PlainCommands).sadd(shapedQueuesKey(base), queueNameOf(base))
}

/**
 * Removes Sluice's keys of a queue, which BullMQ's obliterate does not know, and tells live workers to forget its
 * shape.
 */
export async function removeOwnKeys(client: Client, base: string): Promise<void> {
  const others: string[] = []
  const match = `${base.replace(/[*?[\]\\]/g, '\\$&')}meta:*`
  // A node of a cluster lists only its own keys.
  for (const node of client.nodes?.() ?? [client]) {
    const found: AsyncIterable<string[]> = node.scanStream({ match, count: 1000 })
    for await (const keys of found) others.push(...keys)
  }
  // Keys whose loss a worker detects are deleted last, together with the message: it restores a shape unless it knows
  // of the removal.
  const last = [shapeKey(base), `${base}meta:meter`]
  for (let at = 0; at < others.length; at += 1000) {
    const keys = others.slice(at, at + 1000).filter((key) => !last.includes(key))
    if (keys.length > 0) await client.del(...keys)
  }
  const plain = client as unknown as PlainCommands
  // Jobs that were removed while their group waited have called a worker.
  await Promise.all([client.del(...last, `${base}marker`), plain.publish(wakeChannel(base), OBLITERATED)])
  await plain.srem(shapedQueuesKey(base), queueNameOf(base))
}
