import { afterAll, describe, expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import { GroupFullError, QueueFullError, type Shape, type ShapedQueue, TooLargeError } from '../../src/index.ts'
import { Inspector } from '../../src/inspect/index.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

const STORIES = Number(process.env.SHARE_STORIES ?? 6)
const by = { by: 'ops', reason: 'test' }
const LATER_MS = 3_600_000

const jobs = (id: string, count: number, opts: object = {}) =>
  Array.from({ length: count }, () => ({ name: 'j', data: {}, opts: { ...opts, group: { id } } }))
const refusalOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => error,
  )
const depthOf = async (queue: ShapedQueue) => (await queue.meter()).depth

/** Adds jobs of a group one by one until one is refused. @returns how many, and the refusal */
async function fill(queue: ShapedQueue, id: string): Promise<{ count: number; refusal: unknown }> {
  for (let count = 0; ; count++) {
    const refusal = await refusalOf(queue.add('j', {}, { group: { id } }))
    if (refusal) return { count, refusal }
  }
}

/** The most that a group may hold if the others leave it so much room, as in lua/groups/share.lua. */
function mostOf({ ofFree, capacity, isHeld = false }: Bound, room: number): number {
  if (room <= 0) return 0
  const most = (ofFree * room * room) / (capacity + ofFree * room)
  return isHeld ? Math.floor(most) : Math.ceil(most)
}

interface Bound {
  readonly ofFree: number
  readonly capacity: number
  readonly isHeld?: boolean
}

/** What so many groups leave at least that took what they may one after the other, and keep it. */
function leftBy(count: number, bound: Bound): number {
  let room = bound.capacity
  for (let i = 0; i < count; i++) room -= mostOf(bound, room)
  return room
}

describe('any number of groups whose jobs do not leave, in whatever order these come', () => {
  /** By a seed: groups that add alone or in bulks, of which some are paused; jobs come in random order. */
  async function story(seed: number) {
    const { uniform } = randomOf(seed * 0x9e3779b9)
    const pick = <T>(from: readonly T[]) => from[Math.floor(uniform() * from.length)] as T
    const bound = { ofFree: pick([0.25, 1, 1, 4]), capacity: pick([20, 100, 300]) }
    const { ofFree, capacity } = bound
    const queue = shop.queue({ capacity, groups: pick([true, ofFree !== 1]) ? { share: { ofFree } } : {} })
    const ids = Array.from({ length: pick([1, 2, 5, 12, 40]) }, (_, i) => `held-${i}`)
    const paused = new Set(ids.filter(() => uniform() < 0.3))
    for (const id of paused) await queue.pauseGroup(id, by)
    const held = new Map(ids.map((id) => [id, 0]))
    const depth = () => [...held.values()].reduce((sum, one) => sum + one, 0)
    const full = new Set<string>()
    while (full.size < ids.length) {
      const id = pick(ids.filter((one) => !full.has(one)))
      const count = uniform() < 0.5 ? 1 : Math.ceil(uniform() * (capacity / 4))
      const own = held.get(id) as number
      const most = mostOf({ ...bound, isHeld: paused.has(id) }, capacity - (depth() - own))
      const opts = uniform() < 0.3 ? { delay: LATER_MS } : {}
      const refusal = await refusalOf(queue.addBulk(jobs(id, count, opts)))
      const about = `seed ${seed}: ${count} of ${id} beside ${own} of ${depth()} of ${capacity}, ${most} allowed`
      if (own + count <= most) {
        expect(refusal, about).toBeUndefined()
        held.set(id, own + count)
      } else if (count <= mostOf(bound, capacity)) expect(refusal, about).toBeInstanceOf(QueueFullError)
      else expect(refusal, about).toBeInstanceOf(TooLargeError)
      if (own >= most) full.add(id)
    }
    const left = capacity - (await depthOf(queue))
    expect(left).toBe(capacity - depth())
    expect(left, `seed ${seed}`).toBeGreaterThanOrEqual(leftBy(ids.length, bound))
    // Each rounds up by less than one place.
    expect(left, `seed ${seed}`).toBeGreaterThan(capacity / (1 + ofFree * ids.length) - ids.length)
    if (left > 0) await findsPlaces(queue)
  }

  /** Another group whose jobs leave has places, again and again. */
  async function findsPlaces(queue: ShapedQueue) {
    for (let i = 0; i < 5; i++) {
      const job = await queue.add('j', {}, { group: { id: 'healthy' } })
      await job.remove()
    }
  }

  test(`each holds exactly what it may, and the others find places (${STORIES} stories)`, async () => {
    for (let seed = 1; seed <= STORIES; seed++) await story(seed)
  })

  test('of a thousand places ten that fill up one after the other leave 89, and forty 17', async () => {
    const bound = { ofFree: 1, capacity: 1000 }
    const queue = shop.queue({ capacity: 1000, groups: {} })
    for (let i = 0; i < 10; i++) await queue.addBulk(jobs(`held-${i}`, mostOf(bound, leftBy(i, bound))))
    expect(1000 - (await depthOf(queue))).toBe(leftBy(10, bound))
    expect(leftBy(10, bound)).toBe(89)
    for (let i = 10; i < 40; i++) await fill(queue, `held-${i}`)
    expect(1000 - (await depthOf(queue))).toBe(leftBy(40, bound))
    expect(leftBy(40, bound)).toBe(17)
    expect((await fill(queue, 'healthy')).count).toBeGreaterThan(0)
  })

  test('of groups that are paused, any number leave places', async () => {
    const queue = shop.queue({ capacity: 100, groups: {} })
    for (let i = 0; i < 60; i++) {
      await queue.pauseGroup(`held-${i}`, by)
      await fill(queue, `held-${i}`)
    }
    // α room² / (capacity + α room) < 1 where room < (1 + √(1 + 4 × 100)) / 2.
    expect(100 - (await depthOf(queue))).toBe(10)
    expect(await refusalOf(queue.add('j', {}, { group: { id: 'held-60' } }))).toBeUndefined()
    await queue.pauseGroup('held-61', by)
    expect(await refusalOf(queue.add('j', {}, { group: { id: 'held-61' } }))).toBeInstanceOf(GroupFullError)
  })
})

