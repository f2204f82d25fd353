import type { Redis } from 'ioredis'
import type { RedisService } from '../../../workers/services/redis.ts'
import { expect, onTestFinished } from '../../support/concurrent.ts'
import { adminOf, startOwnRedis } from './own-redis.ts'

/** A master and its replica, of one test. */
export interface Pair {
  readonly master: RedisService
  readonly admin: Redis
  readonly replica: Redis
  /** Stops the replica's process, which stays connected. */
  freeze(): void
  /** Lets it go on; resolves once it has everything that its master has. */
  thaw(): Promise<void>
}

export async function startPair(): Promise<Pair> {
  const master = await startOwnRedis({ args: ['--repl-diskless-sync-delay', '0'] })
  const following = ['--replicaof', master.host, String(master.port)]
  const service = await startOwnRedis({ args: following })
  const replica = adminOf(service.url)
  const told = { timeout: 60_000, interval: 20 }
  await expect.poll(() => replica.info('replication'), told).toContain('master_link_status:up')
  let isFrozen = false
  const send = (signal: NodeJS.Signals, frozen: boolean) => {
    if (isFrozen !== frozen) process.kill(service.pid as number, signal)
    isFrozen = frozen
  }
  onTestFinished(() => send('SIGCONT', false))
  const admin = adminOf(master.url)
  const thaw = async () => {
    send('SIGCONT', false)
    await admin.set('caught-up', 1)
    await expect.poll(() => admin.wait(1, 1000)).toBe(1)
  }
  return { master, admin, replica, freeze: () => send('SIGSTOP', true), thaw }
}
