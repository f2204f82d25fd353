import { type Job, UnrecoverableError } from 'bullmq'
import type { Cluster } from 'ioredis'
import { expect, onTestFinished, test } from 'vitest'
import { type Shape, ShapedFlowProducer, type ShapedJob, type ShapedWorker } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { createLimiter } from '../../src/limits/index.ts'
import { failureKind } from '../../src/redis/failures.ts'
import { Fleet } from './support/fleet.ts'
import { OwnCluster } from './support/own-cluster.ts'

const PREFIX = '{b}'
const IMPATIENT = { maxRedirections: 2, retryDelayOnTryAgain: 1, retryDelayOnMoved: 1, retryDelayOnClusterDown: 1 }
const SHAPE: Shape = {
  ...{ rate: '1000/s', burst: 50, capacity: 1000, maxWaitMs: 600_000, audit: 100 },
  ...{
    groups: { rate: '500/s', burst: 5, capacity: 200 },
    limits: [{ name: 'tokens', rate: '9000/day', burst: 9000, unit: 'tokens' }],
  },
}
/** Slow, so that no state expires meanwhile. */
const LIMIT = { name: 'api', prefix: PREFIX, rate: '100/day', burst: 50, maxKeys: 5, timeoutMs: 10_000 }
const jobs = (count: number, opts = {}) => Array.from({ length: count }, (_, i) => ({ name: 'job', data: { i }, opts }))

type Operations = Readonly<Record<string, () => Promise<unknown>>>

/** What a job that runs, and its worker, can be told. */
interface Running {
  readonly job: ShapedJob
  readonly worker: ShapedWorker
}

/** Each public operation that runs a script, with a client of its own. */
function operations(fleet: Fleet, connection: Cluster, { job, worker }: Running): Operations {
  const queue = fleet.queue('mail', { connection, prefix: PREFIX })
  const other = fleet.queue('other', { connection, prefix: PREFIX })
  const flows = new ShapedFlowProducer({ connection, prefix: PREFIX })
  onTestFinished(() => flows.close())
  const limiter = createLimiter(connection, LIMIT)
  const found = async (id: string) => (await queue.getJob(id)) as Job
  const why = { by: 'test', reason: 'test' }
  return {
    add: () => queue.add('job', {}),
    'add to a group': () => queue.add('job', {}, { group: { id: 'a' } }),
    'add with a delay': () => queue.add('job', {}, { delay: 60_000 }),
    'add with a priority': () => queue.add('job', {}, { priority: 3 }),
    addBulk: () => queue.addBulk(jobs(5)),
    'addBulk, large': () => queue.addBulk(jobs(210)),
    'addBulk to groups': () => queue.addBulk(jobs(5, { group: { id: 'b' } })),
    addOnce: () => queue.addOnce(jobs(2), { key: 'k', fingerprint: 'f' }),
    offer: () => queue.offer('job', {}),
    flow: () => flows.add({ name: 'p', queueName: 'mail', children: [{ name: 'c', queueName: 'mail' }] }),
    upsertJobScheduler: () => queue.upsertJobScheduler('s', { every: 3_600_000 }),
    setShape: () => queue.setShape({ burst: 40 }, why),
    clearShape: () => queue.clearShape(why),
    pauseUntil: () => queue.pauseUntil(Date.now() + 60_000, why),
    clearPause: () => queue.clearPause(why),
    pause: () => queue.pause(why),
    resume: () => queue.resume(why),
    getShape: () => queue.getShape(),
    meter: () => queue.meter(),
    setGroup: () => queue.setGroup('a', { burst: 4 }, why),
    clearGroup: () => queue.clearGroup('a', why),
    pauseGroup: () => queue.pauseGroup('b', why),
    resumeGroup: () => queue.resumeGroup('b', why),
    getGroup: () => queue.getGroup('a'),
    redrive: () => queue.redrive({ from: 'dead' }),
    getJobCounts: () => queue.getJobCounts(),
    getState: async () => (await found('waits')).getState(),
    changePriority: async () => (await found('waits')).changePriority({ priority: 2 }),
    changeDelay: async () => (await found('later')).changeDelay(90_000),
    promote: async () => (await found('due')).promote(),
    remove: async () => (await found('spare')).remove(),
    updateData: async () => (await found('waits')).updateData({}),
    log: async () => (await found('waits')).log('a line'),
    retry: async () => (await found('bad')).retry(),
    clean: () => queue.clean(60_000, 10, 'completed'),
    drain: () => other.drain(),
    feedback: () => job.feedback({ kind: 'pause', forMs: 20, reason: 'test' }),
    settleCost: () => job.settleCost(2),
    updateProgress: () => job.updateProgress(50),
    extendLock: () => job.extendLock(job.token as string, 30_000),
    rateLimit: () => worker.rateLimit(20),
    take: () => limiter.take('joe'),
    block: () => limiter.block('joe', 1),
    reset: () => limiter.reset('joe'),
  }
}

