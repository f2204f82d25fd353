import { expect } from 'vitest'
import type { RedisService } from '../../../workers/services/redis.ts'
import { startLink } from './link.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

/** A replica of one test, whose link to its master can be cut. */
export interface Replica {
  readonly url: string
  /** From now on nothing of the master reaches it: the link is closed. */
  cut(): Promise<void>
  /** The same, but neither side is told: a network that is gone. */
  silence(): void
  /** Makes it a master, with what it has. */
  promote(): Promise<void>
}

/** Resolves once the replica has everything that its master has. */
export async function startReplica(master: RedisService): Promise<Replica> {
  const link = await startLink(master.port)
  const service = await startOwnRedis({ args: ['--replicaof', '127.0.0.1', String(link.port)] })
  const admin = adminOf(service.url)
  const state = () => admin.info('replication')
  const told = { timeout: 20_000, interval: 20 }
  await expect.poll(state, told).toContain('master_link_status:up')
  return {
    url: service.url,
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
