import { setTimeout as delay } from 'node:timers/promises'
import { UnrecoverableError, Worker } from 'bullmq'
import { expect, test } from 'vitest'
import {
  InvalidShapeError,
  type Shape,
  ShapedFlowProducer,
  type ShapedQueue,
  type ShapedWorker,
} from '../../src/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { useProcesses } from '../support/processes.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

// Groups in strict order, with workers of their own.
const redis = useRedis(import.meta.url)
const processes = useProcesses()
const shop = new Workshop(redis)
const { connection, prefix } = redis

const STRICT = { groups: { order: 'strict' } } as const
const HOUR_MS = 3_600_000
const of = (group: string, name: string, opts: object = {}) => ({
  name,
  data: { group },
  opts: { group: { id: group }, ...opts },
})

interface Run {
  readonly name: string
  readonly data: { readonly group: string }
  readonly attemptsStarted: number
}

/** Workers that note the order in which jobs of each group start, and how many of one group run at once. */
function workers(
  queue: ShapedQueue,
  run: (job: Run & { readonly worker: ShapedWorker }) => Promise<unknown>,
  options = {},
) {
  const starts = new Map<string, string[]>()
  const running = new Map<string, number>()
  const seen = { most: 0, starts: (group: string) => starts.get(group) ?? [] }
  const made: ShapedWorker[] = [1, 2, 3].map((i) =>
    shop.worker(
      queue,
      async (job) => {
        const { group } = job.data
        starts.set(group, [...seen.starts(group), job.name])
        running.set(group, (running.get(group) ?? 0) + 1)
        seen.most = Math.max(seen.most, running.get(group) as number)
        await delay(1)
        running.set(group, (running.get(group) as number) - 1)
        return run(Object.assign(job, { worker: made[i - 1] as ShapedWorker }) as never)
      },
      { concurrency: 5, ...options },
    ),
  )
  return { seen, workers: made, completed: eventsOf('completed', ...made), failed: eventsOf('failed', ...made) }
}

test('a job that backs off is the next one of its group, over several workers, and others do not wait for it', async () => {
  const queue = shop.queue(STRICT)
  const names = ['1', '2', '3', '4', '5', '6']
  const backoff = { attempts: 3, backoff: { type: 'fixed', delay: 30 } }
  await queue.addBulk(['a', 'b', 'c', 'd'].flatMap((group) => names.map((name) => of(group, name, backoff))))
  const { seen, completed } = workers(queue, async ({ name, attemptsStarted }) => {
    if (name === '2' && attemptsStarted < 3) throw new Error('not yet')
  })
  await completed.reach(24)
  expect(seen.most).toBe(1)
  for (const group of ['a', 'b', 'c', 'd']) expect(seen.starts(group)).toEqual(['1', '2', '2', '2', '3', '4', '5', '6'])
})

test.each([
  ['it is delayed for a retry', { backoff: { type: 'fixed', delay: HOUR_MS }, attempts: 2 }],
  ['it is retried at once', { attempts: 2 }],
] as const)('a more urgent job waits for one that has started, while %s', async (_, opts) => {
  const queue = shop.queue(STRICT)
  const first = await queue.add('first', {}, { group: { id: 'a', priority: 5 }, ...opts })
  const worker = shop.worker(queue, null, { autorun: false })
  const taken = await worker.getNextJob('t', { block: false })
  await queue.add('urgent', {}, { group: { id: 'a' } })
  await taken!.moveToFailed(new Error('no'), 't', false)
  if (await first.isDelayed()) {
    expect(await worker.getNextJob('t', { block: false })).toBeUndefined()
    await first.promote()
  }
  const again = await worker.getNextJob('t', { block: false })
  expect(again!.id).toBe(first.id)
  expect(await worker.getNextJob('t', { block: false })).toBeUndefined()
  await again!.moveToCompleted('', 't', false)
  expect((await worker.getNextJob('t', { block: false }))!.name).toBe('urgent')
})

test('a job whose worker was killed runs again before any other job of its group', async () => {
  const queue = shop.queue(STRICT)
  await queue.addBulk([of('a', 'poison'), of('a', '2'), of('b', '1')])
  const script = new URL('../failures/programs/dying-worker.ts', import.meta.url)
  const dying = processes.fork(script, { args: [redis.url, redis.prefix, queue.name] })
  expect(await dying.exited, dying.output).toMatchObject({ signal: 'SIGKILL' })
  const { seen, completed } = workers(queue, async () => {}, { stalledInterval: 200 })
  await completed.until(() => completed.all.some(({ name }) => name === '2'))
  expect(seen.starts('a')).toEqual(['poison', '2'])
})

