import { Worker } from 'bullmq'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { extendProfile, profiles } from '../../src/egress/index.ts'
import { createShapedBackend, ShapedFlowProducer, type ShapedQueue, type ShapedQueueOptions } from '../../src/index.ts'
import { type RedisProxy, startProxy } from '../support/proxy.ts'
import { useRedis } from '../support/redis.ts'
import { dumpQueue } from './support/dump.ts'
import { Fleet } from './support/fleet.ts'
import { quickConnection } from './support/own-redis.ts'
import { asks, ends, runs } from './support/scripts.ts'

const redis = useRedis(import.meta.url)

/** What a scenario works with: a queue whose connection goes through a proxy. */
interface Stage {
  readonly queue: ShapedQueue
  readonly fleet: Fleet
  readonly connection: ReturnType<typeof quickConnection> & { connectionName: string }
  readonly prefix: string
  readonly name: string
  /** From now on the reply of the scenario's script is dropped, once. */
  arm(): void
}

interface Scenario {
  /** Its name, or whether a command as sent runs it. */
  readonly script: string | ((command: readonly string[]) => boolean)
  /** Events that BullMQ's script emits each time. */
  readonly repeated?: readonly string[]
  /** Of the queue. Default: paced and bounded. */
  readonly shape?: Parameters<ShapedQueue['setShape']>[0] | null
  run(stage: Stage): Promise<unknown>
}

/** A job that is late on a busy machine would go back: it runs once all the same, and Redis holds something else. */
const PACED = { rate: '20/s', burst: 3, capacity: 1000, maxLatenessMs: 600_000 }
const job = (jobId: string) => ({ name: 'job', data: {}, opts: { jobId } })
const ofGroups = (count: number) =>
  Array.from({ length: count }, (_, n) => ({
    name: 'job',
    data: { n },
    opts: { group: { id: `g${n % 3}` } } as object,
  }))

/** An upsert of BullMQ puts the next iteration in the place of the last one and emits events, each time. */
const UPSERTED = ['added repeat:s:<time>', 'waiting repeat:s:<time>']

/** Drops the reply of the only call that there is. */
const armed = (act: (stage: Stage) => Promise<unknown>) => (stage: Stage) => {
  stage.arm()
  return act(stage)
}

/** Runs the scenario with or without the reply dropped and returns what Redis holds after it. */
async function play({ script, shape = PACED, repeated, run }: Scenario, name: 'plain' | 'dropped', proxy: RedisProxy) {
  const { prefix } = redis
  const connection = { ...quickConnection(proxy.url), connectionName: prefix }
  const fleet = new Fleet()
  const queue = fleet.queue(name, { connection, prefix, ...(shape ? { shape } : {}), declarer: 'test' } as never)
  await queue.waitUntilReady()
  let dropped = Promise.resolve()
  const arm = () => {
    if (name === 'dropped') dropped = proxy.dropReplyOf(typeof script === 'string' ? runs(script) : script)
  }
  const answer = await run({ queue, fleet, connection, prefix, name, arm })
  await dropped
  await Promise.all(fleet.workers.map((worker) => worker.close()))
  await queue.close()
  expect({ errors: fleet.errors, failed: fleet.failed }).toEqual({ errors: [], failed: [] })
  const { events, ...state } = await dumpQueue(redis.client(), `${prefix}:${name}:`)
  return {
    answer,
    state,
    events: repeated ? [...new Set([...(events as string[]), ...repeated])].sort() : events,
  }
}

async function expectOneExecution(scenario: Scenario): Promise<void> {
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  await redis.cleanup()
  const plain = await play(scenario, 'plain', proxy)
  const dropped = await play(scenario, 'dropped', proxy)
  expect(Object.keys(plain.state).length).toBeGreaterThan(1)
  expect(dropped).toEqual(plain)
}

/** Runs the queue's jobs to their end with a worker of Sluice. */
async function workOff(
  { fleet, connection, prefix, name }: Stage,
  jobs: number,
  options = {},
  process = async () => {},
) {
  fleet.worker(name, { connection, prefix, concurrency: 5, ...options }, process)
  await fleet.until(() => fleet.completed.length === jobs)
  return fleet.departures.length
}

