import { once } from 'node:events'
import { Queue } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import type { QueueLimit, ShapedWorker } from '../../src/index.ts'
import { Fleet } from '../faults/support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from '../faults/support/own-redis.ts'
import { asleep } from './support/asleep.ts'
import { expectBound } from './support/bounds.ts'

const OWN: QueueLimit = { name: 'own', algorithm: 'token-bucket', rate: '1/day', burst: 5 }
const SHARED: QueueLimit = { name: 'shared', rate: '100/day', burst: 50, unit: 'tokens', shared: true }
const OVERRIDE: QueueLimit = { ...OWN, rate: '50/s', burst: 2 }

const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

async function start() {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: { limits: [OWN, SHARED] } })
  await queue.waitUntilReady()
  fleet.worker('mail', { connection, concurrency: 10 })
  await queue.addBulk(jobs(8))
  await fleet.until(() => fleet.completed.length === 5)
  return { admin: adminOf(service.url), connection, fleet, queue }
}

test('FLUSHALL: the limits are back with the shape before anything leaves, and hold', async () => {
  const { admin, fleet, queue } = await start()
  await asleep(queue, admin)
  const { revision: _before, ...declared } = (await queue.getShape()) ?? {}
  await admin.flushall()
  await queue.addBulk(jobs(9))
  await fleet.until(() => fleet.completed.length === 10)
  await asleep(queue, admin)

  const { revision: _after, ...restored } = (await queue.getShape()) ?? {}
  expect(restored).toEqual(declared)
  expect(restored).toMatchObject({ limits: [OWN, SHARED] })
  // What was charged is lost with the keys: one bucket more, not all nine.
  expect(fleet.completed).toHaveLength(10)
  expect(fleet.losses).toHaveLength(1)
})

test('after FLUSHALL a worker that declared nothing restores limits that were set at run time', async () => {
  const { admin, connection, fleet, queue } = await start()
  const [worker] = fleet.workers
  const heard = once(worker as ShapedWorker, 'shape')
  await queue.setShape({ limits: [OVERRIDE] }, { by: 'test', reason: 'incident' })
  await heard
  await queue.addBulk(jobs(40))
  await fleet.until(() => fleet.completed.length >= 10)
  await queue.close()
  await admin.flushall()
  // Nobody who knows the shape produces any more.
  const stock = new Queue('mail', { connection })
  onTestFinished(() => stock.close())
  await stock.addBulk(jobs(20).map((job, i) => ({ ...job, opts: { jobId: `after${i}` } })))
  // What was granted before and held may still start.
  const afterwards = () => fleet.departures.filter(({ jobId }) => jobId.startsWith('after'))
  await fleet.until(() => afterwards().length === 20)
  expectBound(
    OVERRIDE,
    afterwards().map(({ departureTimeUs }) => ({ slotUs: departureTimeUs, units: 1 })),
  )
  expect(JSON.parse((await admin.hget('bull:mail:meta:shape', 'limits')) as string)).toMatchObject([{ rule: OVERRIDE }])
})