test('one group alone holds half of the queue, and the refusal says what it may hold', async () => {
  const queue = shop.queue({ rate: '1/s', capacity: 10, groups: {} })
  const { count, refusal } = await fill(queue, 'a')
  expect(count).toBe(5)
  expect(refusal).toBeInstanceOf(GroupFullError)
  expect(refusal).toMatchObject({ groupId: 'a', depth: 5, capacity: 5, needed: 1 })
  expect((await fill(queue, 'b')).count).toBe(2)
  // What the others have taken meanwhile is no longer free.
  expect(await refusalOf(queue.add('j', {}, { group: { id: 'a' } }))).toMatchObject({ depth: 5, capacity: 4 })
  await expect(queue.addBulk(jobs('c', 6))).rejects.toThrow(TooLargeError)
  await queue.addBulk([...jobs('c', 1), ...jobs('d', 1), ...jobs('e', 1)])
  // No place is free: now it is the queue that is full.
  const full = await refusalOf(queue.add('j', {}, { group: { id: 'f' } }))
  expect(full).toBeInstanceOf(QueueFullError)
  expect(full).not.toBeInstanceOf(GroupFullError)
})

test.each<[string, Shape, number]>([
  ['a capacity of the groups instead', { capacity: 10, groups: { capacity: 9 } }, 9],
  ['both: the lower one', { capacity: 10, groups: { capacity: 3, share: { ofFree: 1 } } }, 3],
  ['more of what is free', { capacity: 10, groups: { share: { ofFree: 4 } } }, 8],
  ['almost nothing of it: a place each', { capacity: 10, groups: { share: { ofFree: 0.001 } } }, 1],
  ['without the reserved places', { capacity: 14, reservedPlaces: { 1: 4 }, groups: {} }, 5],
])('%s', async (_what, shape, most) => {
  const queue = shop.queue(shape)
  expect((await fill(queue, 'a')).count).toBe(most)
})

test('views show what each group may hold, and why', async () => {
  const queue = shop.queue({ capacity: 100, reservedPlaces: { 1: 10 }, groups: {} })
  const inspector = shop.keep(new Inspector({ connection: redis.connection, prefix: redis.prefix }))
  await queue.addBulk(jobs('a', 30))
  await queue.addBulk(jobs('b', 5, { delay: LATER_MS }))
  await queue.setGroup('small', { capacity: 3 }, by)
  await queue.addBulk(jobs('small', 2))
  await queue.pauseGroup('paused', by)
  // 90 places; the others leave 83, 58 and 53.
  const bounds = { a: [40, 'share'], b: [23, 'share'], small: [3, 'capacity'], paused: [19, 'share'] } as const
  for (const [id, [most, why]] of Object.entries(bounds)) {
    const bound = { jobs: most, by: why }
    expect((await queue.getGroup(id)).bound, id).toEqual(bound)
    expect((await inspector.group(queue.name, id))?.bound, id).toEqual(bound)
  }
  expect((await inspector.groups(queue.name, { count: 5 }))?.largest[0]).toMatchObject({ id: 'a', bound: { jobs: 40 } })
})

test('without a capacity of the queue nothing bounds a group', async () => {
  const queue = shop.queue({ groups: { share: { ofFree: 0.01 } } })
  await queue.addBulk(jobs('a', 50))
  expect((await queue.getGroup('a')).bound).toBeUndefined()
})

test('an override of a group counts beside it, and the shadow mode refuses none', async () => {
  const queue = shop.queue({ capacity: 10, groups: {} })
  await queue.setGroup('a', { capacity: 2 }, by)
  await queue.setGroup('b', { capacity: 9 }, by)
  expect((await fill(queue, 'a')).count).toBe(2)
  expect((await fill(queue, 'b')).count).toBe(4)
  await queue.setShape({ mode: 'shadow' }, by)
  await queue.addBulk(jobs('a', 2))
  expect((await queue.meter()).shadowRefusedTotal).toBe(2)
})

