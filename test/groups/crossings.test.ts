import { Worker } from 'bullmq'
import { expect, test } from 'vitest'
import { CannotStartInTimeError, QueueFullError, ShapedFlowProducer, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, eventsOf, gate, Record, Workshop } from '../worker/support.ts'

// Groups where they meet other features.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const by = { by: 'test', reason: 'test' }

const of = (id: string, opts: object = {}) => ({ group: { id }, ...opts })
const waiting = async (queue: ShapedQueue, id: string) => (await queue.getGroupJobs(id)).map(({ name }) => name)
/** Keys of groups that are left behind, but for the state that all have in common. */
const leftOf = async (queue: ShapedQueue) =>
  (await redis.client().keys(`${queue.toKey('')}meta:group*`)).filter((key) => key !== queue.toKey('meta:groups'))

test('a parent waits for children in a group of another queue, and then for its own group', async () => {
  const [parents, children] = [shop.queue({ groups: { concurrency: 1 } }), shop.queue({ groups: { concurrency: 1 } })]
  await Promise.all([parents.waitUntilReady(), children.waitUntilReady()])
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  await flows.add({
    ...{ name: 'parent', queueName: parents.name, data: {}, opts: of('p') },
    children: ['c1', 'c2'].map((name) => ({ name, queueName: children.name, data: {}, opts: of('c') })),
  })
  expect(await parents.getGroup('p')).toMatchObject({ status: 'idle', waiting: 0, delayed: 1 })
  await parents.pauseGroup('p', by)
  const parent = eventsOf(
    'completed',
    shop.worker(parents, async () => {}),
  )
  await eventsOf(
    'completed',
    shop.worker(children, async () => {}, { concurrency: 5 }),
  ).reach(2)
  await expect.poll(() => parents.getGroup('p')).toMatchObject({ status: 'paused', waiting: 1, delayed: 0 })
  expect(parent.all).toEqual([])
  await parents.resumeGroup('p', by)
  await parent.reach(1)
  expect([await leftOf(parents), await leftOf(children)]).toEqual([[], []])
})

test('a parent that fails with its child holds no place of its group', async () => {
  const queue = shop.queue({ capacity: 10, groups: { capacity: 1, concurrency: 1 } })
  await queue.waitUntilReady()
  const flows = shop.keep(new ShapedFlowProducer({ connection: redis.connection, prefix: redis.prefix }))
  await flows.add({
    name: 'parent',
    queueName: queue.name,
    data: {},
    opts: of('p') as never,
    children: [
      { name: 'child', queueName: queue.name, data: {}, opts: of('c', { failParentOnFailure: true }) as never },
    ],
  })
  const worker = shop.worker(queue, ({ name }) =>
    name === 'child' ? Promise.reject(new Error('no')) : Promise.resolve(),
  )
  const failed = eventsOf('failed', worker)
  await failed.reach(2)
  expect(await queue.getGroup('p')).toMatchObject({ status: 'idle', waiting: 0, delayed: 0, active: 0 })
  const completed = eventsOf('completed', worker)
  await queue.add('again', {}, of('p'))
  await completed.reach(1)
  expect(await leftOf(queue)).toEqual([])
})

test('a scheduler goes on while its group is paused, full or removed, with one iteration at a time', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  await queue.waitUntilReady()
  await queue.pauseGroup('s', by)
  await queue.upsertJobScheduler('tick', { every: 50 }, { name: 'tick', opts: of('s') as never })
  const worker = shop.worker(queue, async () => {})
  const completed = eventsOf('completed', worker)
  await queue.add('other', {}, of('o'))
  await completed.reach(1)
  expect(await queue.getGroup('s')).toMatchObject({ status: 'paused' })
  expect(completed.all.map(({ name }) => name)).toEqual(['other'])
  await queue.resumeGroup('s', by)
  await completed.reach(4)
  expect(completed.all.slice(1).every(({ opts }) => (opts as { group?: { id: string } }).group?.id === 's')).toBe(true)
  await queue.removeJobScheduler('tick')
})

