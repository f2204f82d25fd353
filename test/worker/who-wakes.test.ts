import { setTimeout as delay } from 'node:timers/promises'
import type { Job } from 'bullmq'
import { type Shape, ShapedFlowProducer, type ShapedJobsOptions, type ShapedQueue } from '../../src/index.ts'
import { createLimiter, type Limiter } from '../../src/limits/index.ts'
import { installedScripts } from '../../src/redis/scripts.ts'
import { expect, test, useConcurrentTests } from '../support/concurrent.ts'
import { useRedis } from '../support/redis.ts'
import { RunningTime } from '../support/running-time.ts'
import { callsOf, departuresOf, eventsOf, gate, quiet, settled, Workshop } from './support.ts'

useConcurrentTests()
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const WHY = { by: 'test', reason: 'test' }

/** What a case is given: a queue whose workers sleep. */
interface Asleep {
  readonly queue: ShapedQueue
  /** Ends the job of that name. */
  end(name: string): void
  job(name: string): Promise<Job>
}

interface Case {
  /** Script or call of another program that makes a job startable; the test of scripts asks for each of them. */
  readonly by: string
  readonly when: string
  readonly shape: Shape
  /** Jobs in the order in which they are added; those of `runs` start first, and run until they are ended. */
  readonly runs?: readonly Added[]
  readonly waits: readonly Added[]
  readonly before?: (queue: ShapedQueue) => Promise<unknown>
  /** What follows before the workers sleep. */
  readonly also?: (asleep: Asleep) => Promise<unknown>
  readonly act: (asleep: Asleep) => Promise<unknown> | unknown
  /** The job that starts then. */
  readonly starts: string
  /** How many workers ask then: exactly one, unless said otherwise. With `any`, the case says why. */
  readonly asks?: 'all' | 'any'
  readonly workers?: number
  /** All of them wait for the marker: nothing holds the head for a time. */
  readonly marked?: true
}

type Added = readonly [name: string, opts?: ShapedJobsOptions]

const TOKENS = [{ name: 'tokens', algorithm: 'token-bucket', rate: '60/h', burst: 10, unit: 'tokens' }] as const

const [ALL, NOTHING] = [{ tokens: 10 }, { tokens: 0 }]

/** The head needs ten minutes' worth of tokens. */
const limited = {
  shape: { limits: TOKENS } as Shape,
  runs: [['spent', { costs: ALL }]] as const,
  waits: [['held', { priority: 5, costs: ALL }]] as const,
}

/** The job behind the held one takes none. */
const heldFirst: readonly Added[] = [
  ['held', { costs: ALL }],
  ['next', { costs: NOTHING }],
]

const behind = { name: 'behind', data: {}, opts: { priority: 9 } }
const before = { name: 'urgent', data: {}, opts: { priority: 1, costs: NOTHING } }

/** A job that has failed takes none either. */
const failed = {
  ...limited,
  before: async (queue: ShapedQueue) => {
    await queue.add('broken', {}, { costs: NOTHING })
    const worker = shop.worker(queue, () => Promise.reject(new Error('broken')))
    await eventsOf('failed', worker).reach(1)
    await worker.close()
  },
}

/** The same among groups. */
const groupHeld = {
  shape: { groups: {}, limits: TOKENS } as Shape,
  runs: [['spent', { group: { id: 'a' }, costs: ALL }]] as const,
  waits: [['held', { group: { id: 'a', priority: 5 }, costs: ALL }]] as const,
}

/** The rate of its group holds the only job. Workers that sleep then listen for the marker as well. */
const groupSlow = {
  shape: { groups: { rate: '1/h' } } as Shape,
  runs: [['spent', { group: { id: 'a' } }]] as const,
  waits: [['held', { group: { id: 'a' } }]] as const,
}

/** One runs and no other may; nothing waits when the workers go to sleep. */
const full = {
  marked: true as const,
  shape: { concurrency: 1 } as Shape,
  runs: [['long']] as const,
  waits: [['next']] as const,
}

const unblocked = createLimiter(client, { name: 'unblocked', prefix: redis.prefix, rate: '100/s', timeoutMs: 5000 })

