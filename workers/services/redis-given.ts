import { checkRedis } from 'sluice-programs'
import type { RedisService } from './redis-service.ts'

const PROTOCOLS = ['redis:', 'rediss:']

/** The Redis that REDIS_URL names. Rejects when it cannot be used, as the programs do: it is never replaced. */
export async function useGivenRedis(url: string): Promise<RedisService> {
  if (!URL.canParse(url) || !PROTOCOLS.includes(new URL(url).protocol)) {
    throw new Error(`REDIS_URL: expected a redis:// or rediss:// URL, got another text of ${url.length} characters`)
  }
  await checkRedis(url).catch((error: Error) => {
    throw new Error(`REDIS_URL: ${error.message}`, { cause: error })
  })
  const { hostname, port } = new URL(url)
  const refuse = () => Promise.reject(new Error(`the Redis of REDIS_URL is not ours to kill or restart`))
  return {
    url,
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port || 6379),
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