const ADMISSIONS: Record<string, Scenario> = {
  'a job': { script: 'add', run: armed(({ queue }) => queue.add('job', {}).then(() => {})) },
  'a job, and others beside it, that must start in time': {
    script: 'add',
    shape: { ...PACED, maxWaitMs: 600_000 },
    run: armed(({ queue }) => Promise.all(Array.from({ length: 9 }, () => queue.add('job', {}))).then(() => {})),
  },
  'a job with an id': {
    script: 'add',
    run: armed(({ queue }) => queue.add('job', {}, { jobId: 'a' }).then(({ id }) => id)),
  },
  'a deduplicated job': {
    script: 'add',
    run: armed(({ queue }) => queue.add('job', {}, { deduplication: { id: 'd' } }).then(() => {})),
  },
  'a job without an id, where no capacity bounds the queue': {
    script: 'add',
    shape: { rate: '20/s' },
    run: armed(({ queue }) => queue.add('job', {}).then(() => {})),
  },
  'a bulk of jobs without ids, where no capacity bounds the queue': {
    script: 'add-bulk',
    shape: { rate: '20/s' },
    run: armed(({ queue }) => queue.addBulk([1, 2, 3].map(() => ({ name: 'job', data: {} }))).then(() => {})),
  },
  'a prioritized job': {
    script: 'add',
    run: armed(({ queue }) => queue.add('job', {}, { priority: 7 }).then(() => {})),
  },
  'a delayed job': {
    script: 'add',
    run: armed(({ queue }) => queue.add('job', {}, { delay: 60_000 }).then(() => {})),
  },
  'a bulk': {
    script: 'add-bulk',
    run: async ({ queue, arm }) => {
      arm()
      const options = [{ jobId: 'a' }, { jobId: 'b', priority: 2 }, { jobId: 'c', delay: 60_000 }]
      const jobs = await queue.addBulk(options.map((opts) => ({ name: 'job', data: {}, opts })))
      return jobs.length
    },
  },
  'a bulk of jobs without ids': {
    script: 'add-bulk',
    run: armed(({ queue }) => queue.addBulk([1, 2, 3].map(() => ({ name: 'job', data: {} }))).then(() => {})),
  },
  'a bulk of jobs of groups': {
    script: 'add-bulk',
    shape: { capacity: 9, groups: {} },
    run: armed(({ queue }) => queue.addBulk(ofGroups(3)).then(() => {})),
  },
  'jobs that are added beside each other': {
    script: 'add-bulk',
    run: async ({ queue, arm }) => {
      arm()
      const jobs = await Promise.all(Array.from({ length: 40 }, (_, i) => queue.add('job', {}, { jobId: `j${i}` })))
      return jobs.map(({ id }) => id)
    },
  },
  'jobs without ids that are added beside each other': {
    script: 'add-bulk',
    run: async ({ queue, arm }) => {
      arm()
      return (await Promise.all(Array.from({ length: 40 }, () => queue.add('job', {})))).length
    },
  },
  'the second part of a large bulk': {
    script: 'add-bulk',
    run: armed(({ queue }) => queue.addBulk(Array.from({ length: 450 }, (_, i) => job(`j${i}`))).then(() => {})),
  },
  'the second part of a large bulk that fills the queue, whose ids the library makes': {
    script: 'add-bulk',
    shape: { capacity: 450 },
    run: armed(async ({ queue }) => {
      const jobs = await queue.addBulk(Array.from({ length: 450 }, (_, n) => ({ name: 'job', data: { n } })))
      const waiting = await queue.getWaiting()
      expect(waiting.map(({ data }) => data.n)).toEqual(jobs.map(({ data }) => data.n))
    }),
  },
  'the claim of a large bulk': {
    script: 'claim-places',
    run: armed(({ queue }) => queue.addBulk(Array.from({ length: 250 }, (_, i) => job(`j${i}`))).then(() => {})),
  },
  'a job scheduler': {
    script: 'add',
    repeated: UPSERTED,
    run: armed(({ queue }) => queue.upsertJobScheduler('s', { every: 3_600_000 }, { name: 'job' }).then(() => {})),
  },
  'the first job of a process that declared nothing': {
    script: 'add',
    run: async ({ queue, fleet, connection, prefix, name, arm }) => {
      await queue.getShape()
      const other = fleet.queue(name, { connection, prefix })
      arm()
      await other.add('job', {})
      await other.close()
    },
  },
}

// Fault table, row 4.
describe('the reply of an admission is lost once, and the job is there once:', () => {
  test.each(Object.entries(ADMISSIONS))('%s', (_name, scenario) => expectOneExecution(scenario))
})

