import { describe, expect, test } from 'vitest'
import { InvalidInputError, QueueFullError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const WHY = { reason: 'wrong recipients', by: 'ops' }
const FAILURE = 'cancelled by ops: wrong recipients'

async function streamOf(queue: ShapedQueue) {
  const events = shop.queueEvents(queue)
  await events.waitUntilReady()
  return {
    cancelled: eventsOf<{ jobId: string; reason: string; by: string }>('cancelled', events),
    failed: eventsOf<{ jobId: string; failedReason: string }>('failed', events),
    removed: eventsOf<{ jobId: string }>('removed', events),
  }
}

function flows(): ShapedFlowProducer {
  return shop.keep(new ShapedFlowProducer({ connection: shop.connection, prefix: shop.prefix }))
}

const GROUP = { group: { id: 'a' } }
const KEYED = { ...GROUP, keys: { host: 'x' } }
const LANES = {
  groups: {},
  limits: [{ name: 'host', algorithm: 'concurrency', by: 'host', concurrency: 1 }],
} as never

const CASES = [
  ['waiting', undefined, {}],
  ['waiting', {}, {}],
  ['prioritized', {}, { priority: 3 }],
  ['delayed', {}, { delay: 60_000 }],
  ['prioritized', { groups: {} }, GROUP],
  ['delayed', { groups: {} }, { ...GROUP, delay: 60_000 }],
  ['prioritized', LANES, KEYED],
  ['waiting', { rate: '1/h', priorityAgeingMs: 1000 }, {}],
] as const

describe.each(CASES)('a job that is %s, with the shape %j and the options %j', (state, shape, opts) => {
  test('fails at once for the reason, and frees its place', async () => {
    const queue = shop.queue(shape && { capacity: 1, ...(shape as object) })
    const stream = await streamOf(queue)
    const job = await queue.add('job', {}, { ...opts, attempts: 5 })
    expect(await job.getState()).toBe(state)
    if (shape) await expect(queue.add('more', {}, opts)).rejects.toThrow(QueueFullError)

    expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')

    expect(await job.getState()).toBe('failed')
    expect(await queue.getJob(job.id as string)).toMatchObject({
      failedReason: FAILURE,
      finishedOn: expect.any(Number),
    })
    expect(await queue.getJobCounts()).toMatchObject({
      ...{ waiting: 0, prioritized: 0, delayed: 0, active: 0, failed: 1 },
    })
    const [, [failed]] = await Promise.all([stream.cancelled.reach(1), stream.failed.reach(1)])
    expect(stream.cancelled.all).toMatchObject([{ jobId: job.id, reason: WHY.reason, by: WHY.by }])
    expect(failed).toMatchObject({ jobId: job.id, failedReason: FAILURE })
    const next = await queue.add('next', {}, opts)
    if (!shape) return
    if ('group' in opts) {
      expect(await queue.getGroup('a')).toMatchObject(state === 'delayed' ? { delayed: 1 } : { waiting: 1 })
    }
    const departed = departuresOf(shop.worker(queue, async () => {}))
    if (state === 'delayed') await next.promote()
    expect(await departed.reach(1)).toMatchObject([{ id: next.id }])
  })

  test('with `remove` it is gone, and frees its place', async () => {
    const queue = shop.queue(shape && { capacity: 1, ...(shape as object) })
    const stream = await streamOf(queue)
    const job = await queue.add('job', {}, opts)
    expect(await queue.cancelJob(job.id as string, { ...WHY, remove: true })).toBe('removed')
    expect(await queue.getJob(job.id as string)).toBeUndefined()
    await Promise.all([stream.cancelled.reach(1), stream.removed.reach(1)])
    expect(stream.failed.all).toEqual([])
    await queue.add('next', {}, opts)
  })
})

test('a producer that waits for a place gets it', async () => {
  const queue = shop.queue({ rate: '10/s', capacity: 1 })
  await queue.pause()
  const job = await queue.add('job', {})
  const waiting = queue.addWhenFree('next', {})
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')
  expect((await waiting).name).toBe('next')
})

test('a paused queue, a paused group and one at its concurrency: jobs fail all the same', async () => {
  const queue = shop.queue({ concurrency: 1, groups: { capacity: 5 } })
  await queue.pause()
  await queue.pauseGroup('a')
  const plain = await queue.add('plain', {})
  const grouped = await queue.add('grouped', {}, GROUP)
  for (const { id } of [plain, grouped]) expect(await queue.cancelJob(id as string, WHY)).toBe('failed')
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0 })
  expect(await queue.isPaused()).toBe(true)
})

