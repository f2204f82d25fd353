import { expect, onTestFinished, test } from 'vitest'
import { ClusterPrefixError, ShapedFlowProducer, ShapedQueue } from '../../src/index.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { startOwnCluster } from './support/own-cluster.ts'

test('on a cluster queue, worker and flow work under a tagged prefix and are paced; an untagged one is refused', async () => {
  const connection = await startOwnCluster()
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