test('a job that is limited by its worker goes back to the head, and none starts before it', async () => {
  const queue = shop.queue(STRICT)
  await queue.addBulk(['1', '2', '3'].map((name) => of('a', name)))
  let limited = 0
  const { seen, completed } = workers(queue, async (job) => {
    if (job.name !== '2' || limited === 2) return
    limited += 1
    await job.worker.rateLimitGroup(job as never, 20)
    throw Worker.RateLimitError()
  })
  await completed.reach(3)
  expect(seen.starts('a')).toEqual(['1', '2', '2', '2', '3'])
})

test('a parent that waits for children of its own group lets these go, and no other', async () => {
  const queue = shop.queue(STRICT)
  await queue.addBulk([of('a', 'parent'), of('a', 'other')])
  const worker = shop.worker(queue, null, { autorun: false })
  const take = async () => (await worker.getNextJob('t', { block: false })) ?? undefined
  const parent = (await take())!
  const link = { id: parent.id as string, queue: queue.toKey('').slice(0, -1) }
  await queue.addBulk(['c1', 'c2'].map((name) => of('a', name, { parent: link })))
  expect(await parent.moveToWaitingChildren('t')).toBe(true)
  for (const name of ['c1', 'c2']) {
    const child = (await take())!
    expect(child.name).toBe(name)
    expect(await take()).toBeUndefined()
    await child.moveToCompleted('', 't', false)
  }
  const again = (await take())!
  expect(again.id).toBe(parent.id)
  expect(await take()).toBeUndefined()
  await again.moveToCompleted('', 't', false)
  expect((await take())!.name).toBe('other')
})

test('the parent of a flow waits behind nothing but its place, and its children come first', async () => {
  const queue = shop.queue(STRICT)
  await queue.waitUntilReady()
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const queueName = queue.name
  const children = ['c1', 'c2'].map((name) => ({ queueName, ...of('a', name) }))
  await flows.add({ queueName, ...of('a', 'parent'), children })
  const { seen, completed } = workers(queue, async () => {})
  await completed.reach(3)
  expect(seen.most).toBe(1)
  expect(seen.starts('a').toSorted()).toEqual(['c1', 'c2', 'parent'])
  expect(seen.starts('a')[2]).toBe('parent')
})

test('a job that fails for good lets the next one go', async () => {
  const queue = shop.queue(STRICT)
  await queue.addBulk([
    of('a', '1', { attempts: 5, backoff: 1000 }),
    of('a', '2'),
    of('a', '3', { removeOnComplete: true }),
  ])
  const { seen, completed } = workers(queue, async ({ name }) => {
    if (name === '1') throw new UnrecoverableError('no')
  })
  await completed.reach(2)
  expect(seen.starts('a')).toEqual(['1', '2', '3'])
})

test('with onFailed hold it pauses its group, which a retry, a redrive or resumeGroup ends', async () => {
  const queue = shop.queue({ groups: { order: 'strict', onFailed: 'hold' } })
  const inspector = inspectorOf(redis, shop)
  await queue.addBulk(['1', '2', '3', '4'].map((name) => of('a', name)))
  let fails = true
  const { seen, completed, failed } = workers(
    queue,
    async () => {
      if (fails) throw new Error('out of stock')
    },
    { deadLetter: `${queue.name}-dead` },
  )
  const [job] = await failed.reach(1)
  const held = await queue.getGroup('a')
  expect(held).toMatchObject({ status: 'paused', waiting: 3 })
  expect(held.overrides.paused).toMatchObject({ by: `job ${job!.id}`, reason: 'failed permanently: out of stock' })
  const [waiting] = await queue.getGroupJobs('a')
  const { hold } = (await inspector.explain(queue.name, waiting!.id as string))!
  expect(hold).toMatchObject({ cause: 'pause', group: 'a' })
  fails = false
  await queue.redrive({ from: `${queue.name}-dead` })
  await completed.reach(4)
  expect(seen.starts('a')).toEqual(['1', '1', '2', '3', '4'])
  fails = true
  await queue.addBulk(['5', '6'].map((name) => of('a', name)))
  await failed.reach(2)
  fails = false
  await queue.resumeGroup('a')
  await completed.reach(5)
  expect(seen.starts('a').slice(5)).toEqual(['5', '6'])
})