const CHANGES: Record<string, Scenario> = {
  'a declaration': {
    script: 'declare-shape',
    run: async ({ fleet, connection, prefix, name, arm }) => {
      arm()
      await fleet
        .queue(name, { connection, prefix, shape: { rate: '7/s', capacity: 9 }, declarer: 'other' })
        .waitUntilReady()
    },
  },
  'an override': {
    script: 'override-shape',
    run: armed(({ queue }) => queue.setShape({ rate: '5/s' }, { by: 'test', reason: 'test' })),
  },
  'a pause': {
    script: 'pause-meter',
    run: armed(({ queue }) => queue.pauseUntil(Date.now() + 60_000, { reason: 'test' })),
  },
  'a change of a group': {
    script: 'set-group',
    shape: { groups: {} },
    run: armed(({ queue }) => queue.setGroup('a', { rate: '5/s' }, { by: 'test', reason: 'test', ttlMs: 60_000 })),
  },
  'a change of a limit for one key': {
    script: 'set-limit',
    shape: { limits: [{ name: 'rpm', by: 'model', rate: '1/s' }] },
    run: armed(({ queue }) =>
      queue.setLimit('rpm', 'a', { rate: '5/s' }, { by: 'test', reason: 'test', ttlMs: 60_000 }),
    ),
  },
  "BullMQ's pause": {
    script: (words) => /^(eval|fcall)/i.test(words[0] ?? '') && words.includes('paused'),
    repeated: ['paused '],
    run: armed(({ queue }) => queue.pause({ by: 'test', reason: 'test' })),
  },
}

/** Of BullMQ's script: the keys are `meta` and the prefix of all. */
const obliterates = ([command, , keys, , base]: readonly string[]) =>
  /^(eval|fcall)/i.test(command ?? '') && keys === '2' && base?.endsWith(':') === true

const REMOVALS: Record<string, Scenario> = {
  'an obliterate': {
    script: obliterates,
    run: async (stage) => {
      await fill(stage, 5)
      stage.arm()
      await stage.queue.obliterate()
      await stage.queue.resume()
      await stage.queue.add('job', {}, { jobId: 'later' })
    },
  },
  'a drain': {
    script: 'drain-part',
    run: async (stage) => {
      await fill(stage, 200)
      stage.arm()
      await stage.queue.drain()
      await stage.queue.add('job', {}, { jobId: 'later' })
    },
  },
}

describe('the reply of a removal is lost once, and nothing else is removed:', () => {
  test.each(Object.entries(REMOVALS))('%s', (_name, scenario) => expectOneExecution(scenario))
})

describe('the reply of a change of the shape is lost once, and the shape is that of one change:', () => {
  test.each(Object.entries(CHANGES))('%s', (_name, scenario) => expectOneExecution(scenario))
})

/** Runs one job whose first attempt fails. */
async function runFailing({ fleet, queue, connection, prefix, name }: Stage) {
  let attempts = 0
  const worker = fleet.worker(name, { connection, prefix }, async () => {
    if (++attempts === 1) throw new Error('once')
  })
  await fleet.until(() => fleet.completed.length === 1)
  fleet.failed.length = 0
  await worker.close()
  const [kept] = await queue.getCompleted()
  return [attempts, kept?.attemptsMade, kept?.attemptsStarted]
}

/** Jobs to start with. */
async function fill({ queue }: Stage, jobs: number): Promise<void> {
  await queue.addBulk(Array.from({ length: jobs }, (_, i) => job(`j${i}`)))
}

/** The reply is dropped after so many jobs were added; they are worked off. */
const workedOff =
  (jobs: number, options = {}) =>
  async (stage: Stage) => {
    await fill(stage, jobs)
    stage.arm()
    return workOff(stage, jobs, options)
  }

/** Runs the queue's job to its failure for good, of which a letter is left. */
async function leaveLetter({ fleet, connection, prefix, name }: Stage, letters: string): Promise<void> {
  const worker = fleet.worker(name, { connection, prefix, deadLetter: letters }, async () => {
    throw new Error('refused')
  })
  await fleet.until(() => fleet.failed.length === 1)
  fleet.failed.length = 0
  await worker.close()
}

