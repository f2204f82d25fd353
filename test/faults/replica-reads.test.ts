import type { Redis } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { Inspector } from '../../src/inspect/index.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { ReplicatedCluster } from './support/replicated-cluster.ts'

const PREFIX = '{b}'
/** Commands that read keys. */
const READS =
  /^cmdstat_(get|hget|hmget|hgetall|llen|lrange|lindex|lpos|zcard|zrange\w*|zrevrange\w*|zscore|xrange|xrevrange|smembers|exists):calls/gm

const readsOf = async (node: Redis) => ((await node.info('commandstats')).match(READS) ?? []).length

test('an inspector whose ioredis reads from replicas sees what one of the masters sees, and asks no master', async () => {
  const cluster = await ReplicatedCluster.start()
  await cluster.untilReplicasServe()
  const fleet = new Fleet()
  const queue = fleet.queue('mail', {
    connection: cluster.connect(),
    prefix: PREFIX,
    shape: {
      ...{ rate: '1/h', capacity: 100, groups: {}, durability: { replicas: 1 } },
      limits: [{ name: 'tenant', by: 'group', algorithm: 'fixed-window', rate: '100/day' }],
    },
  })
  const bulk = Array.from({ length: 20 }, (_, i) => ({ name: 'job', data: {}, opts: { group: { id: `g${i % 3}` } } }))
  const [first = ''] = idsOf(await queue.addBulk(bulk))
  const [master, replica] = [await cluster.masterOf(PREFIX), await cluster.replicaOf(await cluster.masterOf(PREFIX))]
  const inspectorOf = (scaleReads: 'master' | 'slave') => {
    const inspector = new Inspector({ connection: cluster.connect({ scaleReads }), prefix: PREFIX })
    onTestFinished(() => inspector.close())
    return inspector
  }
  /** All that is asked of a queue, without what the time between two looks changes. */
  const look = async (inspector: Inspector) => {
    const [status] = await inspector.status(['mail'])
    const { depth, waiting, capacity } = (status ?? {}) as unknown as Record<string, unknown>
    return {
      ...{ depth, waiting, capacity, queues: await inspector.queues(), shape: status?.shape },
      jobs: (await inspector.jobs('mail', 'prioritized')).map(({ id }) => id),
      job: (await inspector.job('mail', first))?.id,
      explained: (await inspector.explain('mail', first))?.state,
      groups: (await inspector.groups('mail'))?.counts,
      overrides: await inspector.groupOverrides('mail'),
      history: (await inspector.history('mail')).length,
      series: await inspector.series('mail'),
      audit: await inspector.audit('mail'),
    }
  }
  const seen = await look(inspectorOf('master'))
  expect(seen).toMatchObject({ queues: ['mail'], job: first, shape: { capacity: 100 } })
  expect(seen.jobs).toHaveLength(20)
  for (const { admin } of [master, replica]) await admin.config('RESETSTAT')
  expect(await look(inspectorOf('slave'))).toEqual(seen)
  expect(await readsOf(master.admin)).toBe(0)
  expect(await readsOf(replica.admin)).toBeGreaterThan(5)
})
