import { connect, createServer, type Socket } from 'node:net'
import { expect, onTestFinished } from 'vitest'
import { findFreePort } from '../../../workers/services/free-port.ts'
import type { RedisService } from '../../../workers/services/redis.ts'
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
  const link = await startLink(master)
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
    silence: link.silence,
    promote: async () => {
      await admin.replicaof('NO', 'ONE')
    },
  }
}

/** Passes bytes on to a server. The proxy of test/support counts replies, and a replica is not answered by replies. */
async function startLink({
  host,
  port: masterPort,
}: RedisService): Promise<{ port: number; cut(): void; silence(): void }> {
  const sockets = new Set<Socket>()
  const server = createServer((replica) => {
    const master = connect({ host, port: masterPort })
    for (const socket of [replica, master]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => cut([replica, master]))
    }
    replica.pipe(master)
    master.pipe(replica)
  })
  const cut = (ends: Iterable<Socket> = sockets) => {
    for (const socket of ends) socket.destroy()
  }
  const stop = () => {
    server.close()
    cut()
  }
  const silence = () => {
    for (const socket of sockets) socket.unpipe().pause()
  }
  onTestFinished(stop)
  const port = await findFreePort()
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  return { port, cut: stop, silence }
}