test('deduplication that replaces and extends a delayed job leaves one place of its group, or moves it', async () => {
  const queue = shop.queue({ groups: { capacity: 2 } })
  const deduplication = { id: 'd', ttl: 60_000, extend: true, replace: true }
  for (const i of [1, 2, 3, 4]) await queue.add(`job${i}`, {}, of('a', { delay: 60_000, deduplication }))
  expect(await queue.getGroup('a')).toMatchObject({ delayed: 1, waiting: 0 })
  await queue.add('elsewhere', {}, of('b', { delay: 60_000, deduplication }))
  expect(await queue.getGroup('a')).toMatchObject({ delayed: 0 })
  expect(await queue.getGroup('b')).toMatchObject({ delayed: 1 })
  await queue.add('x', {}, of('a'))
  await queue.add('y', {}, of('a', { deduplication: { id: 'e' } }))
  // No place, but none is needed: it exists.
  const same = await queue.add('y2', {}, of('a', { deduplication: { id: 'e' } }))
  expect(await waiting(queue, 'a')).toEqual(['x', 'y'])
  expect(same.id).toBe((await queue.getGroupJobs('a'))[1]?.id)
})

test('deduplication that keeps the last while one runs adds it to its group at the end', async () => {
  const queue = shop.queue({ groups: { concurrency: 1 } })
  await queue.waitUntilReady()
  const open = gate()
  const worker = shop.worker(queue, () => open.opened, { concurrency: 3 })
  const completed = eventsOf('completed', worker)
  const departed = departuresOf(worker)
  const deduplication = { id: 'd', keepLastIfActive: true }
  await queue.add('first', {}, of('a', { deduplication }))
  await departed.reach(1)
  await queue.add('second', {}, of('a', { deduplication }))
  await queue.add('third', {}, of('a', { deduplication }))
  open.open()
  await completed.reach(2)
  expect(completed.all.map(({ name }) => name)).toEqual(['first', 'third'])
  expect(completed.all[1]?.opts).toMatchObject({ group: { id: 'a' } })
  await worker.close()
  expect(await leftOf(queue)).toEqual([])
})

test('a redrive brings dead letters back into their group, also beyond its bound', async () => {
  const [queue, dead] = [shop.queue({ groups: { capacity: 2 } }), shop.queue()]
  await queue.addBulk(['j0', 'j1'].map((name) => ({ name, data: {}, opts: of('a', { attempts: 1 }) })))
  const worker = shop.worker(queue, () => Promise.reject(new Error('no')), { deadLetter: dead.name })
  await eventsOf('failed', worker).reach(2)
  await worker.close()
  await queue.add('new', {}, of('a'))
  expect(await queue.redrive({ from: dead.name })).toMatchObject({ redriven: 2 })
  expect(await waiting(queue, 'a')).toEqual(['new', 'j0', 'j1'])
  await expect(queue.add('more', {}, of('a'))).rejects.toMatchObject({ groupId: 'a', depth: 3, capacity: 2 })
  await eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  ).reach(3)
  expect(await leftOf(queue)).toEqual([])
})

test('addOnce to a full group stores nothing; repeated after it was added it adds nothing, full or paused', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  const once = (key: string) => queue.addOnce([{ name: key, data: {}, opts: of('a') }], { key, fingerprint: 'f' })
  const first = await once('one')
  await expect(once('two')).rejects.toMatchObject({ groupId: 'a' })
  await queue.pauseGroup('a', by)
  expect(await once('one')).toMatchObject({ ids: first.ids, replayed: true })
  await queue.resumeGroup('a', by)
  await eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  ).reach(1)
  expect(await once('two')).toMatchObject({ replayed: false })
})

test('jobs of groups take none of the reserved places, whatever their priority in the group', async () => {
  const queue = shop.queue({ capacity: 3, reservedPlaces: { 1: 1 }, groups: { share: { ofFree: 1000 } } })
  await queue.add('a', {}, { group: { id: 'a', priority: 1 } })
  await queue.add('b', {}, of('b'))
  await expect(queue.add('c', {}, { group: { id: 'c', priority: 1 } })).rejects.toBeInstanceOf(QueueFullError)
  await expect(queue.addBulk([{ name: 'c', data: {}, opts: of('c') }])).rejects.toBeInstanceOf(QueueFullError)
  await queue.add('important', {}, { priority: 1 })
})

