import type { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { QueueUnavailableError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { Fleet, idsOf } from './support/fleet.ts'
import { adminOf, quickConnection, startOwnRedis } from './support/own-redis.ts'
import { isRefusal, populate, type Refusal, refusals, reload } from './support/refusals.ts'

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
      expect(error, call).toMatchObject({ mayBeStored: false })
      const [, reason = ''] = (error as Error).message.split(' is unavailable: ')
      expect(isRefusal(new Error(reason), name), `${call}: ${reason}`).toBe(true)
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
    await fleet.until(() => fleet.errors.some(({ error }) => isRefusal(error, name)))
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

/** Resolves once Redis has refused a PING of that client because it loads its data. */
function refusedPing(client: Redis): Promise<void> {
  const ping = client.ping.bind(client)
  return new Promise((resolve) => {
    client.ping = (() => {
      const answer = ping()
      answer.catch((error: Error) => error.message.startsWith('LOADING ') && resolve())
      return answer
    }) as typeof client.ping
  })
}

// Fault table, row 40.
test('Redis loads its data anew under a worker that waits for a job: the worker asks again', async () => {
  const loading = refusals.LOADING as Refusal
  const { admin, connection, fleet, queue } = await start(loading)
  await queue.add('job', {}, { jobId: 'loaded' })
  await populate(admin)
  await admin.save()
  const worker = fleet.worker('mail', { connection })
  const backend = worker.getBackend()
  const refused = refusedPing((await backend.client) as unknown as Redis)
  // No wait ends by itself.
  const wait = backend.waitForJob.bind(backend)
  backend.waitForJob = () => wait(600)
  await fleet.until(() => fleet.completed.length === 1)
  await expect.poll(() => admin.info('clients')).toMatch(/\sblocked_clients:1\s/)
  await reload(admin, 'NOSAVE')
  await refused
  await loading.end(admin)
  await fleet.until(() => fleet.departures.length === 2)
  expect(fleet.departures.map(({ jobId }) => jobId)).toEqual(['loaded', 'loaded'])
  // Nor does a marker that was loaded stay where it is: no further one would be noticed.
  await expect.poll(() => admin.exists(queue.toKey('marker')), { timeout: 20_000 }).toBe(0)
})