/** A limit that others share has one unit an hour, which is used up. */
function usedUp(name: string, act: (limiter: Limiter) => Promise<unknown>) {
  const rule = { name, prefix: redis.prefix, algorithm: 'gcra', rate: '1/h' } as const
  const limiter = createLimiter(client, { ...rule, timeoutMs: 5000 })
  return {
    shape: { limits: [{ ...rule, shared: true, key: 'acme' }] } as Shape,
    runs: [['first']] as const,
    waits: [['next']] as const,
    act: () => act(limiter),
    starts: 'next',
  }
}

const CASES: readonly Case[] = [
  {
    by: 'override-shape',
    when: 'global concurrency is raised',
    ...full,
    act: ({ queue }) => queue.setShape({ concurrency: 2 }, WHY),
    starts: 'next',
    asks: 'all',
    // It asked when nothing waited, so it waits for a marker, which no add sets while all places are taken.
    workers: 1,
  },
  {
    by: 'block-key',
    when: 'the block of a shared limit is lifted',
    shape: { limits: [{ name: 'unblocked', shared: true, prefix: redis.prefix, key: 'acme', rate: '100/s' }] },
    before: () => unblocked.block('acme', 3_600_000),
    waits: [['held']],
    act: () => unblocked.block('acme', 0),
    starts: 'held',
  },
  {
    by: 'add',
    when: 'a job comes before the held one and takes nothing of the limit',
    ...limited,
    act: ({ queue }) => queue.add('urgent', {}, { priority: 1, costs: NOTHING }),
    starts: 'urgent',
  },
  {
    by: 'add',
    when: 'a job without a priority comes before the held one and takes the one unit that is left',
    ...limited,
    runs: [['spent', { costs: { tokens: 9 } }]],
    waits: [['held', { priority: 5, costs: { tokens: 2 } }]],
    act: ({ queue }) => queue.add('urgent', {}),
    starts: 'urgent',
    // Another one would wait for the marker.
    workers: 1,
  },
  {
    by: 'add',
    when: 'a lifo job comes before the held one',
    ...limited,
    waits: heldFirst,
    act: ({ queue }) => queue.add('urgent', {}, { lifo: true, costs: NOTHING }),
    starts: 'urgent',
  },
  {
    by: 'add-bulk',
    when: 'jobs come, one of them before the held one',
    ...limited,
    act: ({ queue }) => queue.addBulk([behind, before]),
    starts: 'urgent',
  },
  {
    by: 'add-bulk',
    when: 'jobs come, one of them before the held one, some delayed',
    ...limited,
    act: ({ queue }) => queue.addBulk([behind, before, { name: 'later', data: {}, opts: { delay: 3_600_000 } }]),
    starts: 'urgent',
  },
  {
    by: 'add-flow',
    when: 'the child of a flow comes before the held one',
    ...limited,
    act: ({ queue }) =>
      shop
        .keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
        .add({ name: 'parent', queueName: queue.name, children: [{ ...before, queueName: queue.name }] }),
    starts: 'urgent',
  },
  {
    by: 'exchange',
    when: 'a parent whose last child ends comes before the held one',
    ...limited,
    before: async (queue) => {
      const children = shop.queueNamed(`${queue.name}-children`, { rate: '100/s' })
      await children.waitUntilReady()
      await shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix })).add({
        ...before,
        queueName: queue.name,
        children: [{ name: 'child', queueName: children.name }],
      })
    },
    act: ({ queue }) => shop.worker({ name: `${queue.name}-children` }, async () => {}).waitUntilReady(),
    starts: 'urgent',
  },
  {
    by: 'promote',
    when: 'a delayed job that comes before the held one is promoted',
    ...limited,
    waits: [...limited.waits, ['urgent', { delay: 3_600_000, costs: NOTHING }]],
    act: async ({ job }) => (await job('urgent')).promote(),
    starts: 'urgent',
  },
  {
    by: 'changePriority',
    when: 'a job is moved before the held one',
    ...limited,
    waits: [...limited.waits, ['urgent', { priority: 6, costs: NOTHING }]],
    act: async ({ job }) => (await job('urgent')).changePriority({ priority: 1 }),
    starts: 'urgent',
  },
  {
    by: 'changePriority',
    when: 'the held job is moved behind another',
    ...limited,
    waits: [...limited.waits, ['next', { priority: 6, costs: NOTHING }]],
    act: async ({ job }) => (await job('held')).changePriority({ priority: 7 }),
    starts: 'next',
  },
  {
    by: 'removeJob',
    when: 'the held job is removed',
    ...limited,
    waits: heldFirst,
    act: async ({ job }) => (await job('held')).remove(),
    starts: 'next',
  },
  {
    by: 'cancel-job',
    when: 'the held job is cancelled',
    ...limited,
    waits: heldFirst,
    act: async ({ queue, job }) => queue.cancelJob((await job('held')).id as string, { reason: 'test' }),
    starts: 'next',
  },
  {
    by: 'cancel-part',
    when: 'the held job is cancelled together with others',
    ...limited,
    waits: heldFirst,
    act: ({ queue }) => queue.cancelJobs({ name: 'held' }, { reason: 'test' }),
    starts: 'next',
  },
  {
    by: 'cleanJobsInSet',
    when: 'the held job is cleaned away',
    ...limited,
    waits: [['held', { costs: ALL }], ...heldFirst.slice(1)],
    act: ({ queue }) => queue.clean(0, 1, 'wait'),
    starts: 'next',
  },
  {
    by: 'reprocessJob',
    when: 'a job that failed is retried, before the held one',
    ...failed,
    act: async ({ job }) => (await job('broken')).retry('failed'),
    starts: 'broken',
  },
  {
    by: 'moveJobsToWait',
    when: 'all jobs that failed are retried',
    ...failed,
    act: ({ queue }) => queue.retryJobs({ state: 'failed' }),
    starts: 'broken',
  },
  {
    by: 'retry-failed',
    when: 'a job that failed is retried through the command line',
    ...failed,
    act: async ({ queue, job }) =>
      queue.getBackend().store.run('retry-failed', [(await job('broken')).id as string, '']),
    starts: 'broken',
  },
  {
    by: 'drain-part',
    when: 'all waiting jobs are drained but the iteration of a scheduler',
    ...limited,
    before: (queue) =>
      queue.upsertJobScheduler(
        's',
        { every: 3_600_000, startDate: Date.now() + 3_600_000 },
        { name: 'next', opts: { costs: NOTHING } },
      ),
    waits: [['held', { costs: ALL }]],
    also: async ({ job }) => (await job('next')).promote(),
    act: ({ queue }) => queue.drain(),
    starts: 'next',
  },
  {
    by: 'add',
    when: 'the limit of the queue holds one group, and a job of another takes nothing of it',
    ...groupHeld,
    act: ({ queue }) => queue.add('urgent', {}, { group: { id: 'b' }, costs: NOTHING }),
    starts: 'urgent',
  },
  {
    by: 'add',
    when: 'the limit of the queue holds a group, and a job comes before the held one',
    ...groupHeld,
    act: ({ queue }) => queue.add('urgent', {}, { group: { id: 'a', priority: 1 }, costs: NOTHING }),
    starts: 'urgent',
  },
  {
    by: 'add-bulk',
    when: 'the limit of the queue holds one group, and jobs of others take nothing of it',
    ...groupHeld,
    act: ({ queue }) =>
      queue.addBulk([1, 2].map((i) => ({ name: `b${i}`, data: {}, opts: { group: { id: `b${i}` }, costs: NOTHING } }))),
    starts: 'b2',
  },
  {
    by: 'removeJob',
    when: 'the job of a group that the limit of the queue holds is removed',
    ...groupHeld,
    waits: [...groupHeld.waits, ['next', { group: { id: 'a', priority: 6 }, costs: NOTHING }]],
    act: async ({ job }) => (await job('held')).remove(),
    starts: 'next',
  },
  {
    by: 'add',
    when: 'all groups are held, and a job of another one comes',
    ...groupSlow,
    act: ({ queue }) => queue.add('urgent', {}, { group: { id: 'b' } }),
    starts: 'urgent',
  },
  {
    by: 'add',
    when: 'all groups are held, and a job without a group comes',
    ...groupSlow,
    act: ({ queue }) => queue.add('urgent', {}),
    starts: 'urgent',
  },
  {
    by: 'set-group',
    when: 'a group gets a higher rate',
    ...groupSlow,
    act: ({ queue }) => queue.setGroup('a', { rate: '1000/s' }, WHY),
    starts: 'held',
  },
  {
    by: 'set-group',
    when: 'a paused group is resumed',
    ...groupSlow,
    before: (queue) => queue.pauseGroup('c', WHY),
    waits: [...groupSlow.waits, ['resumed', { group: { id: 'c' } }]],
    act: ({ queue }) => queue.resumeGroup('c', WHY),
    starts: 'resumed',
  },
  {
    by: 'set-limit',
    when: 'a value of a limit by keys may have more',
    shape: { limits: [{ name: 'rpm', by: 'model', rate: '1/h' }] },
    runs: [['spent', { keys: { model: 'large' } }]],
    waits: [['held', { keys: { model: 'large' } }]],
    act: ({ queue }) => queue.setLimit('rpm', 'large', { rate: '1000/s' }, WHY),
    starts: 'held',
  },
  {
    by: 'changeDelay',
    when: 'a delayed job that comes before the held one is due sooner',
    ...limited,
    waits: [...limited.waits, ['urgent', { delay: 3_600_000, costs: NOTHING }]],
    act: async ({ job }) => (await job('urgent')).changeDelay(1),
    starts: 'urgent',
    // A sleeper, and BullMQ's marker tells one of those that wait for it when the job is due.
    asks: 'any',
  },
  {
    by: 'add',
    when: 'a delayed job that comes before the held one is due soon',
    ...limited,
    act: ({ queue }) => queue.add('urgent', {}, { delay: 1, costs: NOTHING }),
    starts: 'urgent',
    // A sleeper, and BullMQ's marker tells one of those that wait for it when the job is due.
    asks: 'any',
  },
  {
    by: 'addJobScheduler',
    when: 'a scheduler is stored whose first job comes before the held one',
    ...limited,
    act: ({ queue }) =>
      queue.upsertJobScheduler('s', { every: 3_600_000 }, { name: 'urgent', opts: { costs: NOTHING } }),
    starts: 'urgent',
  },
  {
    by: 'pause',
    marked: true,
    when: 'a queue that BullMQ has paused is resumed',
    shape: { rate: '100/s' },
    before: (queue) => queue.pause(),
    waits: [['held']],
    act: ({ queue }) => queue.resume(),
    starts: 'held',
  },
  {
    by: 'pause-meter',
    when: 'a pause of the meter is lifted',
    shape: { rate: '100/s' },
    before: (queue) => queue.pauseUntil(Date.now() + 3_600_000, { reason: 'test' }),
    waits: [['held']],
    act: ({ queue }) => queue.clearPause(),
    starts: 'held',
    // Like any change of the shape, all that sleep are told, not those that wait for the marker.
    asks: 'any',
  },
  {
    by: 'exchange',
    when: 'the job ends that has the only place of a limit',
    shape: { limits: [{ name: 'places', algorithm: 'concurrency', concurrency: 1 }] },
    runs: [['long']],
    waits: [['next']],
    act: ({ end }) => end('long'),
    starts: 'next',
    // The end takes the next job with it. Its worker may ask as well, for its other places.
    asks: 'any',
  },
  {
    by: 'exchange',
    when: 'the job ends that has the only place of the queue',
    ...full,
    act: ({ end }) => end('long'),
    starts: 'next',
    // The end takes the next job with it. Its worker may ask as well, for its other places.
    asks: 'any',
  },
  {
    by: 'reset-key',
    when: 'the state of a shared limit is reset',
    ...usedUp('reset', (limiter) => limiter.reset('acme')),
  },
  {
    by: 'settle-limit',
    when: 'units of a shared limit are given back',
    ...usedUp('rewarded', (limiter) => limiter.reward('acme', 1)),
  },
  {
    by: 'set-limit-mode',
    when: 'a shared limit is switched off',
    ...usedUp('switched', (limiter) => limiter.setMode('off')),
  },
]