test('a latest start in a paused group: refused if the pause ends too late, failed if it does not end in time', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.waitUntilReady()
  const worker = shop.worker(queue, async () => {})
  const [failed, completed] = [eventsOf('failed', worker), eventsOf('completed', worker)]
  const add = (name: string, ms: number) => queue.add(name, {}, of('a', { mustStartBefore: Date.now() + ms }))
  await queue.pauseGroup('a', { ...by, ttlMs: 60_000 })
  await expect(add('late', 30_000)).rejects.toBeInstanceOf(CannotStartInTimeError)
  await add('in time', 120_000)
  // No one knows when this one ends, so it is admitted, as in a paused queue.
  await queue.pauseGroup('a', by)
  const late = await add('too late', 4000)
  await queue.add('of another', {}, of('b'))
  await completed.reach(1)
  await expect.poll(() => Date.now()).toBeGreaterThan((late.opts as { mustStartBefore: number }).mustStartBefore)
  await queue.resumeGroup('a', by)
  await failed.reach(1)
  await completed.reach(2)
  expect([failed, completed].map(({ all }) => all.map(({ name }) => name))).toEqual([
    ['too late'],
    ['of another', 'in time'],
  ])
})

test('two workers that limit the same group: it is held until the later time, and no attempt is used', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.waitUntilReady()
  const refused = new Record<string>()
  const limiting = (ms: number) => {
    const worker = shop.worker(queue, async (job) => {
      if (refused.all.length === 2) return
      refused.add(job.name)
      await refused.reach(2)
      await worker.rateLimitGroup(job, ms)
      throw Worker.RateLimitError()
    })
    return worker
  }
  const workers = [limiting(200), limiting(800)]
  const [completed, departed] = [eventsOf('completed', ...workers), departuresOf(...workers)]
  await queue.addBulk(['a1', 'a2', 'a3'].map((name) => ({ name, data: {}, opts: of('a') })))
  await refused.reach(2)
  const nowUs = departed.all[1]?.departureTimeUs as number
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ status: 'limited', waiting: 3 })
  expect(await queue.getGroupsCountByStatus()).toMatchObject({ limited: 1, waiting: 0 })
  // They go back before the one that has not run, in the order of their returns.
  expect((await waiting(queue, 'a'))[2]).toBe('a3')
  await queue.add('b', {}, of('b'))
  await completed.reach(4)
  expect(completed.all[0]?.name).toBe('b')
  expect(completed.all.map(({ attemptsMade }) => attemptsMade)).toEqual([1, 1, 1, 1])
  const again = departed.all.slice(2).filter(({ name }) => name !== 'b')
  expect(Math.min(...again.map(({ departureTimeUs }) => departureTimeUs)) - nowUs).toBeGreaterThanOrEqual(800_000)
})

test('a job that was stalled goes back to where it was, and its place is free at once', async () => {
  const queue = shop.queue({ groups: { concurrency: 1 } })
  const names = ['stalled', 'second', 'third']
  await queue.addBulk(names.map((name) => ({ name, data: {}, opts: of('a') })))
  const worker = shop.worker(queue, null, { stalledInterval: 1 })
  const stalled = await worker.getNextJob('token')
  expect(await worker.getNextJob('token')).toBeUndefined()
  // Its lock is gone, as if its process had been killed long ago.
  await redis.client().del(queue.toKey(`${stalled?.id}:lock`))
  const checking = worker as unknown as { moveStalledJobsToWait: () => Promise<void> }
  await expect
    .poll(async () => {
      await checking.moveStalledJobsToWait()
      return waiting(queue, 'a')
    })
    .toEqual(names)
  expect(await queue.getGroup('a')).toMatchObject({ status: 'waiting', active: 0 })
  expect(await worker.getNextJob('token')).toMatchObject({ name: 'stalled' })
  expect(await worker.getNextJob('token')).toBeUndefined()
})

test.each(['a:b:c', 'a b\n"c"', '\u{1f600}', '0', '__proto__', 'x'.repeat(256)])(
  'any text is the id of a group: %j',
  async (id) => {
    const queue = shop.queue({ groups: { rate: '100/s', concurrency: 1, capacity: 3 } })
    await queue.setGroup(id, { weight: 2 }, by)
    await queue.addBulk(Array.from({ length: 3 }, (_, i) => ({ name: `${i}`, data: {}, opts: of(id) })))
    await expect(queue.add('full', {}, of(id))).rejects.toMatchObject({ groupId: id })
    expect(await queue.getGroup(id)).toMatchObject({ waiting: 3, inForce: { weight: 2 } })
    expect(await queue.getGroupsByStatus('waiting')).toEqual([id])
    await eventsOf(
      'completed',
      shop.worker(queue, async () => {}),
    ).reach(3)
    expect(await queue.getGroup(id)).toMatchObject({ waiting: 0, active: 0, status: 'idle' })
  },
)
