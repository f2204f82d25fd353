import { UnrecoverableError } from 'bullmq'
import { describe, expect, test, vi } from 'vitest'
import { effectId } from '../../src/effect-id.ts'
import {
  InvalidInputError,
  PauseQueueError,
  ShapedFlowProducer,
  type ShapedQueue,
  ShapedWorker,
} from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, jobs, Workshop } from '../worker/support.ts'
import { lettersOf } from './support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const SHAPES: [string, ShapedQueue['opts'] | undefined][] = [
  ['paced', { rate: '200/s', burst: 5 } as never],
  ['with a capacity alone', { capacity: 1000 } as never],
  ['without a shape', undefined],
]
const fails = async () => {
  throw new Error('no')
}

describe.each(SHAPES)('%s', (_what, shape) => {
  const make = (processor: (job: { id?: string; name: string }) => Promise<unknown>, options: object = {}) => {
    const queue = shop.queue(shape as never)
    const letters = lettersOf(shop)
    const worker = shop.worker(queue, processor as never, { allowUnshaped: true, deadLetter: letters.name, ...options })
    return { queue, letters, worker, failed: eventsOf('failed', worker) }
  }

  test('a job whose attempts are used up leaves one letter that says everything', async () => {
    const { queue, letters, failed } = make(fails)
    const added = await queue.add('mail', { to: 'ä' }, { attempts: 3, priority: 2, cost: 1, jobId: 'one' })
    await failed.reach(3)
    const job = (await queue.getJob('one'))!
    expect(await job.getState()).toBe('failed')
    const [letter, ...more] = await letters.all()
    expect(more).toEqual([])
    expect(letter).toEqual({
      ...{ prefix: redis.prefix, queueName: queue.name, id: 'one', name: 'mail', data: { to: 'ä' }, opts: job.opts },
      ...{ failedReason: 'no', stacktrace: job.stacktrace, attemptsMade: 3, attemptsStarted: 3, stalledCounter: 0 },
      ...{ throttled: 0, timestamp: added.timestamp, processedOn: job.processedOn, finishedOn: job.finishedOn },
      redriven: 0,
    })
    expect(letter?.stacktrace).toHaveLength(3)
    expect(letter?.opts).toMatchObject({ attempts: 3, priority: 2, cost: 1 })
    const id = effectId({ prefix: redis.prefix, queueName: queue.name, jobId: 'one', timestamp: added.timestamp })
    expect(await letters.queue.getJob(id)).toMatchObject({ name: 'mail', timestamp: job.finishedOn })
  })

  test('a failure that no attempt follows leaves one, also where the job is not kept', async () => {
    const { queue, letters, failed } = make(() => Promise.reject(new UnrecoverableError('for good')))
    await queue.add('mail', {}, { attempts: 9, removeOnFail: true })
    await failed.reach(1)
    expect(await letters.all()).toMatchObject([{ failedReason: 'for good', attemptsMade: 1 }])
    expect(await queue.getJobCounts('failed', 'active', 'wait')).toEqual({ failed: 0, active: 0, wait: 0 })
  })

  test('a job that succeeds in the end leaves none', async () => {
    let left = 2
    const { queue, letters, worker } = make(() => (left-- > 0 ? fails() : Promise.resolve()))
    const completed = eventsOf('completed', worker)
    await queue.add('mail', {}, { attempts: 5 })
    await completed.reach(1)
    expect(await letters.all()).toEqual([])
  })

  test('many that fail together leave one each, and those between them are done', async () => {
    const bad = ({ name }: { name: string }) => (Number(name.slice(3)) % 3 === 0 ? fails() : Promise.resolve())
    const { queue, letters, failed, worker } = make(bad, { concurrency: 20 })
    const completed = eventsOf('completed', worker)
    await queue.addBulk(jobs(60))
    await Promise.all([failed.reach(20), completed.reach(40)])
    const names = (await letters.all()).map(({ name }) => Number(name.slice(3)))
    expect(names.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => 3 * i))
    expect(await queue.getJobCounts('failed', 'completed', 'active')).toEqual({ failed: 20, completed: 40, active: 0 })
  })

  test('a job that is finished by hand leaves one', async () => {
    const { queue, letters, worker } = make(fails, { autorun: false })
    await queue.add('mail', {})
    const job = (await worker.getNextJob('token'))!
    await job.moveToFailed(new Error('by hand'), 'token')
    expect(await letters.all()).toMatchObject([{ failedReason: 'by hand' }])
  })
})

