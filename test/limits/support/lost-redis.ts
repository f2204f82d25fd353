import type { Redis } from 'ioredis'
import { onTestFinished } from '../../support/concurrent.ts'
import { type RedisProxy, startProxy } from '../../support/proxy.ts'
import type { ClientOptions, TestRedis } from '../../support/redis.ts'

export interface Link {
  readonly client: Redis
  readonly proxy: RedisProxy
}

/** A client that reaches Redis through a proxy, and reconnects quickly. */
export async function throughProxy(redis: TestRedis, options: ClientOptions = {}): Promise<Link> {
  const proxy = await startProxy(redis.url)
  const { host, port } = proxy
  const client = redis.client({ host, port, retryStrategy: () => 20, ...options })
  client.on('error', () => {})
  onTestFinished(async () => {
    client.disconnect()
    await proxy.stop()
  })
  await client.ping()
  return { client, proxy }
}

/** Resolves when the client says so; `once` of node:events would end with each error on the way. */
export const until = (client: Redis, event: 'connect' | 'ready' | 'close' | 'end') =>
  new Promise<void>((resolve) => client.once(event, () => resolve()))

export async function takeAway({ client, proxy }: Link): Promise<void> {
  const closed = until(client, 'close')
  await proxy.refuse()
  await closed
}

export async function giveBack({ client, proxy }: Link): Promise<void> {
  const ready = until(client, 'ready')
  await proxy.resume()
  await ready
}
