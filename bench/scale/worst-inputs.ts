import { setTimeout as sleep } from 'node:timers/promises'
import type { ConnectionOptions, Job, Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { type Shape, ShapedFlowProducer, ShapedQueue, ShapedWorker, type ShapedWorkerOptions } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { changeFailed, type FailedChange } from '../../src/queue/failed-jobs.ts'
import { connectionTo } from '../figure.ts'
import type { RedisAddress } from '../fleet/protocol.ts'
import { addJobs, type OptionsOf } from '../queues.ts'
import { capacityFor } from './deep-queue.ts'
import { scriptOf } from './script-of.ts'

/** What makes some scripts as slow as they can be. */
export interface WorstInput {
  readonly what: string
  /** Not measured, like `clear`. */
  prepare?(round: number): Promise<unknown>
  run(round: number): Promise<unknown>
  clear?(): Promise<unknown>
}

/** A queue in which very many jobs wait. */
export interface DeepScene {
  readonly redis: Redis
  readonly near: ShapedQueue
  /** The same queue, measured, like the next two. */
  readonly far: ShapedQueue
  readonly inspector: Inspector
  readonly flows: ShapedFlowProducer
  /** That of `flows`: all scripts are defined on it. */
  readonly client: Redis
  /** That of each worker, measured. The first call of a script on a connection has its text: later rounds send none. */
  readonly workers: Redis
  readonly jobs: number
  readonly opts: OptionsOf
  readonly middle: string
}

/** @param measured what connects there is measured */
export async function openScene(
  redis: Redis,
  near: ShapedQueue,
  { measured, jobs, opts }: Pick<DeepScene, 'jobs' | 'opts'> & { readonly measured: RedisAddress },
): Promise<DeepScene> {
  const connection = connectionTo(measured)
  const client = new Redis(connection)
  const [middle] = await near.getJobs(['wait', 'prioritized'], jobs / 2, jobs / 2)
  return {
    ...{ redis, near, jobs, opts, middle: middle?.id as string },
    // One command at a time takes long.
    far: new ShapedQueue(near.name, { connection, admitTimeoutMs: 600_000 }),
    inspector: new Inspector({ connection }),
    flows: new ShapedFlowProducer({ connection: client }),
    client,
    workers: new Redis(connection),
  }
}

export async function closeScene({ far, inspector, flows, client, workers }: DeepScene): Promise<void> {
  await Promise.all([far.close(), inspector.close(), flows.close()])
  client.disconnect()
  workers.disconnect()
}

const BY = { by: 'bench', reason: 'scale' }
export const MIB = 1024 * 1024
/** The largest bulk of one script, and one in parts. */
export const BULK = 100
const ONCE = 200
const LARGE = 10_000
/** How far into the wait list a job is searched for. */
const SEARCHED = 10_000
/** More than one script starts or ends. */
export const PLACES = 300
/** Jobs that are refused never end: by then, a thousand answers were applied. */
const REFUSED_MS = 1000
const LARGE_JOBS = 40
const MOST_MS = 5000
export const HOUR_MS = 3_600_000
const FAR_MS = Date.now() + 1_000_000 * HOUR_MS

export function optionsAt({ opts }: Pick<DeepScene, 'opts'>, i: number, more: object): object {
  return { ...(typeof opts === 'function' ? opts(i) : opts), ...more }
}

function bulkOf(scene: DeepScene, count: number, more: (i: number) => object = () => ({}), data: object = {}) {
  return Array.from({ length: count }, (_, i) => ({ name: 'job', data, opts: optionsAt(scene, i, more(i)) }))
}

/** What producers send. */
export function adds(scene: DeepScene): WorstInput[] {
  const { near, far, flows } = scene
  const hasGroups = scene.opts !== undefined && 'group' in optionsAt(scene, 0, {})
  const prioritized = hasGroups ? {} : { priority: 3 }
  const mebibyte = { text: 'x'.repeat(MIB) }
  const large = Math.min(LARGE, Math.max(10 * BULK, scene.jobs / 100))
  const one = (what: string, more: object, data: object = {}): WorstInput => {
    let added: Job | undefined
    return {
      what: `add${what}`,
      run: async () => {
        added = await far.add('job', data, optionsAt(scene, 0, more))
      },
      // Workers would come to a large one while something else is measured.
      clear: async () => (await near.getJob(added?.id as string))?.remove(),
    }
  }
  const bulk = (what: string, count: number, more: (i: number) => object = () => ({}), data: object = {}) => ({
    what: `addBulk of ${count}${what}`,
    run: () => far.addBulk(bulkOf(scene, count, more, data)),
  })
  let id = 0
  const latest = (i: number) => ({ mustStartBefore: FAR_MS + i })
  return [
    one('', {}),
    one(' of 1 MiB', {}, mebibyte),
    one(' of 1 MiB with a deadline', latest(0), mebibyte),
    one(' with a deadline', latest(0)),
    one(' with a delay', { delay: HOUR_MS }),
    one(' with a priority', prioritized),
    one(' with a priority and a deadline', { ...prioritized, ...latest(0) }),
    bulk('', BULK),
    bulk(' of 5 KB', BULK, undefined, { text: 'x'.repeat(5000) }),
    bulk(' with deadlines', BULK, latest),
    bulk(' with delays', BULK, (i) => ({ delay: HOUR_MS + i })),
    bulk('', large),
    bulk(' with ids', large, () => ({ jobId: `bulk-${id++}`, deduplication: { id: `once-${id}` } })),
    ...(hasGroups ? [] : [bulk(' with the same deadline', large, () => latest(0))]),
    {
      what: `addOnce of ${ONCE}`,
      run: (round) => far.addOnce(bulkOf(scene, ONCE), { key: `once-${round}`, fingerprint: 'f', ttlMs: 60_000 }),
    },
    {
      what: `a flow of ${BULK}`,
      run: () =>
        flows.add({
          ...{ name: 'parent', queueName: near.name, opts: optionsAt(scene, 0, {}) },
          children: bulkOf(scene, BULK - 1).map((job) => ({ ...job, queueName: near.name })),
        } as Parameters<ShapedFlowProducer['add']>[0]),
    },
    { what: 'a job scheduler', run: (round) => far.upsertJobScheduler(`s-${round}`, { every: HOUR_MS }) },
  ]
}

/** Adds to a full queue, which drops other jobs for them. */
export function dropping(scene: DeepScene): WorstInput[] {
  const { near, far } = scene
  const full = async () => {
    const { depth } = await near.meter()
    await near.setShape({ capacity: depth, overflow: 'drop-oldest' }, BY)
    await far.getShape()
  }
  return [1, BULK].map((count) => ({
    what: `addBulk of ${count} to a full queue, which drops as many`,
    prepare: full,
    run: () => far.addBulk(bulkOf(scene, count)),
    clear: () => near.clearShape(BY),
  }))
}

/** @returns jobs of 1 MiB, ahead of all others, which a worker runs at once, and whose results are as large */
export function largeJobs(near: Queue, run: (jobs: number, processor: (job: Job) => Promise<string>) => Promise<void>) {
  const data = { text: 'x'.repeat(MIB) }
  let added: string[] = []
  return {
    what: `${LARGE_JOBS} of 1 MiB at once, with results of 1 MiB`,
    prepare: async () => {
      added = []
      for (let i = 0; i < LARGE_JOBS; i++) added.push((await near.add('job', data, { lifo: true })).id as string)
    },
    run: () => run(LARGE_JOBS, async (job) => job.data.text),
    clear: async () => {
      await near.clean(0, 0, 'completed')
      for (const id of added) await near.remove(id)
      await near.trimEvents(0)
    },
  }
}

/** Workers run so many jobs. */
async function work(
  { near, workers }: { near: ShapedQueue; workers: ConnectionOptions },
  jobs: number,
  options: Partial<ShapedWorkerOptions>,
  processor: (job: never) => Promise<unknown> = async () => {},
  mostMs = MOST_MS,
): Promise<void> {
  const worker = new ShapedWorker(near.name, processor as never, { connection: workers, ...options })
  await untilEnded(worker, jobs, mostMs)
}

/** Waits until so many jobs have ended, and closes the worker. */
export async function untilEnded(worker: Worker, jobs: number, mostMs = MOST_MS): Promise<void> {
  worker.on('error', () => {})
  let ended = 0
  const end = new Promise<void>((resolve) => {
    const one = () => {
      ended += 1
      if (ended >= jobs) resolve()
    }
    worker.on('completed', one)
    worker.on('failed', one)
  })
  await Promise.race([end, sleep(mostMs, undefined, { ref: false })])
  await worker.close()
}

export async function fails(): Promise<never> {
  throw new Error('bench')
}

const overloads = {
  name: 'bench',
  listen: () => [
    { feedback: { kind: 'pause', forMs: 1, hard: false, scope: 'queue', reason: 'bench' }, target: 'bench' },
  ],
}

/** What workers send. @param shape overrides that of the queue meanwhile */
export function workers(scene: DeepScene, name: string, shape: Shape): WorstInput[] {
  const { near, redis } = scene
  const dead = `${near.name}-dead`
  const many = { concurrency: PLACES }
  const held = ({ what, prepare, run, clear }: WorstInput): WorstInput => ({
    what: `${what}, ${name}`,
    prepare: async (round) => {
      await prepare?.(round)
      await near.setShape(shape as Parameters<ShapedQueue['setShape']>[0], BY)
    },
    run,
    clear: async () => {
      await near.clearShape(BY)
      await clear?.()
    },
  })
  const worst = (what: string, run: () => Promise<unknown>) => held({ what, run })
  return [
    worst(`${PLACES} at once`, () => work(scene, 3 * PLACES, many)),
    worst(`${PLACES} at once, not kept`, () => work(scene, 3 * PLACES, { ...many, removeOnComplete: { count: 0 } })),
    held(largeJobs(near, (jobs, processor) => work(scene, jobs, many, processor))),
    worst('one at once', () => work(scene, 50, {})),
    worst('results of 1 MiB', () => work(scene, 10, {}, async () => 'x'.repeat(MIB))),
    worst('jobs fail', () => work(scene, 50, { concurrency: 10 }, fails)),
    worst('jobs fail into dead letters', () => work(scene, 50, { concurrency: 10, deadLetter: dead }, fails)),
    worst('the downstream refuses', () =>
      work(scene, 100, { ...many, feedback: overloads as never }, fails, REFUSED_MS),
    ),
    {
      ...worst('costs are settled', () =>
        work(scene, 50, { concurrency: 10 }, (job: { settleCost(cost: number): Promise<void> }) => job.settleCost(2)),
      ),
      clear: async () => {
        await near.clearShape(BY)
        await redis.del(`bull:${dead}:meta:shape`)
      },
    },
  ]
}

/** A queue with few jobs, which retry and have failed: what is sent for each of them does not depend on how many wait. */
export function failures(scene: DeepScene): WorstInput[] {
  // Workers wait for a shape.
  const shape = { capacity: 100_000 }
  const small = {
    ...scene,
    near: new ShapedQueue(`${scene.near.name}-fails`, { connection: scene.near.opts.connection, shape }),
  }
  const far = new ShapedQueue(small.near.name, { connection: scene.far.opts.connection, shape })
  const dead = `${small.near.name}-dead`
  const failed = async (count: number, opts: object, options: object = {}) => {
    await addJobs(small.near, count, opts)
    await work(
      { ...small, workers: { host: '127.0.0.1', port: scene.redis.options.port as number } },
      count,
      { concurrency: 10, ...options },
      fails,
    )
  }
  const change = (what: string, change: FailedChange): WorstInput => ({
    what: `a failed job: ${what}`,
    prepare: () => failed(3, {}),
    run: async () => {
      for (const { id } of await small.near.getFailed()) await changeFailed(far as never, id as string, change)
    },
    clear: () => small.near.obliterate({ force: true }),
  })
  return [
    {
      what: 'jobs fail and wait for their next attempt',
      prepare: () => addJobs(small.near, 20, { attempts: 2, backoff: HOUR_MS }),
      run: () => work(small, 20, { concurrency: 10 }, fails),
    },
    change('retry', { kind: 'retry' }),
    change('remove', { kind: 'remove' }),
    change('bury', { kind: 'bury', to: dead }),
    {
      what: 'redrive of 20',
      prepare: () => failed(20, {}, { deadLetter: dead }),
      run: () => far.redrive({ from: dead }),
    },
    {
      what: 'the failed jobs are removed',
      run: async (round) => {
        if (round > 0) return
        await far.obliterate({ force: true })
        await Promise.all([far.close(), small.near.close()])
      },
    },
  ]
}

/** What people, programs and views send. */
export function views(scene: DeepScene): WorstInput[] {
  const { near, far, inspector, middle, jobs, redis } = scene
  const { name } = near
  const script = scriptOf(far)
  const group = 'g1'
  const isGrouped = 'group' in optionsAt(scene, 0, {})
  return [
    { what: 'meter', run: () => far.meter() },
    { what: 'status', run: () => inspector.status([name]) },
    { what: 'history', run: () => inspector.history(name) },
    { what: 'audit', run: () => inspector.audit(name) },
    { what: 'the place of a job in the middle', run: () => script('locate-job', middle, SEARCHED) },
    {
      what: 'remove of the last job',
      run: async () => script('remove-waiting', (await far.add('job', {})).id as string),
    },
    { what: 'the secret of a gateway', run: () => script('caller-secret', 'secret') },
    { what: 'setShape', run: (round) => far.setShape({ rate: `${500 + round}/s` }, BY).then(() => far.clearShape(BY)) },
    {
      what: 'pauses',
      run: async () => {
        await far.pauseUntil(Date.now() + 1000, BY)
        await far.clearPause(BY)
        await far.pause(BY)
        await far.resume(BY)
      },
    },
    {
      what: 'groups',
      run: async () => {
        await inspector.groups(name)
        if (!isGrouped) return
        await far.getGroup(group)
        await far.setGroup(group, { rate: '5/s' }, BY)
        await far.clearGroup(group, BY)
      },
    },
    {
      what: 'a program declares a shape',
      run: async (round) => {
        const rate = `${500 + round}/s`
        const shape = { rate, capacity: capacityFor(jobs), ...(isGrouped && { groups: { concurrency: 2 } }) }
        const queue = new ShapedQueue(name, { connection: far.opts.connection, shape })
        await queue.getShape()
        await queue.close()
      },
    },
    {
      what: 'a lost shape is restored',
      prepare: async () => {
        await far.getShape()
        await redis.del(`bull:${name}:meta:shape`)
      },
      run: () => far.add('job', {}),
    },
    { what: 'what is only kept for people is deleted', run: () => script('shed') },
  ]
}

/** How a job in the middle is explained: each command, not only scripts. */
export function explanation({ near, inspector, middle }: DeepScene): WorstInput {
  return { what: 'explain a job in the middle', run: () => inspector.explain(near.name, middle) }
}
