import { Redis } from 'ioredis'
import type { RedisService } from './redis-service.ts'

const CONNECT_TIMEOUT_MS = 5000

/** The Redis that REDIS_URL names. Rejects when it does not answer PING within 5 s: it is never replaced. */
export async function useGivenRedis(url: string): Promise<RedisService> {
  const client = new Redis(url, { lazyConnect: true, connectTimeout: CONNECT_TIMEOUT_MS, retryStrategy: () => null })
  // The rejection of connect() or ping() below says the same.
  client.on('error', () => {})
  try {
    await client.connect()
    await client.ping()
  } catch (error) {
    throw new Error(`REDIS_URL names ${withoutSecrets(url)}, which does not answer PING: ${(error as Error).message}`, {
      cause: error,
    })
  } finally {
    client.disconnect()
  }
  const refuse = () => Promise.reject(new Error(`the Redis of REDIS_URL is not ours to kill or restart`))
  return {
    url,
    host: client.options.host ?? '127.0.0.1',
    port: client.options.port ?? 6379,
    kind: 'given',
    source: `the Redis of REDIS_URL (${withoutSecrets(url)})`,
    pid: undefined,
    kill: refuse,
    restart: refuse,
    stop: async () => {},
  }
}

function withoutSecrets(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//')
}