const STARTS_AND_ENDS: Record<string, Scenario> = {
  'a grant of several jobs': {
    script: asks,
    run: workedOff(3),
  },
  'a job that ended': {
    script: ends,
    run: workedOff(1),
  },
  'a job that ended and is not kept': {
    script: ends,
    run: workedOff(1, { removeOnComplete: { count: 0 } }),
  },
  'jobs that ended together, of which one is kept': {
    script: ends,
    run: workedOff(3, { removeOnComplete: { count: 1 } }),
  },
  'the end of an unpaced job, which fetches the next': {
    script: ends,
    shape: { capacity: 1000 },
    run: workedOff(5, { concurrency: 1 }),
  },
  'the end of an unpaced job that is not kept, which fetches the next': {
    script: ends,
    shape: { capacity: 1000 },
    run: workedOff(5, { concurrency: 1, removeOnComplete: { count: 0 } }),
  },
  'a batch of unpaced jobs that end together': {
    script: ends,
    shape: { capacity: 1000 },
    run: workedOff(120, { concurrency: 50 }),
  },
  'a batch of jobs of groups that end together': {
    script: ends,
    shape: { capacity: 1000, groups: {}, maxLatenessMs: 600_000 },
    run: async (stage) => {
      await stage.queue.addBulk(
        Array.from({ length: 120 }, (_, i) => ({
          name: 'job',
          data: {},
          opts: { jobId: `j${i}`, group: { id: `g${i % 7}` } },
        })),
      )
      stage.arm()
      return workOff(stage, 120, { concurrency: 50 })
    },
  },
  'a batch of unpaced jobs that are not kept': {
    script: ends,
    shape: { capacity: 1000 },
    run: workedOff(120, { concurrency: 50, removeOnComplete: { count: 0 } }),
  },
  'a retry with a backoff': {
    script: ends,
    shape: { ...PACED, burst: 1 },
    run: async (stage) => {
      await stage.queue.add('job', {}, { jobId: 'a', attempts: 2, backoff: 30 })
      stage.arm()
      return runFailing(stage)
    },
  },
  'a retry without a backoff': {
    script: 'retryJob',
    shape: { ...PACED, burst: 1 },
    run: async (stage) => {
      await stage.queue.add('job', {}, { jobId: 'a', attempts: 2 })
      stage.arm()
      return runFailing(stage)
    },
  },
  'a job that fails for good and leaves a letter': {
    script: 'dead-letter',
    run: async (stage) => {
      await stage.queue.add('job', {}, { jobId: 'a' })
      stage.arm()
      const letters = `letters-of-${stage.name}`
      const dead = stage.fleet.queue(letters, { connection: stage.connection, prefix: stage.prefix })
      await leaveLetter(stage, letters)
      return dead.getWaitingCount()
    },
  },
  'a redrive': {
    script: 'redrive',
    run: async (stage) => {
      await stage.queue.add('job', {}, { jobId: 'a' })
      const letters = `redriven-of-${stage.name}`
      await leaveLetter(stage, letters)
      stage.arm()
      return (await stage.queue.redrive({ from: letters })).back
    },
  },
  'jobs given back by a worker that closes': {
    script: 'give-back',
    // Slots that are far apart: a busy machine starts none of them meanwhile.
    shape: { rate: '12/min', burst: 1, capacity: 100, horizonMs: 60_000 } as never,
    run: async (stage) => {
      await fill(stage, 5)
      const { fleet, connection, prefix, name } = stage
      const worker = fleet.worker(name, { connection, prefix, concurrency: 5, lockDuration: 400_000 })
      await fleet.until(() => fleet.completed.length === 1)
      // The first call may not have known how far ahead it could ask.
      await expect.poll(() => stage.queue.getActiveCount()).toBe(4)
      stage.arm()
      await worker.close()
      return stage.queue.getWaitingCount()
    },
  },
}

describe('the reply of a start or an end is lost once, and the job has run once:', () => {
  test.each(Object.entries(STARTS_AND_ENDS))('%s', (_name, scenario) => expectOneExecution(scenario))
})

/** The same with BullMQ's own Worker. */
function stock(
  script: Scenario['script'],
  removeOnComplete: { count: number } | undefined,
  shape: Scenario['shape'] = { rate: '200/s', burst: 1, capacity: 1000 },
): Scenario {
  return {
    script,
    shape,
    run: async (stage) => {
      await fill(stage, 4)
      const { connection, prefix, name, fleet } = stage
      stage.arm()
      let started = 0
      const worker = new Worker(
        name,
        async () => {
          started += 1
        },
        { connection, prefix, ...(removeOnComplete ? { removeOnComplete } : {}) },
        createShapedBackend,
      )
      const failures: string[] = []
      worker.on('error', (error) => failures.push(error.message))
      worker.on('failed', (_job, error) => failures.push(error.message))
      await new Promise<void>((resolve) => {
        worker.on('completed', ({ id }) => {
          fleet.completed.push(id as string)
          if (fleet.completed.length === 4) resolve()
        })
      })
      await worker.close()
      return { started, failures, completed: [...fleet.completed].sort() }
    },
  }
}

describe("the reply of a script of BullMQ's own Worker is lost once:", () => {
  test.each([
    ['a start', stock(asks, undefined)],
    ['an end', stock(ends, undefined)],
    ['an end of a job that is not kept', stock(ends, { count: 0 })],
    ['an unpaced end, which fetches the next', stock(ends, undefined, { capacity: 1000 })],
    ['an end where no shape is stored', stock(ends, undefined, null)],
  ])('%s', (_name, scenario) => expectOneExecution(scenario))
})

test('the reply of a flow that is added is lost once, and the flow is there once, whole', () =>
  expectOneExecution({
    script: 'add-flow',
    run: async ({ connection, prefix, name, arm }) => {
      const flows = new ShapedFlowProducer({ connection, prefix })
      onTestFinished(() => flows.close())
      arm()
      const child = (n: number) => ({ name: 'child', queueName: name, opts: { jobId: `child${n}`, priority: n } })
      const leaf = { name: 'leaf', queueName: name, opts: { jobId: 'leaf', delay: 60_000 } }
      const { children } = await flows.add({
        name: 'parent',
        queueName: name,
        opts: { jobId: 'parent' },
        children: [child(0), child(1), { ...child(2), children: [leaf] }],
      })
      return children?.length
    },
  }))

