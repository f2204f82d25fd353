import { OBLITERATED, ownKeysPattern, wakeChannel } from './keys.ts'
import type { Client } from './redis-commands.ts'

/**
 * Removes what Sluice keeps for a queue, which BullMQ's obliterate does not know, and tells the workers that live to
 * forget its shape.
 */
export async function removeOwnKeys(client: Client, base: string): Promise<void> {
  const options = { MATCH: ownKeysPattern(base), COUNT: 1000 }
  let cursor = '0'
  do {
    const [next, keys] = await client.scan(cursor, options)
    if (keys.length > 0) await client.del(...keys)
    cursor = next
  } while (cursor !== '0')
  const publisher = client as unknown as { publish(channel: string, message: string): Promise<number> }
  await publisher.publish(wakeChannel(base), OBLITERATED)
}
