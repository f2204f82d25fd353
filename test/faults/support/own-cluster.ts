import { Cluster } from 'ioredis'
import { onTestFinished } from 'vitest'
import { CLUSTER_ARGS, formCluster } from '../../support/cluster.ts'
import { startOwnRedis } from './own-redis.ts'

/** A connection to three masters of its own; all of it ends with the test. */
export async function startOwnCluster(): Promise<Cluster> {
  const nodes = await Promise.all([1, 2, 3].map(() => startOwnRedis({ args: CLUSTER_ARGS })))
  await formCluster(nodes)
  const connection = new Cluster(
    nodes.map(({ host, port }) => ({ host, port })),
    { redisOptions: { maxRetriesPerRequest: null } },
  )
  onTestFinished(() => connection.disconnect())
  return connection
}