/** Jobs of each kind; one runs until the test is over. */
async function prepare(fleet: Fleet, connection: Cluster): Promise<Running> {
  const queue = fleet.queue('mail', { connection, prefix: PREFIX, shape: SHAPE })
  let end = () => {}
  const isOver = new Promise<void>((resolve) => {
    end = resolve
  })
  const process = async (job: object) => {
    if ((job as Job).name === 'fails') throw new UnrecoverableError('for good')
    running.push(job as ShapedJob)
    await isOver
  }
  const running: ShapedJob[] = []
  const limiter = createLimiter(connection, LIMIT)
  await limiter.take('joe')
  await fleet.queue('other', { connection, prefix: PREFIX, shape: SHAPE }).addBulk(jobs(5))
  await queue.add('fails', {}, { jobId: 'bad' })
  await queue.add('runs', {})
  const options = { connection, prefix: PREFIX, concurrency: 1, deadLetter: 'dead', skipStalledCheck: true }
  const worker = fleet.worker('mail', options, process)
  // Before the worker is closed.
  onTestFinished(end)
  await fleet.until(() => fleet.departures.length === 2)
  await queue.add('job', {}, { jobId: 'waits' })
  await queue.add('job', {}, { jobId: 'spare' })
  for (const jobId of ['later', 'due']) await queue.add('job', {}, { jobId, delay: 60_000 })
  for (const id of ['a', 'b']) await queue.addBulk(jobs(5, { group: { id } }))
  await expect.poll(() => running.length).toBe(1)
  return { job: running[0] as ShapedJob, worker }
}

/** Whether a failure means that nothing has happened. */
function isRefusal(error: unknown): boolean {
  const { mayBeStored = false } = error as { mayBeStored?: boolean }
  const { cause = error } = error as { cause?: unknown }
  return !mayBeStored && cause instanceof Error && failureKind(cause) === 'refused'
}

async function failuresOf(all: Operations): Promise<[string, unknown][]> {
  const outcomes = await Promise.allSettled(Object.values(all).map((one) => one()))
  return Object.keys(all).flatMap((name, i) => {
    const outcome = outcomes[i] as PromiseSettledResult<unknown>
    return outcome.status === 'rejected' ? [[name, outcome.reason] as [string, unknown]] : []
  })
}

