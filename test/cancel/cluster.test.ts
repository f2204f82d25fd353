import type { Job } from 'bullmq'
import { expect, test } from 'vitest'
import { Fleet } from '../faults/support/fleet.ts'
import { startOwnCluster } from '../faults/support/own-cluster.ts'

const WHY = { reason: 'wrong recipients', by: 'ops' }

test('on a cluster a job that waits fails, and one that runs is aborted, whichever node its worker listens to', async () => {
  const connection = await startOwnCluster()
  const fleet = new Fleet()
  const prefix = '{c}'
  const queue = fleet.queue('mail', { connection, prefix, shape: { rate: '100/s', groups: { concurrency: 1 } } })
  const begun: Job[] = []
  fleet.worker('mail', { connection, prefix, concurrency: 5 }, (job, _token, signal) => {
    begun.push(job)
    return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
  })
  const opts = { group: { id: 'a' }, attempts: 3 }
  const running = await queue.add('running', {}, opts)
  await fleet.until(() => begun.length === 1)
  const waiting = await queue.add('waiting', {}, opts)
  expect(await queue.cancelJob(waiting.id as string, WHY)).toBe('failed')
  expect(await queue.cancelJob(running.id as string, WHY)).toBe('aborting')
  await fleet.until(() => fleet.failed.length === 1)
  expect(await running.getState()).toBe('failed')
  const last = await queue.add('last', {}, opts)
  await fleet.until(() => begun.length === 2)
  expect(await queue.cancelJobs({ group: 'a' }, WHY)).toEqual({ failed: 0, removed: 0, aborting: 1, stalled: 0 })
  await fleet.until(() => fleet.failed.length === 2)
  expect((await queue.getJob(last.id as string))?.failedReason).toBe('cancelled by ops: wrong recipients')
  expect(fleet.errors).toEqual([])
})
