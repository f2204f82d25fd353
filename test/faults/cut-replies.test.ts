import { expect, onTestFinished, test } from 'vitest'
import { startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection } from './support/own-redis.ts'
import { asks, ends, runs } from './support/scripts.ts'

const redis = useRedis(import.meta.url)

test('connections cut in the middle of replies: nothing crashes, nothing is lost or done twice', async () => {
  const { prefix } = redis
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const fleet = new Fleet()
  const queue = fleet.queue('cut', { connection, prefix, shape: { rate: '200/s', burst: 10, capacity: 500 } })
  await queue.waitUntilReady()
  for (let i = 0; i < 2; i++) fleet.worker('cut', { connection, prefix, concurrency: 10, lockDuration: 5000 })
  const ids = idsOf(await queue.addBulk(Array.from({ length: 50 }, () => ({ name: 'job', data: {} }))))
  await fleet.until(() => fleet.departures.length >= 10)

  for (const [sent, deliverBytes] of [
    [asks, 60],
    [ends, 5],
    [asks, 3],
    [ends, 1],
  ] as const) {
    const cut = proxy.dropReplyOf(sent, 1, { deliverBytes })
    ids.push(...idsOf(await Promise.all(Array.from({ length: 15 }, () => queue.add('job', {})))))
    await cut
  }
  for (const name of ['add', 'add-bulk']) {
    const cut = proxy.dropReplyOf(runs(name), 1, { deliverBytes: 7 })
    const bulk = queue.addBulk([{ name: 'job', data: {} }])
    ids.push(...idsOf([await queue.add('job', {}), ...(await bulk)]))
    await cut
  }
  await fleet.until(() => ids.every((id) => fleet.completed.includes(id)))

  expect(await queue.getJobCounts('completed', 'failed', 'active', 'waiting')).toEqual({
    completed: ids.length,
    failed: 0,
    active: 0,
    waiting: 0,
  })
  expect({ failed: fleet.failed, errors: fleet.errors }).toEqual({ failed: [], errors: [] })
  expect(fleet.departures.map(({ jobId }) => jobId).sort()).toEqual([...ids].sort())
  expect(worstExcess(fleet.slotsUs, { intervalUs: 5000, burst: 10 })).toBeLessThanOrEqual(0)
})
