import { Cluster } from 'ioredis'
import { afterAll, beforeAll } from 'vitest'
import { type RedisService, startRedis } from '../../../workers/services/redis.ts'
import { CLUSTER_ARGS, formCluster } from '../../support/cluster.ts'

/** How many scripts each master ran meanwhile. */
export async function scriptsOfNodes(cluster: Cluster, act: () => Promise<unknown>): Promise<number[]> {
  const nodes = cluster.nodes('master')
  await Promise.all(nodes.map((node) => node.config('RESETSTAT')))
  await act()
  const stats = await Promise.all(nodes.map((node) => node.info('commandstats')))
  return stats.map((text) => {
    // A call that found no library was sent again.
    const ran = text.matchAll(/^cmdstat_(?:eval(?:sha)?|fcall):calls=(\d+).*failed_calls=(\d+)/gm)
    return [...ran].reduce((sum, [, calls, failed]) => sum + Number(calls) - Number(failed), 0)
  })
}

/** Gives a test file a cluster of three masters, and a client of it. Call it once, at the top of the file. */
export function useCluster(): { readonly client: Cluster } {
  const nodes: RedisService[] = []
  let client: Cluster | undefined
  beforeAll(async () => {
    nodes.push(...(await Promise.all([1, 2, 3].map(() => startRedis({ args: CLUSTER_ARGS, ignoreGiven: true })))))
    await formCluster(nodes)
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