/** Jobs of which nothing is left once they have run. */
const GONE = { removeOnComplete: true }
const goneJobs = (count: number, opts: object = {}) =>
  Array.from({ length: count }, (_, n) => ({ name: 'job', data: { n }, opts: { ...GONE, ...opts } }))

/** A producer behind a proxy, which waits to reconnect, and workers that reach the same queue past it. */
async function behindProxy(name: string, shape?: ShapedQueueOptions['shape']) {
  const { prefix, proxy, fleet, connection: quick } = await proxied()
  const connection = { ...quick, retryStrategy: () => 300, maxRetriesPerRequest: null }
  const queue = fleet.queue(name, { connection, prefix, admitTimeoutMs: 60_000, ...(shape ? { shape } : {}) })
  await queue.waitUntilReady()
  return { proxy, fleet, queue, connection, prefix, other: fleet.queue(name, { connection: redis.connection, prefix }) }
}

/** The last is how many jobs the call adds, unless others beside it may not have arrived. */
const ENDED: [title: string, script: string, shape: object, (queue: ShapedQueue) => Promise<object[]>, number?][] = [
  ['a job', 'add', { capacity: 99 }, async (queue) => [await queue.add('job', {}, GONE)], 1],
  [
    'a job that must start in time',
    'add',
    { maxWaitMs: 600_000 },
    async (queue) => [await queue.add('job', {}, GONE)],
    1,
  ],
  ['a bulk', 'add-bulk', { capacity: 99 }, (queue) => queue.addBulk(goneJobs(3)), 3],
  [
    'a bulk that must start in time',
    'add-bulk',
    { capacity: 99, maxWaitMs: 600_000 },
    (queue) => queue.addBulk(goneJobs(3)),
    3,
  ],
  [
    'a bulk of jobs of groups',
    'add-bulk',
    { capacity: 99, groups: {} },
    (queue) => queue.addBulk(goneJobs(3, { group: { id: 'a' } })),
    3,
  ],
  [
    'jobs that are added beside each other',
    'add-bulk',
    { capacity: 99 },
    (queue) => Promise.all(goneJobs(40).map(({ name, data, opts }) => queue.add(name, data, opts))),
  ],
]

test.each(ENDED)(
  '%s that has ended and is gone by then is not added once more',
  async (...[, script, shape, act, stored]) => {
    const { proxy, fleet, queue, prefix, other } = await behindProxy('gone', shape)
    const dropped = proxy.dropReplyOf(runs(script))
    const adding = act(queue)
    await dropped
    await proxy.refuse()
    const worker = fleet.worker('gone', { connection: redis.connection, prefix, concurrency: 5 })
    await fleet.until(() => fleet.completed.length >= (stored ?? 1))
    await expect.poll(() => other.getJobCountByTypes('wait', 'active')).toBe(0)
    await worker.close()
    await proxy.resume()
    const ids = ((await adding) as { id: string }[]).map(({ id }) => id)
    const there = await Promise.all(ids.map((id) => redis.client().exists(other.toKey(id))))
    // What had not been stored when the connection was lost waits now.
    expect([...fleet.completed, ...ids.filter((_, i) => there[i])].toSorted()).toEqual(ids.toSorted())
  },
)

test('a job that has ended and is gone is not added once more if the clock of the next server is ahead by less than a second', async () => {
  const { proxy, fleet, queue, prefix, other } = await behindProxy('ahead', { capacity: 99 })
  const dropped = proxy.dropReplyOf(runs('add'))
  const sentMs = Date.now()
  const adding = queue.add('job', {}, GONE)
  await dropped
  await proxy.refuse()
  const worker = fleet.worker('ahead', { connection: redis.connection, prefix })
  await fleet.until(() => fleet.completed.length === 1)
  await worker.close()
  const [ends] = (await redis.client().zrange(other.toKey('meta:ended'), '0', '-1')) as [string]
  const [endedMs] = await redis.client().hvals(ends)
  // So that the call seems to be sent half a second after the end.
  const aheadMs = Number(endedMs) + 500 - sentMs
  for (const clock of [performance, Date] as { now(): number }[]) {
    const now = clock.now.bind(clock)
    const spy = vi.spyOn(clock, 'now').mockImplementation(() => now() - aheadMs)
    onTestFinished(() => spy.mockRestore())
  }
  await proxy.resume()
  expect((await adding).id).toBe(fleet.completed[0])
  expect(await other.getWaitingCount()).toBe(0)
})

