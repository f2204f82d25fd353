import { setTimeout as sleep } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { expect, onTestFinished, test } from 'vitest'
import { effectId } from '../../src/effect-id.ts'
import { QueueUnavailableError, type ShapedQueue } from '../../src/index.ts'
import { worstExcess } from './support/bound.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { quickConnection, startOwnRedis } from './support/own-redis.ts'

const LOCK_MS = 1000
const RUNNING = 10
const ADDS = 10
const BUCKET = { intervalUs: 10_000, burst: 5 }
const SHAPE = { rate: '100/s', burst: BUCKET.burst, capacity: 500 }
const JOB = { name: 'job', data: {} }

/** Two workers with as many jobs in flight as they may have; these end when they are told to. */
async function start() {
  const service = await startOwnRedis()
  onTestFinished(() => void process.kill(service.pid as number, 'SIGCONT'))
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  const queue = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 300 })
  const runs: { readonly id: string; readonly effect: string }[] = []
  let end = () => {}
  const ends = new Promise<void>((resolve) => {
    end = resolve
  })
  // One that waits for as long as a busy machine may take.
  const patient = fleet.queue('mail', { connection, shape: SHAPE, admitTimeoutMs: 20_000 })
  const ids = idsOf(await patient.addBulk(Array.from({ length: 3 * RUNNING }, () => JOB)))
  await queue.waitUntilReady()
  for (let i = 0; i < 2; i++) {
    const options = { connection, concurrency: RUNNING / 2, lockDuration: LOCK_MS, stalledInterval: 300 }
    fleet.worker('mail', options, async (job) => {
      const { id, queueName, timestamp } = job as Job
      runs.push({ id: id as string, effect: effectId({ prefix: 'bull', queueName, jobId: id as string, timestamp }) })
      await ends
    })
  }
  await fleet.until(() => fleet.departures.length === RUNNING)
  return { pid: service.pid as number, fleet, queue, patient, ids, runs, end }
}

// Fault table, row 14.
test('Redis stands still for longer than a lock lasts: each job in flight runs once more at most, an admission without an answer once', async () => {
  const { pid, fleet, queue, patient, ids, runs, end } = await start()
  process.kill(pid, 'SIGSTOP')
  const stopped = sleep(2.5 * LOCK_MS)
  const calls = Array.from({ length: ADDS }, (_, i) => [
    (by: ShapedQueue) => by.add('job', {}, { jobId: `given-${i}` }),
    (by: ShapedQueue) => by.addOnce([JOB], { key: `key-${i}`, fingerprint: 'f' }),
  ]).flat()
  const errors = await Promise.all(calls.map((call) => call(queue).catch((error: unknown) => error)))
  for (const error of errors) {
    expect(error).toBeInstanceOf(QueueUnavailableError)
    expect((error as QueueUnavailableError).mayBeStored).toBe(true)
  }
  await stopped
  process.kill(pid, 'SIGCONT')
  // What could not be known is asked again.
  await Promise.all(calls.map((call) => call(patient)))
  await fleet.until(() => fleet.stalled.length === RUNNING)
  end()
  await fleet.until(() => fleet.completed.length === ids.length + calls.length)

  const first = runs.slice(0, RUNNING).map(({ id }) => id)
  const later = runs.slice(RUNNING).map(({ id }) => id)
  process.stdout.write(`${RUNNING} jobs in flight, run again ${later.filter((id) => first.includes(id)).length}\n`)
  expect(fleet.stalled.toSorted()).toEqual(first.toSorted())
  expect(new Set(later).size).toBe(later.length)
  // A sink that knows what it has seen has each effect once.
  expect(new Set(runs.map(({ effect }) => effect)).size).toBe(ids.length + calls.length)
  expect(new Set(fleet.completed).size).toBe(fleet.completed.length)
  expect(await patient.getJobCounts('completed', 'failed', 'active', 'wait')).toEqual({
    completed: ids.length + calls.length,
    failed: 0,
    active: 0,
    wait: 0,
  })
  expect(worstExcess(fleet.slotsUs, BUCKET)).toBeLessThanOrEqual(0)
})
