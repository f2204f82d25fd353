import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster, Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { ClusterPrefixError, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import type { RedisService } from '../../workers/services/redis.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { startOwnRedis } from './support/own-redis.ts'

const SLOTS = 16_384
const READY_TIMEOUT_MS = 15_000

/** Three masters that know each other, each with a third of the slots. */
async function startCluster(): Promise<RedisService[]> {
  const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000']
  const nodes = await Promise.all([1, 2, 3].map(() => startOwnRedis({ args })))
  const admins = nodes.map(({ url }) => new Redis(url))
  try {
    const [first] = nodes as [RedisService]
    for (const [i, admin] of admins.entries()) {
      const [from, to] = [Math.floor((i * SLOTS) / 3), Math.floor(((i + 1) * SLOTS) / 3) - 1]
      await admin.call('CLUSTER', 'ADDSLOTSRANGE', from, to)
      await admin.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    }
    for (const admin of admins.slice(1)) await admin.call('CLUSTER', 'MEET', first.host, first.port)
    await untilFormed(admins)
    return nodes
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

test('on a cluster queue, worker and flow work under a tagged prefix and are paced; an untagged one is refused', async () => {
  const nodes = await startCluster()
  const connection = new Cluster(
    nodes.map(({ host, port }) => ({ host, port })),
    { redisOptions: { maxRetriesPerRequest: null } },
  )
  onTestFinished(() => connection.disconnect())
  expect(() => new ShapedQueue('mail', { connection })).toThrow(ClusterPrefixError)
  expect(() => new ShapedQueue('mail', { connection })).toThrow(/'\{bull\}'/)

  const fleet = new Fleet()
  const prefix = '{b}'
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '100/s', burst: 3, capacity: 60 } })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  const bulk = await queue.addBulk(Array.from({ length: 30 }, () => ({ name: 'job', data: {} })))
  const flow = await flows.add({
    name: 'parent',
    queueName: 'mail',
    children: [1, 2].map(() => ({ name: 'child', queueName: 'mail' })),
  })
  const ids = idsOf([...bulk, flow.job, ...(flow.children ?? []).map(({ job }) => job)])
  fleet.worker('mail', { connection, prefix, concurrency: 10 })
  await fleet.until(() => fleet.completed.length === ids.length)
  expect([...fleet.completed].sort()).toEqual([...ids].sort())
  expect(worstExcess(fleet.slotsUs, { intervalUs: 10_000, burst: 3 })).toBeLessThanOrEqual(0)
  expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })

  await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {}, opts: { delay: 60_000 } })))
  await expect(queue.add('job', {})).rejects.toThrow('is full (60 of 60)')
}, 30_000)
