import type { Redis } from 'ioredis'
import { Inspector, type QueueStatus } from '../../src/inspect/index.ts'
import type { TestRedis } from '../support/redis.ts'
import type { Workshop } from '../worker/support.ts'

/** An inspector of the test's Redis, closed after the test. */
export function inspectorOf(redis: TestRedis, shop: Workshop): Inspector {
  return shop.keep(new Inspector({ connection: redis.connection, prefix: redis.prefix }))
}

/** The status of a queue that has to be there. */
export async function statusOf(inspector: Inspector, name: string): Promise<QueueStatus> {
  const [status] = await inspector.status([name])
  if (!status) throw new Error(`expected queue "${name}" to exist`)
  return status
}

/** How often something is written to Redis while a function runs. */
export async function writesOn(client: Redis, run: () => Promise<unknown>): Promise<number> {
  await client.ping()
  const { stream } = client
  const { write } = stream
  let writes = 0
  stream.write = ((...args: Parameters<typeof write>) => {
    writes += 1
    return write.apply(stream, args)
  }) as typeof write
  await run()
  stream.write = write
  return writes
}
