import { Redis } from 'ioredis'

const url = process.env.REDIS_URL ?? 'redis://localhost:6379'

export const connection = { url }

/** Queues and workers wait for Redis as long as it takes; a missing Redis is reported at the start. */
export async function checkRedis(): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, connectTimeout: 5000, retryStrategy: () => null })
  let reason: unknown
  redis.on('error', (error: NodeJS.ErrnoException) => {
    reason = error.message || error.code
  })
  try {
    await redis.connect()
    await redis.ping()
  } catch (error) {
    throw new Error(`no Redis at ${new URL(url).host} (${reason ?? error}): start one, or set REDIS_URL`)
  } finally {
    redis.disconnect()
  }
}
