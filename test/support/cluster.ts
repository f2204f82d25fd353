import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { RedisService } from '../../workers/services/redis.ts'

const SLOTS = 16_384
const READY_TIMEOUT_MS = 60_000

/** Arguments that make a Redis a cluster node. */
export const CLUSTER_ARGS = [
  '--cluster-enabled',
  'yes',
  '--cluster-node-timeout',
  '2000',
  '--repl-diskless-sync-delay',
  '0',
]

/** A node to be: where it is, and how the others reach it, where that is another address. */
export interface ClusterNode extends Pick<RedisService, 'url' | 'host' | 'port'> {
  readonly busPort?: number
}

/** Joins the masters to a cluster, with about as many slots each. */
export async function formCluster(nodes: readonly ClusterNode[]): Promise<void> {
  const [{ host, port, busPort = port + 10_000 }] = nodes as [ClusterNode]
  const admins = nodes.map(({ url }) => new Redis(url))
  try {
    for (const [i, admin] of admins.entries()) {
      const firstOf = (node: number) => Math.floor((node * SLOTS) / nodes.length)
      const [from, to] = [firstOf(i), firstOf(i + 1) - 1]
      await admin.call('CLUSTER', 'ADDSLOTSRANGE', from, to)
      await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    }
    for (const admin of admins.slice(1)) await admin.call('CLUSTER', 'MEET', host, port, busPort)
    await untilFormed(admins)
  } finally {
    for (const admin of admins) admin.disconnect()
  }
}

// A cluster sends no event when it has formed, so it is polled.
async function untilFormed(admins: readonly Redis[]): Promise<void> {
  const deadline = Date.now() + READY_TIMEOUT_MS
  for (;;) {
    const infos = await Promise.all(admins.map((admin) => admin.call('CLUSTER', 'INFO') as Promise<string>))
    const known = `cluster_known_nodes:${admins.length}\r`
    if (infos.every((info) => info.includes('cluster_state:ok') && info.includes(known))) return
    if (Date.now() > deadline) throw new Error(`the cluster did not form:\n${infos.join('\n')}`)
    await sleep(20)
  }
}