test('retries, stalled jobs and iterations come back whatever the group may hold', async () => {
  const queue = shop.queue({ capacity: 4, groups: {} })
  await queue.addBulk(jobs('a', 2, { attempts: 2 }))
  const worker = shop.worker(queue, null)
  const job = (await worker.getNextJob('token'))!
  await queue.addBulk(jobs('a', 1))
  await job.moveToFailed(new Error('once'), 'token')
  expect(await depthOf(queue)).toBe(3)
  expect(await refusalOf(queue.add('j', {}, { group: { id: 'a' } }))).toMatchObject({ depth: 3, capacity: 2 })
})

test('with drop-oldest a group at its bound replaces a job of its own, and others find places', async () => {
  const queue = shop.queue({ capacity: 10, overflow: 'drop-oldest', groups: {} })
  for (let i = 0; i < 8; i++) await queue.add('j', {}, { jobId: `a${i}`, group: { id: 'a' } })
  expect(await depthOf(queue)).toBe(5)
  expect((await queue.getFailed()).map(({ id }) => id).toSorted()).toEqual(['a0', 'a1', 'a2'])
  // Nothing of the group is in line that could be dropped.
  await queue.addBulk(jobs('b', 2, { delay: LATER_MS }))
  expect(await refusalOf(queue.add('j', {}, { group: { id: 'b' } }))).toBeInstanceOf(GroupFullError)
  await queue.add('j', {}, { group: { id: 'c' } })
})

test('a bulk in parts holds places that are claimed', async () => {
  const queue = shop.queue({ capacity: 1000, groups: {} })
  await queue.addBulk(jobs('a', 400, { priority: undefined }))
  await queue.addBulk(jobs('a', 50).map((job) => ({ ...job, opts: { group: { id: 'a', priority: 1 } } })))
  // More than half of the queue would be taken: all are checked by one script.
  await expect(queue.addBulk(jobs('a', 150))).rejects.toMatchObject({ depth: 450, capacity: 500, needed: 150 })
  await queue.addBulk(jobs('b', 160))
  expect(await depthOf(queue)).toBe(610)
})

describe('retryAfterMs under a bound by what is free', () => {
  const held = new HeldQueue(redis, redis.client(), 'hints')
  afterAll(() => held.close())
  const client = redis.client()
  const INTERVAL_MS = 100

  const offer = (id: string) => refusalOf(held.add({ group: { id } }))

  /** Jobs leave at their slots until the group has a place. @returns how long that takes, ms */
  async function waited(id: string): Promise<number> {
    const fromUs = held.nowUs
    for (;;) {
      const { nextUs } = await held.depart(1)
      // The job counts as ended: there are no workers here.
      await client.del(`${held.base}active`)
      if (!(await offer(id))) return (held.nowUs - fromUs) / 1000
      if (nextUs !== undefined) await held.advanceTo(nextUs)
    }
  }

  test.each<[string, Shape, others: number[], hold?: (queue: HeldQueue) => Promise<unknown>]>([
    ['alone: its own next job', {}, []],
    ['beside three others', {}, [4, 4, 4]],
    ['beside others that have taken what it might hold', {}, [30, 20, 5]],
    [
      'with a slow rate of its own: the jobs of the others',
      {},
      [20, 20],
      ({ backend }) => backend.store.changeGroup('a', { rate: [1, 60_000] }, by, undefined),
    ],
    ['all with a slow rate', { groups: { rate: '1/s' } }, [20, 20]],
    [
      'paused: the jobs of the others',
      {},
      [20, 20],
      ({ backend }) => backend.store.changeGroup('a', { paused: true }, by, undefined),
    ],
    [
      'paused for a time, and the others too',
      {},
      [],
      ({ backend }) => backend.store.changeGroup('a', { paused: true }, by, 3000),
    ],
  ])('%s', async (_what, shape, others, hold) => {
    await held.reset({ rate: '10/s', capacity: 100, groups: {}, ...shape })
    while (!(await offer('a')));
    for (const [i, count] of others.entries()) {
      for (let n = 0; n < count && !(await offer(`other-${i}`)); n++);
    }
    // The first departure of a queue that was idle comes at once.
    await held.depart(1)
    await client.del(`${held.base}active`)
    await hold?.(held)
    while (!(await offer('a')));
    const refusal = (await offer('a')) as GroupFullError
    expect(refusal).toBeInstanceOf(GroupFullError)
    const trueMs = await waited('a')
    const about = `told ${refusal.retryAfterMs}, was ${trueMs}, ${refusal.depth} of ${refusal.capacity}`
    // In turns, the group may be next or last.
    const turnMs = INTERVAL_MS * (others.length + 1) + (shape.groups?.rate ? 1000 : 0)
    expect(Math.abs(refusal.retryAfterMs - trueMs), about).toBeLessThanOrEqual(turnMs + 2)
  })
})
