import { redisSources, SourceUnavailableError } from './redis-chain.ts'
import { REDIS_IMAGE } from './redis-docker.ts'
import type { RedisService, StartRedisOptions } from './redis-service.ts'

export type { RedisKind, RedisService, StartRedisOptions } from './redis-service.ts'

/** No source gave a Redis. The message lists what was tried and how to get one on this platform. */
export class NoRedisError extends Error {
  override readonly name = 'NoRedisError'
  /** One line for each source, in the order they were tried. */
  readonly reasons: readonly string[]

  constructor(reasons: readonly string[], platform: NodeJS.Platform) {
    const tried = reasons.map((reason) => `  - ${reason}`).join('\n')
    super(
      `No Redis found. Tried:\n${tried}\nTo get one: ${installAdvice(platform)}, or set REDIS_URL to one that runs.`,
    )
    this.reasons = reasons
  }
}

/**
 * Gives a running Redis on 127.0.0.1, ready for commands. Tried in this order: REDIS_URL, redis-server or valkey-server
 * on PATH, a Docker engine that answers, a download with apt-get that needs no root, and, only if allowed, an emulator.
 * What it started ends with this process, however that ends.
 *
 * Rejects with {@link NoRedisError} when nothing works, and with the server's own words when a Redis that was given or
 * found does not start.
 */
export async function startRedis(options: StartRedisOptions = {}): Promise<RedisService> {
  const env = { ...process.env, ...options.env }
  const reasons: string[] = []
  for (const source of redisSources) {
    try {
      return await source.start(options, env)
    } catch (error) {
      if (!(error instanceof SourceUnavailableError)) throw error
      reasons.push(error.message)
    }
  }
  throw new NoRedisError(reasons, process.platform)
}

/** The command that installs a Redis on a platform. */
export function installAdvice(platform: NodeJS.Platform): string {
  const docker = `docker run -d -p 127.0.0.1:6379:6379 ${REDIS_IMAGE}`
  if (platform === 'linux') return 'sudo apt-get install redis-server'
  if (platform === 'darwin') return 'brew install redis'
  return `${docker} and REDIS_URL=redis://127.0.0.1:6379`
}