test('a flow whose jobs have ended and are gone by then is not added once more', async () => {
  const { proxy, fleet, connection, prefix, other } = await behindProxy('flow', { capacity: 99 })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  await flows.waitUntilReady()
  const dropped = proxy.dropReplyOf(runs('add-flow'))
  const child = { name: 'child', queueName: 'flow', opts: GONE }
  const adding = flows.add({ name: 'parent', queueName: 'flow', opts: GONE, children: [child, child] })
  await dropped
  await proxy.refuse()
  const worker = fleet.worker('flow', { connection: redis.connection, prefix })
  await fleet.until(() => fleet.completed.length === 3)
  await worker.close()
  await proxy.resume()
  const { job: parent, children } = await adding
  expect(fleet.completed.toSorted()).toEqual(
    [parent, ...children!.map(({ job }) => job)].map(({ id }) => id).toSorted(),
  )
  expect(await other.getJobCountByTypes('wait', 'waiting-children')).toBe(0)
})

test('flows over several queues, whose reply is lost, are there once, whole, with the id of a job that was deduplicated', async () => {
  const { prefix, proxy, fleet, connection } = await proxied()
  const queues = ['one', 'two', 'three'].map((name) =>
    fleet.queue(name, { connection: redis.connection, prefix, shape: { capacity: 99 } }),
  )
  const [first] = queues as [ShapedQueue]
  await Promise.all(queues.map((queue) => queue.waitUntilReady()))
  const { id: earlier } = await first.add('job', {}, { deduplication: { id: 'd' } })
  const flows = new ShapedFlowProducer({ connection, prefix })
  onTestFinished(() => flows.close())
  await flows.waitUntilReady()
  const leaf = (queueName: string) => ({ name: 'leaf', queueName })
  const dropped = proxy.dropReplyOf(runs('add-flow'))
  const adding = flows.addBulk([
    { name: 'root', queueName: 'one', children: [leaf('two'), { ...leaf('three'), children: [leaf('two')] }] },
    { name: 'job', queueName: 'one', opts: { deduplication: { id: 'd' } } },
  ])
  await dropped
  const [tree, again] = await adding
  expect(again?.job.id).toBe(earlier)
  const stored = await Promise.all(
    queues.map(async (queue) => (await queue.getJobs(['wait', 'waiting-children'])).map(({ id }) => id)),
  )
  expect(stored.map((ids) => ids.length)).toEqual([2, 2, 1])
  expect(stored[0]).toContain(tree?.job.id)
})

test.each([
  ['without an id', {}],
  ['with the id of one that has ended', { jobId: 'a' }],
])('a job %s, whose call is lost before it runs, is added', async (_title, opts) => {
  const { proxy, fleet, queue, prefix, other } = await behindProxy('lost', { capacity: 99 })
  const worker = fleet.worker('lost', { connection: redis.connection, prefix })
  await queue.add('job', {}, { ...GONE, ...opts })
  await fleet.until(() => fleet.completed.length === 1)
  await worker.close()
  proxy.blackhole()
  const adding = queue.add('job', {}, { ...GONE, ...opts })
  await new Promise((resolve) => setImmediate(resolve))
  proxy.restore()
  proxy.cut()
  const { id } = await adding
  expect((await other.getWaiting()).map((waiting) => waiting.id)).toEqual([id])
})

test('a job whose call is sent again too late to know whether it has run is reported, and not added once more', async () => {
  const { proxy, queue, other } = await behindProxy('late', { capacity: 99 })
  const dropped = proxy.dropReplyOf(runs('add'))
  const adding = queue.add('job', {}, GONE)
  await dropped
  await proxy.refuse()
  const [waiting] = await other.getWaiting()
  await waiting!.remove()
  // As after a suspension of the machine.
  const later = Date.now() + 3_600_000
  const clock = vi.spyOn(Date, 'now').mockReturnValue(later)
  onTestFinished(() => clock.mockRestore())
  await proxy.resume()
  await expect(adding).rejects.toMatchObject({ name: 'QueueUnavailableError', mayBeStored: true })
  expect(await other.getWaitingCount()).toBe(0)
})

const BY = { by: 'test', reason: 'test' }
type Change = (queue: ShapedQueue, slower: boolean) => Promise<unknown>

/** A change whose reply is lost is sent again after another one, and does not undo it. */
async function isNotUndone(
  { proxy, queue, other }: Awaited<ReturnType<typeof behindProxy>>,
  script: string,
  change: Change,
): Promise<void> {
  const dropped = proxy.dropReplyOf(runs(script))
  const changing = change(queue, true)
  await dropped
  await proxy.refuse()
  await change(other, false)
  const states = async () => [await other.getShape(), { ...(await other.getGroup('a')), at: undefined }]
  const before = await states()
  await proxy.resume()
  await changing
  expect(await states()).toEqual(before)
}