test('the rest of a group goes on in its order', async () => {
  const queue = shop.queue({ rate: '100/s', groups: {} })
  const jobs = await queue.addBulk(['one', 'two', 'three'].map((name) => ({ name, data: {}, opts: GROUP })))
  await queue.cancelJob(jobs[0]?.id as string, WHY)
  expect((await queue.getGroupJobs('a')).map(({ name }) => name)).toEqual(['two', 'three'])
  const departed = departuresOf(shop.worker(queue, async () => {}))
  expect((await departed.reach(2)).map(({ name }) => name)).toEqual(['two', 'three'])
})

test('a job that holds its group in strict order until its retry lets the next one go', async () => {
  const queue = shop.queue({ groups: { order: 'strict' } })
  const worker = shop.worker(queue, async ({ name }) => {
    if (name === 'first') throw new Error('not yet')
  })
  const [failed, departed] = [eventsOf('failed', worker), departuresOf(worker)]
  const first = await queue.add('first', {}, { ...GROUP, attempts: 2, backoff: 3_600_000 })
  await failed.reach(1)
  const second = await queue.add('second', {}, GROUP)
  expect(await first.getState()).toBe('delayed')
  expect(await queue.cancelJob(first.id as string, WHY)).toBe('failed')
  expect((await departed.reach(2)).at(-1)).toMatchObject({ id: second.id })
})

test.each([
  [undefined, 1],
  [false, 1],
  [true, 0],
  [{ count: 0 }, 0],
  [{ age: 60 }, 1],
  [5, 1],
])('removeOnFail: %j keeps %i of the job', async (removeOnFail, kept) => {
  const queue = shop.queue({ groups: {} })
  const opts = removeOnFail === undefined ? {} : { removeOnFail }
  const job = await queue.add('job', {}, { ...opts, ...GROUP })
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')
  expect(await queue.getFailedCount()).toBe(kept)
  expect((await queue.getJob(job.id as string)) === undefined).toBe(kept === 0)
  expect(await redis.client().keys(queue.toKey('meta:group*:a'))).toEqual([])
})

describe('of a flow', () => {
  const tree = (queueName: string, opts: object) => ({
    ...{ name: 'parent', queueName, data: {} },
    children: [{ name: 'child', queueName, data: {}, opts: { ...opts, delay: 60_000 } }],
  })

  test.each([
    ['failParentOnFailure', 'failed'],
    ['ignoreDependencyOnFailure', 'completed'],
    ['removeDependencyOnFailure', 'completed'],
    ['continueParentOnFailure', 'completed'],
  ])('a child with %s: its parent has %s', async (option, state) => {
    const queue = shop.queue({ rate: '100/s' })
    const { job: parent, children } = await flows().add(tree(queue.name, { [option]: true }))
    const worker = shop.worker(queue, async () => {})
    const ended = eventsOf(state, worker)
    expect(await queue.cancelJob(children?.[0]?.job.id as string, WHY)).toBe('failed')
    expect(await ended.reach(1)).toMatchObject([{ id: parent.id }])
    expect(await parent.getState()).toBe(state)
  })

  test('a child without such an option: its parent waits on, as when any child fails', async () => {
    const queue = shop.queue({ rate: '100/s' })
    const { job: parent, children } = await flows().add(tree(queue.name, {}))
    await queue.cancelJob(children?.[0]?.job.id as string, WHY)
    expect(await parent.getState()).toBe('waiting-children')
  })

  test('a parent that waits for its children fails; they go on, and wake it no more', async () => {
    const queue = shop.queue({ rate: '100/s' })
    const { job: parent, children } = await flows().add(tree(queue.name, {}))
    const child = children?.[0]?.job
    expect(await queue.cancelJob(parent.id as string, WHY)).toBe('failed')
    expect(await child?.getState()).toBe('delayed')
    const completed = eventsOf(
      'completed',
      shop.worker(queue, async () => {}),
    )
    await child?.promote()
    expect(await completed.reach(1)).toMatchObject([{ id: child?.id }])
    expect(await queue.getJobCounts()).toMatchObject({ failed: 1, completed: 1, waiting: 0, 'waiting-children': 0 })
  })
})

