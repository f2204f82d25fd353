import type { Job } from 'bullmq'
import { vi } from 'vitest'
import { effectId } from '../../src/effect-id.ts'
import { QueueUnavailableError, type Shape, type ShapedQueue } from '../../src/index.ts'
import type { RedisService } from '../../workers/services/redis.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'

useConcurrentTests()

const ADMIT_TIMEOUT_MS = 300
const BUCKET = { intervalUs: 10_000, burst: 5 }
const SHAPE = { rate: '100/s', burst: 5, capacity: 2000 }
/** It takes longer to fill than a server to restart: what is let through because its state is lost shows. */
const LARGE_BUCKET = { intervalUs: 50_000, burst: 30 }
const HORIZON_MS = 50

async function start(
  persistence: 'aof' | 'none',
  shape: Shape = SHAPE,
  process: (job: { id?: string }) => Promise<unknown> = async () => {},
) {
  const service = await startOwnRedis({ persistence })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape, admitTimeoutMs: ADMIT_TIMEOUT_MS })
  const patient = fleet.queue('mail', { connection, shape, admitTimeoutMs: 20_000 })
  await patient.waitUntilReady()
  await patient.setShape({ capacity: 1500 }, { by: 'test', reason: 'incident' })
  for (let i = 0; i < 2; i++) fleet.worker('mail', { connection, concurrency: 10 }, process)
  const jobs = Array.from({ length: 60 }, (_, i) => ({ name: 'job', data: {}, opts: { jobId: `first${i}` } }))
  // The first call of a process may take longer than the other one waits.
  await patient.addBulk(jobs)
  await queue.waitUntilReady()
  return { service, fleet, queue, patient }
}

/** Kills the server while jobs come and go, lets three admissions fail and starts it again. */
async function crash(service: RedisService, fleet: Fleet, queue: ShapedQueue, departures = 30): Promise<Producer> {
  await fleet.until(() => fleet.departures.length >= departures / 2)
  const producer = new Producer(queue)
  await fleet.until(() => fleet.departures.length >= departures)
  await service.kill()
  await Promise.all([
    expect(queue.add('job', {})).rejects.toThrow(QueueUnavailableError),
    expect(queue.offer('job', {})).rejects.toThrow(QueueUnavailableError),
    producer.firstRefusal,
  ])
  await producer.stop()
  await service.restart()
  return producer
}

// Fault table, row 6.
test('Redis killed and restarted with its AOF: nothing accepted is lost, nothing leaves faster', async () => {
  const { service, fleet, queue, patient } = await start('aof')
  const producer = await crash(service, fleet, queue)
  const expected = [...Array.from({ length: 60 }, (_, i) => `first${i}`), ...producer.accepted]
  await fleet.until(() => expected.every((id) => fleet.completed.includes(id)))

  expect(producer.refused.length).toBeGreaterThan(0)
  for (const { error, afterMs, jobId } of producer.refused) {
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect(afterMs).toBeLessThan(ADMIT_TIMEOUT_MS + 500)
    const { mayBeStored } = error as QueueUnavailableError
    if (!mayBeStored) expect(await patient.getJob(jobId)).toBeUndefined()
  }
  const { delayed, failed } = await patient.getJobCounts('delayed', 'failed')
  expect({ delayed, failed, reported: fleet.failed }).toEqual({ delayed: 0, failed: 0, reported: [] })
  const runs = fleet.departures.map(({ jobId }) => jobId)
  // What was in hand at the kill may run again, and nothing else.
  expect(runs.length - new Set(runs).size).toBeLessThanOrEqual(2 * 10)
  expect(await patient.getShape()).toMatchObject({ rate: '100/s', burst: 5, capacity: 1500 })
  expect(fleet.losses).toHaveLength(1)
  expect(fleet.errors).toEqual([])
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})

// Fault table, row 7.
test.each([
  ['hold', 0],
  ['burst', LARGE_BUCKET.burst + (HORIZON_MS * 1000) / LARGE_BUCKET.intervalUs],
] as const)(
  'Redis restarted empty (%s): the shape is back, the bound holds, new jobs leave, and an old id is a new job',
  async (onStateLoss, mostAbove) => {
    const effects = new Map<string, Set<string>>()
    const shape = { rate: '20/s', burst: LARGE_BUCKET.burst, capacity: 2000, horizonMs: HORIZON_MS, onStateLoss }
    const { service, fleet, queue, patient } = await start('none', shape, async (job) => {
      const { id = '', queueName, timestamp } = job as Job
      const effect = effectId({ prefix: 'bull', queueName, jobId: id, timestamp })
      effects.set(id, (effects.get(id) ?? new Set()).add(effect))
    })
    const many = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))
    const before = idsOf(await patient.addBulk(many(30)))
    await crash(service, fleet, queue, LARGE_BUCKET.burst + 10)
    const after = idsOf(await patient.addBulk(many(LARGE_BUCKET.burst + 10)))
    await patient.add('job', {}, { jobId: 'first0' })
    await fleet.until(() => after.every((id) => fleet.completed.includes(id)) && effects.get('first0')?.size === 2)

    expect(await patient.getShape()).toMatchObject({ rate: '20/s', burst: LARGE_BUCKET.burst, capacity: 1500 })
    expect(fleet.losses).toMatchObject([{ policy: onStateLoss }])
    // What ran when Redis was killed is no longer known.
    const errors = fleet.errors.filter(({ error }) => !/^Missing (lock|key) for job/.test(error.message))
    expect({ failed: fleet.failed, errors }).toEqual({ failed: [], errors: [] })
    expect(new Set([...before, ...after]).size).toBe(before.length + after.length)
    const excess = worstExcess(fleet.slotsUs, LARGE_BUCKET)
    globalThis.process.stdout.write(`empty (${onStateLoss}): above the rate by ${Math.max(0, excess).toFixed(1)}\n`)
    expect(excess).toBeLessThanOrEqual(mostAbove)
  },
)

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
  await vi.waitFor(() => queue.add('job', {}, { jobId: 'later' }), 60_000)
  const patient = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 20_000 })
  expect(await patient.getJob('given-up')).toBeUndefined()
})