const CHANGEABLE = { rate: '1/s', groups: {}, limits: [{ name: 'plan', by: 'group', rate: '100/s' }] }
const CHANGED: [title: string, script: string, change: Change][] = [
  ['a shape', 'override-shape', (queue, slower) => queue.setShape({ rate: slower ? '5/s' : '9/s' }, BY)],
  [
    'a shape, for a time',
    'override-shape',
    (queue, slower) => queue.setShape({ rate: slower ? '5/s' : '9/s' }, { ...BY, ttlMs: 600_000 }),
  ],
  ['a key', 'set-limit', (queue, slower) => queue.setLimit('plan', 'a', { rate: slower ? '5/s' : '9/s' }, BY)],
  ['a group', 'set-group', (queue, slower) => queue.setGroup('a', { rate: slower ? '5/s' : '9/s' }, BY)],
]

test.each(CHANGED)(
  'a change of %s that is sent again after another one does not undo it',
  async (...[, script, change]) => {
    const behind = await behindProxy('changed', CHANGEABLE)
    const { other } = behind
    await other.waitUntilReady()
    await isNotUndone(behind, script, change)
    const history = await redis.client().xrange(other.toKey('meta:history'), '-', '+')
    expect(history.filter(([, fields]) => fields.includes('test')).length).toBe(2)
  },
)

const inAnHour = Date.now() + 3_600_000

test.each<
  [title: string, before: (queue: ShapedQueue) => Promise<unknown>, pause: (queue: ShapedQueue) => Promise<unknown>]
>([
  ['until a time', (queue) => queue.waitUntilReady(), (queue) => queue.pauseUntil(inAnHour, BY)],
  ['for a time', (queue) => queue.waitUntilReady(), (queue) => queue.rateLimit(600_000)],
  [
    'until a time, beside a longer one,',
    (queue) => queue.pauseUntil(inAnHour, { by: 'another', reason: 'another' }),
    (queue) => queue.pauseUntil(inAnHour - 600_000, BY),
  ],
  [
    'until a time, for the second time,',
    (queue) => queue.pauseUntil(inAnHour, BY),
    (queue) => queue.pauseUntil(inAnHour, BY),
  ],
  ['for a time, for the second time,', (queue) => queue.rateLimit(600_000), (queue) => queue.rateLimit(600_000)],
])('a pause %s that is sent again after its end was set does not begin anew', async (...[, before, pause]) => {
  const { proxy, queue, other } = await behindProxy('paused', { rate: '1/s' })
  await before(other)
  const dropped = proxy.dropReplyOf(runs('pause-meter'))
  const pausing = pause(queue)
  await dropped
  await proxy.refuse()
  await other.clearPause(BY)
  await proxy.resume()
  await pausing
  expect(await redis.client().hget(other.toKey('meta:shape'), 'pausedUntil')).toBe(null)
})

/** Its changes as a minute old: when a lost call was sent is only known to have been not before a time. */
async function ageHistory(queue: ShapedQueue): Promise<void> {
  const [client, key] = [redis.client(), queue.toKey('meta:history')]
  const entries = await client.xrange(key, '-', '+')
  await client.del(key)
  for (const [id, fields] of entries) {
    const [ms, n] = id.split('-')
    await client.xadd(key, `${Number(ms) - 60_000}-${n}`, ...fields)
  }
}

test('a pause that was sent after an equal one had been ended, and is lost, is made', async () => {
  const { proxy, queue, other } = await behindProxy('paused', { rate: '1/s' })
  await other.pauseUntil(inAnHour, BY)
  await other.clearPause(BY)
  await ageHistory(other)
  proxy.blackhole()
  const pausing = queue.pauseUntil(inAnHour, BY)
  await new Promise((resolve) => setImmediate(resolve))
  await other.setShape({ burst: 2 }, BY)
  proxy.restore()
  proxy.cut()
  await pausing
  expect(Number(await redis.client().hget(other.toKey('meta:shape'), 'pausedUntil'))).toBe(inAnHour * 1000)
})

test.each(CHANGED)(
  'a change of %s that is made twice, the second time again after another one, does not undo it',
  async (...[, script, change]) => {
    const behind = await behindProxy('changed', CHANGEABLE)
    await change(behind.other, true)
    await isNotUndone(behind, script, change)
  },
)

test('a drain that another process has completed by then removes nothing that was added since', async () => {
  const { proxy, queue, other } = await behindProxy('drain')
  await queue.addBulk([job('a'), job('b')])
  const dropped = proxy.dropReplyOf(runs('drain-part'))
  const draining = queue.drain()
  await dropped
  await proxy.refuse()
  await other.drain()
  await other.add('job', {}, { jobId: 'since' })
  await proxy.resume()
  await draining
  expect((await other.getWaiting()).map(({ id }) => id)).toEqual(['since'])
})

