import type { Redis } from 'ioredis'

/** How many clients are connected to Redis. */
export async function connectionsTo(client: Redis): Promise<number> {
  return Number(/^connected_clients:(\d+)/m.exec(await client.info('clients'))?.[1])
}