test('a parent that fails because its child did leaves one, as the child does', async () => {
  const queue = shop.queue({ rate: '200/s', burst: 5 })
  const letters = lettersOf(shop)
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  const child = { name: 'child', queueName: queue.name, opts: { failParentOnFailure: true } }
  const failed = eventsOf('failed', shop.worker(queue, fails, { deadLetter: letters.name }))
  await flows.add({ name: 'parent', queueName: queue.name, children: [child] })
  await failed.reach(2)
  expect(await letters.all()).toMatchObject([
    { name: 'child', failedReason: 'no' },
    { name: 'parent', failedReason: expect.stringMatching(/^child .* failed$/), attemptsMade: 1 },
  ])
})

test('a job that was throttled for too long leaves one that says how often', async () => {
  const queue = shop.queue({ rate: '200/s' })
  const letters = lettersOf(shop)
  const refused = () => Promise.reject(new PauseQueueError({ retryAfterMs: 1, reason: 'busy' }))
  const worker = shop.worker(queue, refused, { deadLetter: letters.name, giveUpAfterMs: 0 })
  const failed = eventsOf('failed', worker)
  await queue.add('mail', {})
  await failed.reach(1)
  expect(await letters.all()).toMatchObject([
    { failedReason: expect.stringContaining('given up after 0ms: throttled 1 time,'), throttled: 1, attemptsMade: 1 },
  ])
})

test('a job that is not the worker’s any more leaves none', async () => {
  const queue = shop.queue({ rate: '200/s' })
  const letters = lettersOf(shop)
  const worker = shop.worker(queue, null, { autorun: false, deadLetter: letters.name })
  await queue.add('mail', {})
  const job = (await worker.getNextJob('token'))!
  await redis.client().set(`${queue.toKey(job.id!)}:lock`, 'of another')
  await expect(job.moveToFailed(new Error('too late'), 'token')).rejects.toThrow(/Lock mismatch/)
  expect(await letters.all()).toEqual([])
  expect(await queue.getJobCounts('failed', 'active')).toEqual({ failed: 0, active: 1 })
})

test.each([{ removeOnFail: true }, { removeOnFail: false }])(
  'a call that is sent twice fails once: %o',
  async (opts) => {
    const queue = shop.queue({ rate: '200/s' })
    const letters = lettersOf(shop)
    const worker = shop.worker(queue, null, { autorun: false, deadLetter: letters.name })
    await queue.add('mail', {}, opts)
    const client = (await worker.getBackend().connection.client) as unknown as Record<string, (a: unknown[]) => unknown>
    const command = Object.keys(client).find((name) => name.endsWith(':dead-letter'))!
    const sent = vi.spyOn(client, command)
    const job = (await worker.getNextJob('token'))!
    await job.moveToFailed(new Error('no'), 'token')
    expect(await client[command]!(sent.mock.calls[0]![0] as unknown[])).toBe(0)
    expect(await letters.all()).toHaveLength(1)
    expect(await queue.getJobCountByTypes('failed')).toBe(opts.removeOnFail ? 0 : 1)
  },
)

test('where the letter can not be added the job does not fail: it is taken again, and leaves one then', async () => {
  const queue = shop.queue({ rate: '200/s' })
  const letters = lettersOf(shop)
  const client = redis.client()
  const blocked = letters.queue.toKey('wait')
  await client.set(blocked, 'not a list')
  const worker = shop.worker(queue, fails, { deadLetter: letters.name, lockDuration: 1500, stalledInterval: 100 })
  const [errors, failed] = [eventsOf<Error>('error', worker), eventsOf('failed', worker)]
  await queue.add('mail', {})
  await errors.reach(1)
  expect(errors.all[0]?.message).toMatch(/WRONGTYPE/)
  expect(await queue.getJobCountByTypes('failed')).toBe(0)
  await client.del(blocked)
  await failed.reach(1)
  expect(await letters.all()).toMatchObject([{ failedReason: 'no' }])
})

test.each([
  ['', /without ':'; got ""/],
  ['a:b', /got "a:b"/],
  [7, /got 7/],
  ['same', /a queue other than .* "same"/],
])('deadLetter: %o is refused', (deadLetter, message) => {
  const make = () => new ShapedWorker('same', fails, { connection: redis.connection, deadLetter } as never)
  expect(make).toThrow(InvalidInputError)
  expect(make).toThrow(message)
})
