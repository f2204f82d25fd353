import { Redis } from 'ioredis'
import { type RedisService, type StartRedisOptions, startRedis } from '../../../workers/services/redis.ts'
import { onTestFinished } from '../../support/concurrent.ts'
import { connectionOptions } from '../../support/redis.ts'

/** Where a Redis is, for BullMQ: with quick reconnection, so that a test does not wait for it. */
export function quickConnection(url: string) {
  return { ...connectionOptions(url), maxRetriesPerRequest: null, retryStrategy: () => 20 }
}

/** A Redis that one test may kill, empty and fill up; it ends with the test. */
export async function startOwnRedis(options: StartRedisOptions = {}): Promise<RedisService> {
  const service = await startRedis({ ...options, ignoreGiven: true })
  onTestFinished(() => service.stop())
  return service
}

/** A client of its own, closed with the test; it tells nobody that its server is gone. */
export function adminOf(url: string): Redis {
  const admin = new Redis({ ...connectionOptions(url), retryStrategy: () => 20 })
  admin.on('error', () => {})
  onTestFinished(() => admin.disconnect())
  return admin
}