/** Adds jobs; each is stored before the next. */
async function addAll(queue: ShapedQueue, added: readonly Added[]): Promise<void> {
  for (const [name, opts] of added) await queue.add(name, {}, opts)
}

test.for(CASES)('$by: $when', async (row) => {
  const { shape, runs = [], waits, before, also, act, starts, asks, marked, workers: count = 3 } = row
  // That a busy machine is late for a slot is no part of this: the job would go back, and another worker would take it.
  const queue = shop.queue({ maxLatenessMs: 60_000, ...shape })
  await queue.waitUntilReady()
  await before?.(queue)
  const ends = new Map(runs.map(([name]) => [name, gate()]))
  const workers = Array.from({ length: count }, () =>
    // They wait for the marker for a minute.
    shop.worker(queue, (job) => ends.get(job.name)?.opened ?? Promise.resolve(), { concurrency: 4, drainDelay: 60 }),
  )
  try {
    const calls = workers.map(callsOf)
    const departed = departuresOf(...workers)
    // Each of them has found nothing to do, so each waits for the marker until something is there.
    await Promise.all(calls.map((each) => each.reach(1)))
    await addAll(queue, runs)
    await departed.reach(runs.length)
    await settled(queue, client, ...calls)
    await addAll(queue, waits)
    const job = async (name: string) => (await queue.getJobs()).find((one) => one.name === name) as Job
    const asleep = { queue, end: (name: string) => ends.get(name)?.open(), job }
    await also?.(asleep)
    // One of them has learned what holds the head.
    if (!marked) while ((await client.zcard(queue.toKey('meta:sleepers'))) === 0) await delay(5)
    await settled(queue, client, ...calls)
    expect(departed.all.map(({ name }) => name)).toEqual(runs.map(([name]) => name))
    const asked = calls.map(({ all }) => all.length)
    const running = new RunningTime(client)
    await act(asleep)
    await departed.until((all) => all.slice(runs.length).some(({ name }) => name === starts))
    // Without news, a worker asks after ten seconds.
    expect(running.ms).toBeLessThan(5000)
    await quiet(client, ...calls)
    const woken = calls.filter(({ all }, i) => all.length > (asked[i] as number)).length
    if (asks !== 'any') expect(woken).toBe(asks === 'all' ? count : 1)
  } finally {
    for (const { open } of ends.values()) open()
  }
})

