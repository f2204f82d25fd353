import type { RedisService, StartRedisOptions } from '../../../workers/services/redis.ts'
import { expect } from '../../support/concurrent.ts'
import { startLink } from './link.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

/** A replica of one test, whose link to its master can be cut. */
export interface Replica {
  readonly url: string
  readonly service: RedisService
  /** From now on nothing of the master reaches it: the link is closed. */
  cut(): Promise<void>
  /** The same, but neither side is told: a network that is gone. */
  silence(): void
  /** Makes it a master, with what it has. */
  promote(): Promise<void>
}

/** Resolves once the replica has everything that its master has. */
export async function startReplica(master: RedisService, options: StartRedisOptions = {}): Promise<Replica> {
  const link = await startLink(master.port)
  const service = await startOwnRedis(options)
  const admin = adminOf(service.url)
  // Not by an argument: once promoted, it is to be a master after a restart too.
  await admin.replicaof('127.0.0.1', link.port)
  const state = () => admin.info('replication')
  const told = { timeout: 60_000, interval: 20 }
  await expect.poll(state, told).toContain('master_link_status:up')
  return {
    url: service.url,
    service,
    cut: async () => {
      link.cut()
      await expect.poll(state, told).toContain('master_link_status:down')
    },
    silence: () => link.silence(),
    promote: async () => {
      await admin.replicaof('NO', 'ONE')
    },
  }
}