// Fault table, row 22.
test('while a slot moves slowly, each call is refused before it changes anything, or waits until the slot has moved', async () => {
  const cluster = await OwnCluster.start()
  const fleet = new Fleet()
  const running = await prepare(fleet, cluster.connect())
  const place = await cluster.placeOf(PREFIX)
  const [impatient, patient] = [IMPATIENT, {}].map((options) => operations(fleet, cluster.connect(options), running))
  const inspector = new Inspector({ connection: cluster.connect(), prefix: PREFIX })
  await inspector.status(['mail'])

  await cluster.beginMove(place)
  const keys = (await cluster.keysAt(place.slot, place.from)).toSorted()
  await cluster.moveKeys(
    place,
    keys.filter((key, i) => i % 2 === 0 && !key.endsWith('meta:shape')),
  )
  const before = await cluster.contents(place)
  const failures = await failuresOf(impatient as Operations)
  expect(failures.filter(([, error]) => !isRefusal(error))).toEqual([])
  expect(await cluster.contents(place)).toEqual(before)
  expect(await inspector.status(['mail'])).toMatchObject([{ unread: ['queue'] }])

  await cluster.moveKeys(
    place,
    keys.filter((key) => key.endsWith('meta:shape')),
  )
  const refused = await cluster.refusals()
  const results = failuresOf(patient as Operations)
  await expect.poll(() => cluster.refusals()).toBeGreaterThan(refused + 20)
  await cluster.moveRest(place)
  await cluster.endMove(place)
  expect(await results).toEqual([])
  expect((await inspector.status(['mail']))[0]?.unread).toBeUndefined()
  expect({ losses: fleet.losses, stalled: fleet.stalled }).toEqual({ losses: [], stalled: [] })
})

test('a slot begins to move between two parts of the jobs that a closing worker gives back: none is lost or overtaken', async () => {
  const cluster = await OwnCluster.start()
  const fleet = new Fleet()
  // Slots that are far apart: a busy machine starts few of them meanwhile.
  const shape = { rate: '5/s', burst: 1, horizonMs: 60_000, groups: {} } as const
  const queue = fleet.queue('mail', { connection: cluster.connect(), prefix: PREFIX, shape })
  const ids = Array.from({ length: 120 }, (_, i) => `j${i}`)
  await queue.addBulk(ids.map((jobId) => ({ name: 'job', data: {}, opts: { jobId, group: { id: 'a' } } })))
  const worker = fleet.worker('mail', {
    connection: cluster.connect(IMPATIENT),
    ...{ prefix: PREFIX, concurrency: 110, lockDuration: 400_000 },
  })
  await expect.poll(() => queue.getActiveCount(), { timeout: 60_000 }).toBeGreaterThan(80)
  const place = await cluster.placeOf(PREFIX)
  const { store } = worker.backend
  const run = store.run.bind(store)
  let returned = 0
  let refused = 0
  store.run = async (script, args) => {
    if (script !== 'give-back') return run(script, args)
    try {
      const reply = await run(script, args)
      returned += 1
      if (returned === 1) await moveHalf(cluster, place)
      return reply
    } catch (error) {
      refused += 1
      // Half of the keys are at either node.
      if (refused === 3) await moveAll(cluster, place)
      throw error
    }
  }
  await worker.close()
  expect({ returned: returned > 1, refused: refused >= 3 }).toEqual({ returned: true, refused: true })
  expect(await queue.getActiveCount()).toBe(0)
  await queue.setShape({ rate: '10000/s' }, { by: 'test', reason: 'the rest runs at once' })
  fleet.worker('mail', { connection: cluster.connect(), prefix: PREFIX })
  await fleet.until(() => fleet.completed.length === ids.length)
  expect(fleet.completed).toEqual(ids)
  expect({ losses: fleet.losses, stalled: fleet.stalled }).toEqual({ losses: [], stalled: [] })
})

type Place = Awaited<ReturnType<OwnCluster['placeOf']>>

async function moveHalf(cluster: OwnCluster, place: Place): Promise<void> {
  await cluster.beginMove(place)
  const keys = (await cluster.keysAt(place.slot, place.from)).toSorted()
  await cluster.moveKeys(
    place,
    keys.filter((key, i) => i % 2 === 0 && !key.endsWith('meta:shape')),
  )
}

async function moveAll(cluster: OwnCluster, place: Place): Promise<void> {
  await cluster.moveRest(place)
  await cluster.endMove(place)
}
