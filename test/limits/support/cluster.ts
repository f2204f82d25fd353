import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { afterAll, beforeAll } from 'vitest'
import { type RedisService, startRedis } from '../../../workers/services/redis.ts'

const SLOTS = 16_384
const READY_TIMEOUT_MS = 15_000

/** Gives a test file a cluster of three masters, and a client of it. Call it once, at the top of the file. */
export function useCluster(): { readonly client: Cluster } {
  const nodes: RedisService[] = []
  let client: Cluster | undefined
  beforeAll(async () => {
    const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000']
    nodes.push(...(await Promise.all([1, 2, 3].map(() => startRedis({ args, ignoreGiven: true })))))
    await form(nodes)
    client = new Cluster(nodes.map(({ host, port }) => ({ host, port })))
  })
  afterAll(async () => {
    client?.disconnect()
    await Promise.all(nodes.map((node) => node.stop()))
  })
  return {
    get client() {
      return client as Cluster
    },
  }
}

/** Lets the masters know each other, each with a third of the slots. */
async function form(nodes: readonly RedisService[]): Promise<void> {
  const [first] = nodes as [RedisService]
  const admins = nodes.map(({ url }) => new Redis(url))
  try {
    for (const [i, admin] of admins.entries()) {
      const [from, to] = [Math.floor((i * SLOTS) / 3), Math.floor(((i + 1) * SLOTS) / 3) - 1]
      await admin.call('CLUSTER', 'ADDSLOTSRANGE', from, to)
      await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    }
    for (const admin of admins.slice(1)) await admin.call('CLUSTER', 'MEET', first.host, first.port)
    await untilFormed(admins)
  } finally {
    for (const admin of admins) admin.disconnect()
  }
}

// A cluster tells nobody when it has formed.
async function untilFormed(admins: readonly Redis[]): Promise<void> {
  const deadline = Date.now() + READY_TIMEOUT_MS
  for (;;) {
    const infos = await Promise.all(admins.map((admin) => admin.call('CLUSTER', 'INFO') as Promise<string>))
    if (infos.every((info) => /cluster_state:ok/.test(info) && /cluster_known_nodes:3/.test(info))) return
    if (Date.now() > deadline) throw new Error(`the cluster did not form:\n${infos.join('\n')}`)
    await sleep(20)
  }
}