test('the order of one group is set at run time, also while several of its jobs run', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk([
    ...['1', '2', '3', '4'].map((name) => of('a', name)),
    ...['1', '2'].map((name) => of('b', name)),
  ])
  const worker = shop.worker(queue, null, { autorun: false })
  const take = async () => (await worker.getNextJob('t', { block: false })) ?? undefined
  const names = async () => [await take(), await take(), await take()].flatMap((job) => (job ? [job] : []))
  const running = await names()
  expect(running.map(({ data, name }) => data.group + name)).toEqual(['a1', 'b1', 'a2'])
  await queue.setGroup('a', { order: 'strict' }, { by: 'ada', reason: 'a test' })
  expect(await queue.getGroup('a')).toMatchObject({ inForce: { order: 'strict', concurrency: 1 } })
  expect((await take())!.data.group).toBe('b')
  expect(await take()).toBeUndefined()
  await running[0]!.moveToCompleted('', 't', false)
  expect(await take()).toBeUndefined()
  await running[2]!.moveToCompleted('', 't', false)
  expect((await take())!.name).toBe('3')
  expect(await take()).toBeUndefined()
  await queue.clearGroup('a')
  expect((await take())!.name).toBe('4')
})

test('a job that ended in a stock client holds its group for a second at most', async () => {
  const queue = shop.queue(STRICT)
  await queue.addBulk(['1', '2'].map((name) => of('a', name, { attempts: 2, backoff: HOUR_MS })))
  const { failed, completed } = workers(queue, async ({ name }) => {
    if (name === '1') throw new Error('no')
  })
  const [job] = await failed.reach(1)
  // A stock client removes it.
  await redis.client().zrem(queue.toKey('delayed'), job!.id as string)
  await redis.client().del(queue.toKey(job!.id as string))
  await completed.reach(1)
  expect(completed.all[0]!.name).toBe('2')
})

test('a job waits with a group that its host holds, and says which job that is', async () => {
  const queue = shop.queue({
    ...STRICT,
    limits: [{ name: 'host', by: 'host', algorithm: 'fixed-window', rate: '1/h' }],
  } as Shape)
  const inspector = inspectorOf(redis, shop)
  const keyed = (group: string, name: string, host: string) => of(group, name, { keys: { host } })
  await queue.addBulk([keyed('a', '1', 'x'), keyed('a', '2', 'x'), keyed('a', '3', 'y'), keyed('b', '1', 'z')])
  const worker = shop.worker(queue, null, { autorun: false })
  const take = async () => (await worker.getNextJob('t', { block: false })) ?? undefined
  const [first, other] = [(await take())!, (await take())!]
  expect([first.data.group, other.data.group].toSorted()).toEqual(['a', 'b'])
  const own = first.data.group === 'a' ? first : other
  const [, second] = await queue.getGroupJobs('a')
  await own.moveToDelayed(Date.now() + HOUR_MS, 't')
  expect(await take()).toBeUndefined()
  const held = (await inspector.explain(queue.name, second!.id as string))!
  expect(held.group).toMatchObject({ status: 'maxed' })
  expect(held.holders).toMatchObject([{ jobId: own.id, state: 'delayed', dueAt: expect.any(Date) }])
  await queue.promoteJobs()
  expect(await take()).toBeUndefined()
  // Its host is used up: the group waits for it, although the host of its third job is free.
  expect(await queue.getGroup('a')).toMatchObject({ status: 'limited', heldBy: 'host', heldKeys: { host: 'x' } })
})

test('what order and onFailed may be is said by name', () => {
  const make = (groups: object) => () => shop.queue({ groups } as Shape)
  expect(make({ order: 'fifo' })).toThrow(new InvalidShapeError('shape.groups.order must be \'strict\'; got "fifo"'))
  expect(make({ order: 'strict', onFailed: 'stop' })).toThrow(/shape\.groups\.onFailed must be 'next' or 'hold'/)
  expect(make({ order: 'strict', concurrency: 3 })).toThrow(
    "shape.groups.concurrency must be 1, or left out, with order 'strict'; got 3",
  )
})
