import { setTimeout as sleep } from 'node:timers/promises'
import { type Job, type Queue, Worker } from 'bullmq'
import type { Redis } from 'ioredis'
import { type Shape, ShapedFlowProducer, ShapedQueue, ShapedWorker, type ShapedWorkerOptions } from 'sluice'
import { Inspector } from 'sluice/inspect'
import { createLimiter } from 'sluice/limits'
import { simulate } from '../packages/cli/src/simulate/simulation.ts'
import type { ShapedBackend } from '../src/backend/backend.ts'
import { changeFailed, type FailedChange } from '../src/queue/failed-jobs.ts'
import { addJobs, jobsFrom, type OptionsOf } from './harness/queues.ts'
import { capacityFor } from './scale.ts'

/** What makes some scripts as slow as they can be. */
export interface WorstInput {
  readonly what: string
  /** Not measured, like `clear`. */
  prepare?(round: number): Promise<unknown>
  run(round: number): Promise<unknown>
  clear?(): Promise<unknown>
}

/** A queue in which very many jobs wait, BullMQ's own or a shaped one. */
export interface Scene<Q extends Queue = Queue> {
  readonly near: Q
  /** The same queue, measured. */
  readonly far: Q
  /** Not measured. */
  readonly redis: Redis
  /** Of what is measured: all scripts are defined on it. */
  readonly client: Redis
  /** That of each worker, measured. The first call of a script on a connection has its text: later rounds send none. */
  readonly workers: Redis
  readonly jobs: number
  readonly opts: OptionsOf
}
type ShapedScene = Scene<ShapedQueue>

const BY = { by: 'bench', reason: 'scale' }
const MIB = 1024 * 1024
/** The largest bulk of one script, and one in parts. */
const BULK = 100
const ONCE = 200
const LARGE = 10_000
/** How far into the wait list a job is searched for. */
const SEARCHED = 10_000
/** More than one script starts or ends. */
const PLACES = 300
const MANY = { concurrency: PLACES }
const LARGE_JOBS = 40
const MOST_MS = 5000
/** Jobs that are refused never end: by then, a thousand answers were applied. */
const REFUSED_MS = 1000
const HOUR_MS = 3_600_000
const FAR_MS = Date.now() + 1_000_000 * HOUR_MS

/** Runs scripts of a queue. The types of the package do not show them. */
function scriptsOf(queue: ShapedQueue) {
  const { store } = queue.backend as unknown as ShapedBackend
  return (file: string, ...args: (string | number)[]) => store.run(file, args)
}

function optionsAt({ opts }: Pick<Scene, 'opts'>, i: number, more: object = {}): object {
  return { ...(typeof opts === 'function' ? opts(i) : opts), ...more }
}

const isGrouped = (scene: Scene) => 'group' in optionsAt(scene, 0)

type More = (i: number) => object

function bulkOf(scene: Scene, count: number, more?: More, data: object = {}) {
  return jobsFrom(0, count, (i) => optionsAt(scene, i, more?.(i))).map((job) => ({ ...job, data }))
}

