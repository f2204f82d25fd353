import { Queue } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import { ClusterPrefixError, ShapedWorker } from '../../src/index.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { startOwnCluster } from '../faults/support/own-cluster.ts'

test('on a cluster jobs expire, leave dead letters and come back, where the prefix holds the tag', async () => {
  const connection = await startOwnCluster()
  const tagged = () => new ShapedWorker('{mail}', null, { connection, deadLetter: 'dead' })
  expect(tagged).toThrow(ClusterPrefixError)

  const fleet = new Fleet()
  const prefix = '{b}'
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '100/s' } })
  const letters = new Queue('dead', { connection, prefix })
  onTestFinished(() => letters.close())
  let left = 1
  await queue.add('fails once', {})
  fleet.worker('mail', { connection, prefix, deadLetter: 'dead' }, async () => {
    left -= 1
    if (left >= 0) throw new Error('no')
  })
  await fleet.until(() => fleet.failed.length === 1)
  expect(await letters.getWaiting()).toMatchObject([{ data: { name: 'fails once', failedReason: 'no' } }])
  expect(await queue.redrive({ from: 'dead' })).toMatchObject({ redriven: 1 })
  await fleet.until(() => fleet.completed.length === 1)

  const by = { by: 'test', reason: 'for the test' }
  await queue.pauseUntil(Date.now() + 3_600_000, { reason: 'so that it expires' })
  // Else it would be refused at once.
  await queue.setShape({ mode: 'off' }, by)
  await queue.add('expires', {}, { mustStartBefore: Date.now() + 60_000 })
  await fleet.until(() => fleet.failed.length === 2)
  expect(await letters.getWaiting()).toMatchObject([{ data: { name: 'expires' } }])

  const full = { mode: 'enforce', capacity: 1, overflow: 'drop-oldest', overflowTo: 'dead' } as const
  await queue.setShape(full, by)
  await queue.add('dropped', {})
  await queue.add('stays', {})
  expect(await letters.getWaiting()).toMatchObject([{ data: { name: 'expires' } }, { data: { name: 'dropped' } }])
  expect(await queue.getWaiting()).toMatchObject([{ name: 'stays' }])
  expect(fleet.errors).toEqual([])
})