/** A fleet, and a connection through a proxy. */
async function proxied() {
  const { prefix } = redis
  await redis.cleanup()
  const proxy = await startProxy(redis.url)
  onTestFinished(() => proxy.stop())
  return { prefix, proxy, fleet: new Fleet(), connection: { ...quickConnection(proxy.url), connectionName: prefix } }
}

test.each([
  ['a queue', PACED],
  ['a queue without a shape', undefined],
])('jobs that are added before a drain of %s is sent again stay', async (_title, shape) => {
  const { prefix, proxy, fleet, connection } = await proxied()
  const slow = { ...connection, retryStrategy: () => 300 }
  const queue = fleet.queue('few', { connection: slow, prefix, ...(shape ? { shape } : {}) })
  const other = fleet.queue('few', { connection: redis.connection, prefix })
  await queue.addBulk([job('a'), job('b')])
  const dropped = proxy.dropReplyOf(([command]) => /^(eval|fcall)/i.test(command ?? ''))
  const draining = queue.drain()
  await dropped
  await other.add('job', {}, { jobId: 'between' })
  await draining
  expect((await other.getWaiting()).map(({ id }) => id)).toEqual(['between'])
})

test('an answer of the downstream whose report is sent again counts once toward a rule and as throttled', async () => {
  const { prefix, proxy, fleet, connection } = await proxied()
  const queue = fleet.queue('answers', { connection: redis.connection, prefix, shape: { rate: '1000/s' } })
  const rule = { match: { status: 429 }, trigger: '2/10min', action: { pause: '1 h' } } as const
  const feedback = extendProfile(profiles.http, { rules: [rule] })
  await queue.add('job', {}, { jobId: 'a' })
  const dropped = proxy.dropReplyOf(runs('apply-feedback'))
  let calls = 0
  fleet.worker('answers', { connection, prefix, feedback }, async () => {
    if (++calls === 1) throw Object.assign(new Error('429'), { status: 429 })
  })
  await dropped
  await fleet.until(() => fleet.completed.length === 1)
  const client = redis.client()
  const base = `${prefix}:answers:`
  const [matches] = (await client.keys(`${base}meta:matches:*`)) as [string]
  expect(await client.zcard(matches)).toBe(1)
  expect(await client.hget(`${base}a`, 'throttled')).toBe('1')
})

test('an answer of the downstream whose report is sent again after it was forgotten counts once', async () => {
  const { prefix } = redis
  const { proxy, fleet, connection, other } = await behindProxy('forgotten', { rate: '1000/s' })
  const rule = { match: { status: 429 }, trigger: '2/10min', action: { pause: '1 h' } } as const
  const feedback = extendProfile(profiles.http, { rules: [rule] })
  await other.add('job', {}, { attempts: 2, backoff: 1 })
  const dropped = proxy.dropReplyOf(runs('apply-feedback'))
  let calls = 0
  fleet.worker('forgotten', { connection, prefix, feedback }, async () => {
    if (++calls === 1) throw Object.assign(new Error('429'), { status: 429 })
  })
  await dropped
  await proxy.refuse()
  const client = redis.client()
  await client.del(await client.keys(other.toKey('meta:answered:*')))
  const now = Date.now
  const clock = vi.spyOn(Date, 'now').mockImplementation(() => now() + 120_000)
  onTestFinished(() => clock.mockRestore())
  await proxy.resume()
  await fleet.until(() => fleet.completed.length + fleet.failed.length > 0)
  const [matches] = (await client.keys(other.toKey('meta:matches:*'))) as [string]
  expect(await client.zcard(matches)).toBe(1)
})

test('a report of a worker that is sent again adds its starts once, also when the worker left', async () => {
  const { prefix, proxy, fleet, connection } = await proxied()
  const queue = fleet.queue('reports', { connection: redis.connection, prefix, shape: { rate: '1000/s' } })
  const started = () => redis.client().hget(`${prefix}:reports:meta:starts`, 'count')
  await queue.addBulk([job('a'), job('b')])
  const dropped = proxy.dropReplyOf(
    ([command, ...words]) =>
      runs('report')([command ?? '', ...words]) && words.some((word) => word.includes('"count":2')),
  )
  const worker = fleet.worker('reports', { connection, prefix })
  await dropped
  await queue.add('job', {}, { jobId: 'c' })
  await fleet.until(() => fleet.completed.length === 3)
  const left = proxy.dropReplyOf(runs('report'))
  await worker.close()
  await left
  expect(await started()).toBe('3')
})
