import { describe, expect, test } from 'vitest'
import { QueueFullError, type ShapedQueue } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { departuresOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const add = (queue: ShapedQueue, name: string, id?: string, more: object = {}) =>
  queue.add(name, {}, { jobId: name, ...(id === undefined ? {} : { group: { id, ...more } }) })
const item = (name: string, id: string) => ({ name, data: {}, opts: { jobId: name, group: { id } } })
const dropped = async (queue: ShapedQueue) => (await queue.getFailed()).map(({ id }) => id).toSorted()
const isFull = (adding: Promise<unknown>) => expect(adding).rejects.toBeInstanceOf(QueueFullError)

describe('drop-oldest', () => {
  // One group may hold all of the queue.
  const groups = { share: { ofFree: 1000 } }
  const shape = { rate: '1000/s', capacity: 4, overflow: 'drop-oldest', groups } as const

  test('a new job replaces the oldest of its own group, and never one of another', async () => {
    const queue = shop.queue(shape)
    for (const [name, id] of ['a1', 'a2', 'a3', 'b1'].map((name) => [name, name[0]!] as const))
      await add(queue, name, id)
    await add(queue, 'a4', 'a')
    await add(queue, 'a5', 'a')
    await add(queue, 'b2', 'b')
    expect(await dropped(queue)).toEqual(['a1', 'a2', 'b1'])
    await isFull(add(queue, 'c1', 'c'))
    await isFull(add(queue, 'plain'))
    expect((await queue.getFailed())[0]!.failedReason).toBe('dropped: queue full (overflow drop-oldest)')
    expect(await queue.meter()).toMatchObject({ depth: 4, waiting: 4, droppedTotal: 3, refusedTotal: 2 })
    expect(await Promise.all(['a', 'b', 'c'].map((id) => queue.getGroupJobsCount(id)))).toEqual([3, 1, 0])
    const departures = await departuresOf(shop.worker(queue, async () => {})).reach(4)
    expect(departures.map(({ name }) => name).toSorted()).toEqual(['a3', 'a4', 'a5', 'b2'])
  })

  test('jobs without a group replace each other, and none of a group', async () => {
    const queue = shop.queue(shape)
    for (const name of ['p1', 'p2']) await add(queue, name)
    for (const name of ['a1', 'a2']) await add(queue, name, 'a')
    for (const name of ['p3', 'p4', 'p5']) await add(queue, name)
    expect(await dropped(queue)).toEqual(['p1', 'p2', 'p3'])
    expect(await queue.getGroupJobsCount('a')).toBe(2)
  })

  test('a bulk takes from each of its groups what it needs, or nothing', async () => {
    const queue = shop.queue(shape)
    await queue.addBulk([item('a1', 'a'), item('a2', 'a'), item('b1', 'b')])
    // One of the two finds the free place.
    await queue.addBulk([item('a3', 'a'), item('b2', 'b')])
    expect(await dropped(queue)).toEqual(['b1'])
    await queue.addBulk([item('a4', 'a'), item('b3', 'b')])
    expect(await dropped(queue)).toEqual(['a1', 'b1', 'b2'])
    await isFull(queue.addBulk([item('a5', 'a'), item('c1', 'c')]))
    expect(await dropped(queue)).toHaveLength(3)
    expect((await queue.meter()).depth).toBe(4)
  })

  test('a delayed job that replaces the last one of its group leaves nothing of the group in line', async () => {
    const queue = shop.queue({ ...shape, capacity: 2 })
    await add(queue, 'a1', 'a')
    await add(queue, 'b1', 'b')
    await queue.add('a2', {}, { jobId: 'a2', delay: 60_000, group: { id: 'a' } })
    expect(await dropped(queue)).toEqual(['a1'])
    expect(await queue.getGroupsCountByStatus()).toEqual({ waiting: 1, limited: 0, maxed: 0, paused: 0 })
    expect(await queue.getGroupStatus('a')).toBe('idle')
    const departures = departuresOf(shop.worker(queue, async () => {}))
    await departures.reach(1)
    await add(queue, 'b2', 'b')
    expect((await departures.reach(2)).map(({ name }) => name)).toEqual(['b1', 'b2'])
  })

  test('a group that is full by its own bound refuses', async () => {
    const queue = shop.queue({ ...shape, groups: { capacity: 1 } })
    await add(queue, 'a1', 'a')
    await isFull(add(queue, 'a2', 'a'))
    expect(await dropped(queue)).toEqual([])
  })
})

test('drop-lowest: the last of the group, if it is less important than the new one', async () => {
  const queue = shop.queue({ rate: '1/h', capacity: 3, overflow: 'drop-lowest', overflowTo: 'dead', groups: {} })
  await add(queue, 'a1', 'a', { priority: 1 })
  await add(queue, 'a5', 'a', { priority: 5 })
  await add(queue, 'b9', 'b', { priority: 9 })
  await add(queue, 'a2', 'a', { priority: 2 })
  expect(await dropped(queue)).toEqual(['a5'])
  await isFull(add(queue, 'a3', 'a', { priority: 2 }))
  await add(queue, 'a0', 'a')
  expect(await dropped(queue)).toEqual(['a2', 'a5'])
  expect((await queue.getGroupJobs('a')).map(({ id }) => id)).toEqual(['a0', 'a1'])
  expect(await redis.client().llen(`${redis.prefix}:dead:wait`)).toBe(2)
})