test('jobs that have ended, do not exist, or belong to a scheduler stay as they are', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const completed = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  const job = await queue.add('job', {})
  await completed.reach(1)
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('ended')
  expect(await job.getState()).toBe('completed')
  expect(await queue.cancelJob('no such job', WHY)).toBe('unknown')
  for (const id of ['wait', 'meta', 'events', 'id']) expect(await queue.cancelJob(id, WHY)).toBe('unknown')
  const next = await queue.upsertJobScheduler('hourly', { pattern: '0 0 1 1 *' }, { name: 'job' })
  expect(await queue.cancelJob(next.id as string, WHY)).toBe('scheduled')
  expect(await next.getState()).toBe('delayed')
})

test('a call that is sent again says what the first one did; one with another reason finds it ended', async () => {
  const queue = shop.queue({})
  const job = await queue.add('job', {})
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')
  expect(await queue.cancelJob(job.id as string, WHY)).toBe('failed')
  expect(await queue.cancelJob(job.id as string, { reason: 'another' })).toBe('ended')
})

test.each([
  [{ id: 'key' }, false, true],
  [{ id: 'key', ttl: 60_000 }, false, false],
  [{ id: 'key', ttl: 60_000 }, true, true],
])('the key of a job with the deduplication %j that is cancelled with remove: %j is free: %j', async (...given) => {
  const [deduplication, remove, isFree] = given
  const queue = shop.queue({})
  const job = await queue.add('job', {}, { deduplication })
  await queue.cancelJob(job.id as string, { ...WHY, remove })
  await queue.add('next', {}, { deduplication })
  expect(await queue.getWaitingCount()).toBe(isFree ? 1 : 0)
})

test('a job that was cancelled can be retried by hand', async () => {
  const queue = shop.queue({ rate: '100/s' })
  const job = await queue.add('job', {})
  await queue.cancelJob(job.id as string, { reason: 'too soon' })
  expect(await queue.getJob(job.id as string)).toMatchObject({ failedReason: 'cancelled: too soon' })
  const completed = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  await (await queue.getJob(job.id as string))?.retry()
  expect(await completed.reach(1)).toMatchObject([{ id: job.id }])
})

test('who did it is in the history of the queue, and a change without an author is not', async () => {
  const queue = shop.queue({})
  const inspector = shop.keep(new Inspector({ connection: redis.client(), prefix: shop.prefix }))
  const [one, two] = await queue.addBulk(['one', 'two'].map((name) => ({ name, data: {} })))
  await queue.cancelJob(one?.id as string, WHY)
  await queue.cancelJob(two?.id as string, { reason: 'no author' })
  const changes = await inspector.history(queue.name)
  expect(changes.filter(({ kind }) => kind === 'job')).toMatchObject([
    { by: 'ops', reason: WHY.reason, change: { cancelled: one?.id } },
  ])
})

test.each([
  ['no reason', 'id', {}],
  ['an empty reason', 'id', { reason: '' }],
  ['another option', 'id', { reason: 'x', force: true }],
  ['no id', '', { reason: 'x' }],
  ['an author that is no text', 'id', { reason: 'x', by: 1 }],
])('%s is refused', async (_what, id, options) => {
  await expect(shop.queue({}).cancelJob(id, options as never)).rejects.toThrow(InvalidInputError)
})