/** Scripts without a case: why none of them lets a job start sooner than it could, or where that is tested. */
const OTHERS: Readonly<Record<string, readonly string[]>> = {
  'it only reads, or changes nothing that holds a job any less': [
    ...['find-new', 'view', 'caller-secret', 'note-history', 'report', 'shed', 'charge-limit'],
    ...[
      'claim-places',
      'claim-shards',
      'extendLock',
      'extendLocks',
      'define-limit',
      'decide',
      'reserve',
      'extend-lease',
    ],
  ],
  'it moves or removes jobs that do not wait, or all': [
    ...['remove-failed', 'moveToWaitingChildren', 'removeUnprocessedChildren'],
    ...['obliterate', 'removeJobScheduler', 'removeOrphanedJobs'],
  ],
  'as another case, by the same function': [
    // Shapes: lua/shape/shapes.lua tells all workers.
    ...['declare-shape', 'restore-shape', 'apply-feedback', 'apply-lease', 'grant-leases'],
    // Jobs that come: lua/gate/wake.lua.
    ...['dead-letter', 'dead-letter-failed', 'redrive', 'updateJobScheduler'],
    ...['moveStalledJobsToWait', 'moveJobFromActiveToWait', 'retryJob', 'removeChildDependency'],
    // Limits: lua/limits/queue-limits.lua and control.lua.
    ...['settle-cost', 'cancel-reservation', 'release-lease'],
  ],
  'the worker that asks takes what it can and hands on the rest, or leaves its time to another': ['give-back'],
}

test('every script has a case, or a reason to have none', () => {
  const known = new Set([...CASES.map(({ by }) => by), ...Object.values(OTHERS).flat()])
  const scripts = [...installedScripts().texts().keys()]
  expect(scripts.filter((name) => !known.has(name))).toEqual([])
})
