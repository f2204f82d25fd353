import { describe } from 'vitest'
import { QueueUnavailableError } from '../../src/index.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { fillDisk, freeDisk, onDisk, whyNoFullDisk } from './support/full-disk.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { Producer } from './support/producer.ts'

useConcurrentTests()

const missing = whyNoFullDisk()

const HORIZON_MS = 50
const BUCKET = { intervalUs: 10_000, burst: 5 }
const SHAPE = { rate: '100/s', burst: BUCKET.burst, capacity: 2000, horizonMs: HORIZON_MS }
const BACKLOG = 100
const CONCURRENCY = 10
const REFUSALS = 10

/** Two workers, half of a backlog left, a producer, and a disk that has just become full. */
async function start(appendfsync: 'always' | 'everysec', admitTimeoutMs: number) {
  const service = await startOwnRedis(onDisk(appendfsync))
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs })
  // The first call of a process may take longer than the other one waits.
  const patient = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 20_000 })
  const backlog = idsOf(await patient.addBulk(Array.from({ length: BACKLOG }, () => ({ name: 'job', data: {} }))))
  await queue.waitUntilReady()
  for (let i = 0; i < 2; i++) fleet.worker('mail', { connection, concurrency: CONCURRENCY })
  await fleet.until(() => fleet.departures.length >= BACKLOG / 5)
  const producer = new Producer(queue, { everyMs: 20 })
  await fillDisk(service, adminOf(service.url))
  await producer.firstRefusal
  return { service, fleet, queue, patient, backlog, producer }
}

/** Waits for the first job that starts by a slot of after that time. @returns how long that took, s */
async function firstStart(fleet: Fleet, sinceMs: number): Promise<string> {
  const isLater = () => fleet.slotsUs.some((slotUs) => slotUs > sinceMs * 1000)
  await fleet.until(isLater)
  return ((Date.now() - sinceMs) / 1000).toFixed(1)
}

/** Waits until all that was accepted has run. @returns how often a job ran again */
async function expectNoneLost({
  fleet,
  patient,
  backlog,
  producer,
}: Awaited<ReturnType<typeof start>>): Promise<number> {
  const accepted = [...backlog, ...producer.accepted]
  await fleet.until(() => accepted.every((id) => fleet.completed.includes(id)))
  const runs = fleet.departures.map(({ jobId }) => jobId)
  for (const { error, jobId } of producer.refused) {
    expect(error).toBeInstanceOf(QueueUnavailableError)
    if ((error as QueueUnavailableError).mayBeStored) continue
    expect(runs).not.toContain(jobId)
    expect(await patient.getJob(jobId)).toBeUndefined()
  }
  const again = runs.length - new Set(runs).size
  // What was in hand when the server ended may run again, and nothing else.
  expect(again).toBeLessThanOrEqual(2 * CONCURRENCY)
  const errors = fleet.errors.filter(({ error }) => !error.message.startsWith('MISCONF'))
  expect({ failed: fleet.failed, errors }).toEqual({ failed: [], errors: [] })
  // That of the server which was started again.
  expect(fleet.losses).toHaveLength(1)
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
  return again
}

// Fault table, row 39: the kernel refuses what Redis appends to its file, in the middle of a write.
describe.skipIf(missing)(`the disk of Redis is full${missing ? ` (${missing})` : ''}:`, () => {
  test('its file is synced every second: it refuses, and goes on by itself once there is room; nothing accepted is lost', async () => {
    const started = await start('everysec', 20_000)
    const { service, fleet, queue, producer } = started
    const fullMs = Date.now()
    await expect(queue.offer('job', {})).rejects.toThrow(/MISCONF/)
    await expect.poll(() => producer.refused.length).toBeGreaterThanOrEqual(REFUSALS)
    const roomMs = Date.now()
    freeDisk(service)
    const firstS = await firstStart(fleet, roomMs)
    const accepted = producer.accepted.length
    await expect.poll(() => producer.accepted.length).toBeGreaterThan(accepted)
    await producer.stop()
    // What was written in part is no part of the file that it reads now.
    await service.restart()

    const again = await expectNoneLost(started)
    for (const { error } of producer.refused)
      expect(error).toMatchObject({ mayBeStored: false, message: /MISCONF Errors writing to the AOF file/ })
    const meanwhile = fleet.slotsUs.filter((us) => us > (fullMs + HORIZON_MS) * 1000 && us < roomMs * 1000)
    expect(meanwhile).toEqual([])
    process.stdout.write(
      `full disk, everysec: ${producer.refused.length} refused, first start ${firstS} s after there was room; of ` +
        `${BACKLOG + producer.accepted.length} accepted lost 0, started again ${again}\n`,
    )
  })

  test('each command is synced: Redis ends rather than lose one, and all goes on once it is started with room', async () => {
    const started = await start('always', 300)
    const { service, fleet, producer } = started
    await expect.poll(() => service.pid).toBeUndefined()
    const roomMs = Date.now()
    await service.restart()
    const firstS = await firstStart(fleet, roomMs)
    await producer.stop()
    const again = await expectNoneLost(started)
    process.stdout.write(
      `full disk, always: Redis ended; first start ${firstS} s after its restart; of ` +
        `${BACKLOG + producer.accepted.length} accepted lost 0, started again ${again}\n`,
    )
  })
})
