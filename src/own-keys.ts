import { ownKeysPattern } from './keys.ts'
import type { Client } from './redis-commands.ts'

/** Removes what Sluice keeps for a queue: BullMQ's obliterate knows only its own keys. */
export async function removeOwnKeys(client: Client, base: string): Promise<void> {
  const options = { MATCH: ownKeysPattern(base), COUNT: 1000 }
  let cursor = '0'
  do {
    const [next, keys] = await client.scan(cursor, options)
    if (keys.length > 0) await client.del(...keys)
    cursor = next
  } while (cursor !== '0')
}
