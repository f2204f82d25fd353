import type { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { QueueUnavailableError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { type Refusal, refusals } from './support/refusals.ts'

const jobs = (count: number) => Array.from({ length: count }, () => ({ name: 'job', data: {} }))

const ADMIT_TIMEOUT_MS = 500

async function start({ args = [] }: Refusal) {
  const service = await startOwnRedis({ args })
  const connection = quickConnection(service.url)
  const fleet = new Fleet()
  // That a busy machine is late for a slot is no part of this.
  const shape = { rate: '200/s', capacity: 1000, maxLatenessMs: 60_000 }
  const open = (admitTimeoutMs = ADMIT_TIMEOUT_MS) => fleet.queue('mail', { connection, shape, admitTimeoutMs })
  const queue = open()
  // Where Redis does answer.
  const patient = open(20_000)
  await Promise.all([queue.waitUntilReady(), patient.waitUntilReady()])
  const flows = new ShapedFlowProducer({ connection })
  flows.on('error', () => {})
  onTestFinished(() => flows.close())
  await flows.waitUntilReady()
  return { admin: adminOf(service.url), connection, fleet, queue, patient, open, flows }
}

/** Every way to add jobs, and to change what holds them. */
function callsOf(queue: ShapedQueue, flows: ShapedFlowProducer): Record<string, () => Promise<unknown>> {
  const who = { by: 'test', reason: 'test' }
  return {
    add: () => queue.add('job', {}),
    'add, with a priority': () => queue.add('job', {}, { priority: 2 }),
    'add, with a delay': () => queue.add('job', {}, { delay: 60_000 }),
    'add, twice at once': () => Promise.all([queue.add('job', {}), queue.add('job', {})]),
    addBulk: () => queue.addBulk(jobs(3)),
    'addBulk, in parts': () => queue.addBulk(jobs(450)),
    addOnce: () => queue.addOnce(jobs(2), { key: 'k', fingerprint: 'f' }),
    addWhenFree: () => queue.addWhenFree('job', {}),
    offer: () => queue.offer('job', {}),
    upsertJobScheduler: () => queue.upsertJobScheduler('tick', { every: 60_000 }),
    flow: () => flows.add({ name: 'parent', queueName: 'mail', children: [{ name: 'child', queueName: 'mail' }] }),
    setShape: () => queue.setShape({ rate: '200/s' }, who),
    pauseUntil: () => queue.pauseUntil(Date.now() + 1, { reason: 'test' }),
  }
}

async function dbsize(admin: Redis): Promise<number> {
  return (await admin.keys('bull:mail:*')).length
}

describe.each(Object.entries(refusals))('Redis answers %s', (name, refusal) => {
  test('calls fail at once with QueueUnavailableError and the reason, and store nothing', async () => {
    const { admin, queue, patient, flows } = await start(refusal)
    const before = await dbsize(admin)
    await refusal.begin(admin)
    for (const [call, run] of Object.entries(callsOf(queue, flows))) {
      const error = await run().catch((reason: unknown) => reason)
      expect(error, call).toBeInstanceOf(QueueUnavailableError)
      expect(error, call).toMatchObject({ mayBeStored: false, message: expect.stringContaining(`${name} `) })
    }
    await refusal.end(admin)
    expect(await dbsize(admin)).toBe(before)
    for (const [call, run] of Object.entries(callsOf(patient, flows))) await expect(run(), call).resolves.not.toThrow()
  })

  test('workers that ask meanwhile, and programs that start meanwhile, go on once it is over', async () => {
    const { admin, connection, fleet, patient, open } = await start(refusal)
    const ids = idsOf(await patient.addBulk(jobs(60)))
    fleet.worker('mail', { connection, concurrency: 2 })
    await fleet.until(() => fleet.departures.length >= 5)
    await refusal.begin(admin)
    await fleet.until(() => fleet.errors.some(({ error }) => error.message.startsWith(name)))
    const late = open()
    fleet.worker('mail', { connection, concurrency: 2 })
    // If its last call was on its way when it was given up, the job is there.
    const add = () => late.add('job', {}, { jobId: 'late' })
    await expect(add()).rejects.toBeInstanceOf(QueueUnavailableError)
    await refusal.end(admin)
    await late.waitUntilReady()
    const added = () =>
      add().then(
        ({ id }) => id,
        () => undefined,
      )
    await expect.poll(added).toBe('late')
    ids.push('late')
    await fleet.until(() => fleet.completed.length === ids.length)
    expect(fleet.completed.toSorted()).toEqual(ids.toSorted())
    expect(fleet.departures).toHaveLength(ids.length)
  })
})