function oneAdd(scene: Scene, what: string, more: object, data: object = {}): WorstInput {
  const { near, far } = scene
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

function oneBulk(scene: Scene, what: string, count: number, more?: More, data?: object): WorstInput {
  return { what: `addBulk of ${count}${what}`, run: () => scene.far.addBulk(bulkOf(scene, count, more, data)) }
}

const priorityOf = (scene: Scene) => (isGrouped(scene) ? {} : { priority: 3 })

/** What producers send, to any queue. */
function commonAdds(scene: Scene): WorstInput[] {
  return [
    oneAdd(scene, '', {}),
    oneAdd(scene, ' of 1 MiB', {}, { text: 'x'.repeat(MIB) }),
    oneAdd(scene, ' with a delay', { delay: HOUR_MS }),
    oneAdd(scene, ' with a priority', priorityOf(scene)),
    oneBulk(scene, '', BULK),
    { what: 'a job scheduler', run: (round) => scene.far.upsertJobScheduler(`s-${round}`, { every: HOUR_MS }) },
  ]
}

export function adds(scene: ShapedScene): WorstInput[] {
  const { near, far } = scene
  const flows = new ShapedFlowProducer({ connection: scene.client })
  const large = Math.min(LARGE, Math.max(10 * BULK, scene.jobs / 100))
  const latest = (i: number) => ({ mustStartBefore: FAR_MS + i })
  let id = 0
  return [
    ...commonAdds(scene),
    oneAdd(scene, ' of 1 MiB with a deadline', latest(0), { text: 'x'.repeat(MIB) }),
    oneAdd(scene, ' with a deadline', latest(0)),
    oneAdd(scene, ' with a priority and a deadline', { ...priorityOf(scene), ...latest(0) }),
    oneBulk(scene, ' of 5 KB', BULK, undefined, { text: 'x'.repeat(5000) }),
    oneBulk(scene, ' with deadlines', BULK, latest),
    oneBulk(scene, ' with delays', BULK, (i) => ({ delay: HOUR_MS + i })),
    oneBulk(scene, '', large),
    oneBulk(scene, ' with ids', large, () => ({ jobId: `bulk-${id++}`, deduplication: { id: `once-${id}` } })),
    ...(isGrouped(scene) ? [] : [oneBulk(scene, ' with the same deadline', large, () => latest(0))]),
    {
      what: `addOnce of ${ONCE}`,
      run: (round) => far.addOnce(bulkOf(scene, ONCE), { key: `once-${round}`, fingerprint: 'f', ttlMs: 60_000 }),
    },
    {
      what: `a flow of ${BULK}`,
      run: () =>
        flows.add({
          ...{ name: 'parent', queueName: near.name, opts: optionsAt(scene, 0) },
          children: bulkOf(scene, BULK - 1).map((job) => ({ ...job, queueName: near.name })),
        } as Parameters<ShapedFlowProducer['add']>[0]),
    },
  ]
}

/** Adds to a full queue, which drops other jobs for them. */
export function dropping(scene: ShapedScene): WorstInput[] {
  const { near, far } = scene
  return [1, BULK].map((count) => ({
    what: `addBulk of ${count} to a full queue, which drops as many`,
    prepare: async () => {
      const { depth } = await near.meter()
      await near.setShape({ capacity: depth, overflow: 'drop-oldest' }, BY)
      await far.getShape()
    },
    run: () => far.addBulk(bulkOf(scene, count)),
    clear: () => near.clearShape(BY),
  }))
}

type Processor = (job: never) => Promise<unknown>
/** Lets a worker run so many jobs. */
type Run = (jobs: number, options?: Partial<ShapedWorkerOptions>, processor?: Processor) => Promise<void>

/** Waits until so many jobs have ended, and closes the worker. */
async function untilEnded(worker: Worker, jobs: number, mostMs = MOST_MS): Promise<void> {
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

const succeeds: Processor = async () => {}
const fails: Processor = async () => {
  throw new Error('bench')
}

function shapedRun({ near, workers }: Pick<ShapedScene, 'near' | 'workers'>, mostMs?: number): Run {
  return (jobs, options = {}, processor = succeeds) =>
    untilEnded(new ShapedWorker(near.name, processor as never, { connection: workers, ...options }), jobs, mostMs)
}

/** What workers send, of any queue. */
function commonWork({ near }: Scene, run: Run): WorstInput[] {
  const data = { text: 'x'.repeat(MIB) }
  let added: string[] = []
  return [
    { what: `${PLACES} at once`, run: () => run(3 * PLACES, MANY) },
    { what: `${PLACES} at once, not kept`, run: () => run(3 * PLACES, { ...MANY, removeOnComplete: { count: 0 } }) },
    {
      // Ahead of all others.
      what: `${LARGE_JOBS} of 1 MiB at once, with results of 1 MiB`,
      prepare: async () => {
        added = []
        for (let i = 0; i < LARGE_JOBS; i++) added.push((await near.add('job', data, { lifo: true })).id as string)
      },
      run: () => run(LARGE_JOBS, MANY, async (job: Job) => job.data.text),
      clear: async () => {
        await near.clean(0, 0, 'completed')
        for (const id of added) await near.remove(id)
        await near.trimEvents(0)
      },
    },
    { what: 'one at once', run: () => run(50) },
    { what: 'results of 1 MiB', run: () => run(10, {}, async () => 'x'.repeat(MIB)) },
    { what: 'jobs fail', run: () => run(50, { concurrency: 10 }, fails) },
  ]
}

const PAUSE = { kind: 'pause', forMs: 1, hard: false, scope: 'queue', reason: 'bench' }
const OVERLOADS = { name: 'bench', listen: () => [{ feedback: PAUSE, target: 'bench' }] }
const settles = (job: { settleCost(cost: number): Promise<void> }) => job.settleCost(2)

/** @param shape overrides that of the queue meanwhile */
export function work(scene: ShapedScene, name: string, shape: Shape): WorstInput[] {
  const { near, redis } = scene
  const dead = `${near.name}-dead`
  const ten = { concurrency: 10 }
  const run = shapedRun(scene)
  const refused = { ...MANY, feedback: OVERLOADS as never }
  const inputs: WorstInput[] = [
    ...commonWork(scene, run),
    { what: 'jobs fail into dead letters', run: () => run(50, { ...ten, deadLetter: dead }, fails) },
    { what: 'the downstream refuses', run: () => shapedRun(scene, REFUSED_MS)(100, refused, fails) },
    {
      what: 'costs are settled',
      run: () => run(50, ten, settles),
      clear: () => redis.del(`bull:${dead}:meta:shape`),
    },
  ]
  return inputs.map((input) => ({
    what: `${input.what}, ${name}`,
    prepare: async (round) => {
      await input.prepare?.(round)
      await near.setShape(shape as Parameters<ShapedQueue['setShape']>[0], BY)
    },
    run: input.run,
    clear: async () => {
      await near.clearShape(BY)
      await input.clear?.()
    },
  }))
}

export function drain({ far }: Scene): WorstInput {
  return { what: 'drain', run: (round) => (round === 1 ? far.drain(true) : Promise.resolve()) }
}

/** What BullMQ's own producers and workers send, with the same words. */
export function stockInputs(scene: Scene): WorstInput[] {
  const { near, far, workers } = scene
  const run: Run = (jobs, options = {}, processor = succeeds) =>
    untilEnded(new Worker(near.name, processor as never, { connection: workers, ...(options as object) }), jobs)
  const removing = async () => (await far.add('job', {}, optionsAt(scene, 0))).remove()
  return [
    ...commonAdds(scene),
    ...commonWork(scene, run),
    { what: 'remove of the last job', run: removing },
    drain(scene),
  ]
}

/** A queue with few jobs, which retry and have failed: what is sent for each of them does not depend on how many wait. */
export function failures(scene: ShapedScene): WorstInput[] {
  const name = `${scene.near.name}-fails`
  const dead = `${name}-dead`
  const ten = { concurrency: 10 }
  // Workers wait for a shape.
  const shape = { capacity: 100_000 }
  const near = new ShapedQueue(name, { connection: scene.near.opts.connection, shape })
  const far = new ShapedQueue(name, { connection: scene.far.opts.connection, shape })
  const failed = async (count: number, options: object = {}) => {
    await addJobs(near, count)
    await shapedRun({ near, workers: scene.redis })(count, { ...ten, ...options }, fails)
  }
  const change = (what: string, change: FailedChange): WorstInput => ({
    what: `a failed job: ${what}`,
    prepare: () => failed(3),
    run: async () => {
      for (const { id } of await near.getFailed()) await changeFailed(far as never, id as string, change)
    },
    clear: () => near.obliterate({ force: true }),
  })
  return [
    {
      what: 'jobs fail and wait for their next attempt',
      prepare: () => addJobs(near, 20, { attempts: 2, backoff: HOUR_MS }),
      run: () => shapedRun({ near, workers: scene.workers })(20, ten, fails),
    },
    change('retry', { kind: 'retry' }),
    change('remove', { kind: 'remove' }),
    change('deadLetter', { kind: 'deadLetter', to: dead }),
    {
      what: 'redrive of 20',
      prepare: () => failed(20, { deadLetter: dead }),
      run: () => far.redrive({ from: dead }),
    },
    {
      what: 'the failed jobs are removed',
      run: async (round) => {
        if (round > 0) return
        await far.obliterate({ force: true })
        await Promise.all([far.close(), near.close()])
      },
    },
  ]
}

/** What people, programs and views send. */
export function views(scene: ShapedScene, middle: string): WorstInput[] {
  const { near, far, jobs, redis } = scene
  const { name } = near
  const inspector = new Inspector({ connection: scene.client })
  const script = scriptsOf(far)
  const group = 'g1'
  return [
    { what: 'meter', run: () => far.meter() },
    { what: 'status', run: () => inspector.status([name]) },
    { what: 'history', run: () => inspector.history(name) },
    { what: 'audit', run: () => inspector.audit(name) },
    {
      what: 'the place of a job in the middle',
      run: () => script('view', 'place', JSON.stringify({ id: middle, searched: SEARCHED }), '', ''),
    },
    {
      what: 'cancel of the last job',
      run: async () => far.cancelJob((await far.add('job', {})).id as string, { reason: 'scale', remove: true }),
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
        if (!isGrouped(scene)) return
        await far.getGroup(group)
        await far.setGroup(group, { rate: '5/s' }, BY)
        await far.clearGroup(group, BY)
      },
    },
    {
      what: 'a program declares a shape',
      run: async (round) => {
        const groups = isGrouped(scene) && { groups: { concurrency: 2 } }
        const shape = { rate: `${500 + round}/s`, capacity: capacityFor(jobs), ...groups }
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

/** How a job in the middle is explained: other commands than scripts can be slow, too. */
export function explanation({ near, client }: ShapedScene, middle: string): WorstInput {
  const inspector = new Inspector({ connection: client })
  return { what: 'explain a job in the middle', run: () => inspector.explain(near.name, middle) }
}

const TOGETHER = 1000
const SHARDS = 64

/** What limiters send. */
export function limiters(redis: Redis): WorstInput[] {
  // One command at a time takes long.
  const timeoutMs = 60_000
  const log = createLimiter(redis, { timeoutMs, name: 'log', algorithm: 'sliding-window-log', rate: '1000000/hour' })
  const wide = createLimiter(redis, { timeoutMs, name: 'wide', rate: '1000000/s', burst: 1_000_000 })
  const slow = createLimiter(redis, { timeoutMs, name: 'slow', rate: '100/s' })
  const leases = createLimiter(redis, { timeoutMs, name: 'leases', algorithm: 'concurrency', concurrency: 100_000 })
  const together = <T>(take: (i: number) => Promise<T>) =>
    Promise.all(Array.from({ length: TOGETHER }, (_, i) => take(i)))
  return [
    { what: `${TOGETHER} decisions at once`, run: () => together((i) => wide.take(i)) },
    { what: `${TOGETHER} charges of one log`, run: () => together(() => log.take('a')) },
    {
      what: `${TOGETHER} leases`,
      run: async () => {
        const taken = await together(() => leases.take('a'))
        await taken[0]?.lease?.extend()
        await Promise.all(taken.map(({ lease }) => lease?.release()))
      },
    },
    {
      what: 'penalties, blocks, modes',
      run: async (round) => {
        await createLimiter(redis, { timeoutMs, name: `new-${round}`, rate: '5/s' }).take('a')
        await log.penalty('a', 100)
        await log.reward('a', 100)
        await log.block('b', 1000)
        await log.reset('a')
        await log.setMode('shadow')
        await log.setMode(null)
      },
    },
    {
      what: 'turns that are waited for, and given back',
      run: async () => {
        const stop = new AbortController()
        const waits = Array.from({ length: 50 }, () => slow.wait('a', { signal: stop.signal }).catch(() => {}))
        await waits[0]
        stop.abort()
        await Promise.all(waits)
      },
    },
  ]
}

/** What sharded queues and simulations send. */
export function otherPrograms(redis: Redis): WorstInput[] {
  const shape = { rate: '6400/s', burst: SHARDS, capacity: 100_000, concurrency: 1000 }
  return [
    {
      what: `the ledger of ${SHARDS} shards`,
      run: async (round) => {
        const queue = new ShapedQueue(`sharded-${round}`, { connection: redis, shape })
        await queue.add('job', {})
        const script = scriptsOf(queue)
        await script('claim-shards', SHARDS, '1')
        const [, report] = (await script('apply-lease', '', '', '', '', '', '')) as [number, string]
        for (let i = 0; i < 3; i++) {
          const [, nowUs] = (await script('grant-leases', SHARDS, '', '1')) as [number, string]
          await script('grant-leases', SHARDS, nowUs, '1', ...Array.from({ length: SHARDS }, () => report))
        }
        await queue.close()
      },
    },
    {
      what: 'one value of a limit, and jobs that are cancelled together',
      run: async (round) => {
        const limited = { capacity: 1000, limits: [{ name: 'rpm', by: 'model', rate: '5/s' }] } as const
        const queue = new ShapedQueue(`limited-${round}`, { connection: redis, shape: limited })
        await queue.addBulk(jobsFrom(0, BULK, () => ({ keys: { model: 'a' } }) as object))
        await queue.setLimit('rpm', 'a', { rate: '10/s' }, BY)
        await queue.chargeLimit('rpm', 'a', 3)
        await queue.cancelJobs({ name: 'job' }, { reason: BY.reason })
        await queue.close()
      },
    },
    {
      what: 'a simulation',
      run: async () => {
        const arrival = { cost: 1, priority: 0, delayMs: 0 }
        const arrivals = Array.from({ length: 20_000 }, (_, i) => ({ ...arrival, atUs: i * 1000 }))
        await simulate(redis, { rate: '900/s', capacity: 1000 }, arrivals as never)
      },
    },
  ]
}
