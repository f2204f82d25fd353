import { expect, test } from 'vitest'
import { QueueUnavailableError, type ShapedQueue } from '../../src/index.ts'
import type { RedisService } from '../../workers/services/redis.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet } from './support/fleet.ts'
import { quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'

const ADMIT_TIMEOUT_MS = 300
const BUCKET = { intervalUs: 10_000, burst: 5 }
const SHAPE = { rate: '100/s', burst: 5, capacity: 2000 }

async function start(persistence: 'aof' | 'none') {
  const service = await startOwnRedis({ persistence })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: ADMIT_TIMEOUT_MS })
  const patient = fleet.queue('mail', { connection, shape: SHAPE })
  await patient.waitUntilReady()
  await queue.setShape({ capacity: 1500 }, { by: 'test', reason: 'incident' })
  for (let i = 0; i < 2; i++) fleet.worker('mail', { connection, concurrency: 10 })
  const jobs = Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: {}, opts: { jobId: `first${i}` } }))
  // The first call of a process may take longer than the other one waits.
  await patient.addBulk(jobs)
  await queue.waitUntilReady()
  return { service, fleet, queue, patient }
}

/** Kills the server while jobs come and go, lets three admissions fail and starts it again. */
async function crash(service: RedisService, fleet: Fleet, queue: ShapedQueue): Promise<Producer> {
  await fleet.until(() => fleet.departures.length >= 15)
  const producer = new Producer(queue)
  await fleet.until(() => fleet.departures.length >= 30)
  await service.kill()
  await expect(queue.add('job', {})).rejects.toThrow(QueueUnavailableError)
  await expect(queue.offer('job', {})).rejects.toThrow(QueueUnavailableError)
  await producer.stop()
  await service.restart()
  return producer
}

test('Redis killed and restarted with its AOF: nothing accepted is lost, nothing leaves faster', async () => {
  const { service, fleet, queue } = await start('aof')
  const producer = await crash(service, fleet, queue)
  const expected = [...Array.from({ length: 60 }, (_, i) => `first${i}`), ...producer.accepted]
  await fleet.until(() => expected.every((id) => fleet.completed.includes(id)))

  expect(producer.refused.length).toBeGreaterThan(0)
  for (const { error, afterMs, jobId } of producer.refused) {
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect(afterMs).toBeLessThan(ADMIT_TIMEOUT_MS + 500)
    const { mayBeStored } = error as QueueUnavailableError
    if (!mayBeStored) expect(await queue.getJob(jobId)).toBeUndefined()
  }
  const { delayed, failed } = await queue.getJobCounts('delayed', 'failed')
  expect({ delayed, failed, reported: fleet.failed }).toEqual({ delayed: 0, failed: 0, reported: [] })
  const runs = fleet.departures.map(({ jobId }) => jobId)
  // What was in hand at the kill may run again, and nothing else.
  expect(runs.length - new Set(runs).size).toBeLessThanOrEqual(2 * 10)
  expect(await queue.getShape()).toMatchObject({ rate: '100/s', burst: 5, capacity: 1500 })
  expect(fleet.losses).toHaveLength(1)
  expect(fleet.errors).toEqual([])
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
}, 30_000)

test('Redis restarted empty: the shape is put back, the bound holds, and new jobs leave', async () => {
  const { service, fleet, queue, patient } = await start('none')
  await crash(service, fleet, queue)
  const jobs = await patient.addBulk(Array.from({ length: 30 }, () => ({ name: 'job', data: {} })))
  await fleet.until(() => jobs.every(({ id }) => fleet.completed.includes(id as string)))

  expect(await queue.getShape()).toMatchObject({ rate: '100/s', burst: 5, capacity: 1500 })
  expect(fleet.losses).toHaveLength(1)
  expect(fleet.failed).toEqual([])
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
}, 30_000)

test('a job whose admission was given up before it was sent is not added once Redis comes', async () => {
  const service = await startOwnRedis({ persistence: 'aof' })
  await service.kill()
  const fleet = new Fleet()
  const connection = quickConnection(service.url)
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: ADMIT_TIMEOUT_MS })
  const given = await queue.add('job', {}, { jobId: 'given-up' }).catch((error: unknown) => error)
  expect(given).toBeInstanceOf(QueueUnavailableError)
  expect((given as QueueUnavailableError).mayBeStored).toBe(false)

  await service.restart()
  await queue.waitUntilReady()
  await queue.add('job', {}, { jobId: 'later' })
  expect(await queue.getJob('given-up')).toBeUndefined()
})
