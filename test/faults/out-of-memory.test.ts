import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import { QueueUnavailableError } from '../../src/index.ts'
import { dumpQueue } from './support/dump.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'

const MAX_ERRORS_A_SECOND = 25
const WATCHED_MS = 2000

/** Leaves the server without memory for anything new. */
async function fillUp(admin: Redis): Promise<void> {
  await admin.config('SET', 'maxmemory', '1')
}

async function giveMemory(admin: Redis): Promise<void> {
  await admin.config('SET', 'maxmemory', '0')
}

async function start() {
  const service = await startOwnRedis()
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: { rate: '200/s', burst: 5, capacity: 1000 } })
  await queue.waitUntilReady()
  return { admin: adminOf(service.url), connection, fleet, queue }
}

test('Redis out of memory: admissions are refused as unavailable and nothing is half written', async () => {
  const { admin, queue } = await start()
  await queue.add('job', {})
  const before = await dumpQueue(admin, 'bull:mail:')
  await fillUp(admin)
  const attempts = [
    () => queue.add('job', {}),
    () => queue.add('job', {}, { jobId: 'given', priority: 2 }),
    () => queue.add('job', {}, { delay: 1000 }),
    () => queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'job', data: {} }))),
    () => queue.addBulk(Array.from({ length: 250 }, () => ({ name: 'job', data: {} }))),
    () => queue.offer('job', {}),
  ]
  for (const attempt of attempts) {
    const error = await attempt().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect((error as QueueUnavailableError).mayBeStored).toBe(false)
  }
  expect(await dumpQueue(admin, 'bull:mail:')).toEqual(before)
  await giveMemory(admin)
  await queue.add('job', {})
})

test('Redis out of memory: a worker does not ask in a tight loop, and drains everything once there is memory', async () => {
  const { admin, connection, fleet, queue } = await start()
  const ids = idsOf(await queue.addBulk(Array.from({ length: 60 }, () => ({ name: 'job', data: {} }))))
  fleet.worker('mail', { connection, concurrency: 10 }, () => sleep(5))
  await fleet.until(() => fleet.departures.length >= 10)
  await fillUp(admin)
  const errorsBefore = fleet.errors.length
  await sleep(WATCHED_MS)
  const errors = fleet.errors.slice(errorsBefore)
  expect(errors.length).toBeGreaterThan(0)
  expect(errors.length / (WATCHED_MS / 1000)).toBeLessThanOrEqual(MAX_ERRORS_A_SECOND)
  await giveMemory(admin)
  await fleet.until(() => fleet.completed.length === ids.length)
  expect(fleet.failed).toEqual([])
  expect(await queue.getJobCounts('completed', 'failed', 'active')).toEqual({ completed: 60, failed: 0, active: 0 })
}, 30_000)
