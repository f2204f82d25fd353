import { FlowProducer, Queue } from 'bullmq'
import { expect, test } from 'vitest'
import { randomOf } from '../../packages/cli/src/simulate/random.ts'
import type { ShapedBackend } from '../../src/backend/backend.ts'
import { GroupFullError, ShapedFlowProducer, type ShapedQueue, TooLargeError } from '../../src/index.ts'
import { useRedis } from '../support/redis.ts'
import { eventsOf, Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const LATER_MS = 3_600_000
const STATES = ['waiting', 'prioritized', 'delayed', 'waiting-children'] as const
const STORIES = Number(process.env.PLACES_STORIES ?? 12)
const STEPS = 40

/** The places that the jobs of each group hold, by going through all jobs. */
async function heldPlaces(queue: ShapedQueue): Promise<ReadonlyMap<string, number>> {
  const held = new Map<string, number>()
  for (const { opts } of await queue.getJobs([...STATES])) {
    const { group } = opts as { group?: { id: string } }
    if (group) held.set(group.id, (held.get(group.id) ?? 0) + 1)
  }
  return held
}

/** What may happen to a queue with the groups a and b, by our own clients or by stock ones, which do not know groups. */
class Story {
  readonly queue: ShapedQueue
  readonly #capacity: number
  readonly #random: () => number
  readonly #stock: Queue
  readonly #flows: ShapedFlowProducer

  constructor(seed: number) {
    // Seeds that follow each other begin far apart.
    this.#random = randomOf(seed * 0x9e3779b9).uniform
    this.#capacity = 3 + Math.floor(this.#random() * 6)
    this.queue = shop.queue({ groups: { capacity: this.#capacity } })
    this.#stock = shop.keep(new Queue(this.queue.name, { connection, prefix }))
    this.#flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  }

  async step(): Promise<void> {
    const chance = this.#random()
    if (chance < 0.25) return this.#asks(1, (group) => this.queue.add('j', {}, this.#opts(group)))
    if (chance < 0.4) return this.#bulk()
    if (chance < 0.5) return this.#asks(1, (group) => this.#flow(group))
    const all = await this.queue.getJobs([...STATES])
    const job = all[Math.floor(this.#random() * all.length)]
    if (!job) return
    const known = this.#random() < 0.7 ? job : await this.#stock.getJob(job.id as string)
    const isDelayed = await job.isDelayed()
    if (chance < 0.65) await known?.remove()
    else if (chance < 0.8 && isDelayed) await known?.promote()
    else if (chance < 0.84 && isDelayed) await known?.changeDelay(LATER_MS / 2)
    else if (chance < 0.86) await this.queue.clean(0, 2, this.#random() < 0.5 ? 'delayed' : 'prioritized')
    else if (chance < 0.88) await this.queue.drain(this.#random() < 0.5)
  }

  #opts(id: string) {
    return { group: { id }, ...(this.#random() < 0.6 ? { delay: LATER_MS } : {}) }
  }

  async #bulk(): Promise<void> {
    const count = 2 + Math.floor(this.#random() * 3)
    await this.#asks(count, (id) => {
      return this.queue.addBulk(Array.from({ length: count }, () => ({ name: 'j', data: {}, opts: this.#opts(id) })))
    })
  }

  #flow(id: string) {
    const queueName = this.queue.name
    const child = { name: 'c', queueName, data: {} }
    return this.#flows.add({ name: 'p', queueName, data: {}, opts: { group: { id } }, children: [child] })
  }

  /** A call is accepted exactly if its group has so many places. */
  async #asks(count: number, call: (group: string) => Promise<unknown>): Promise<void> {
    const group = this.#random() < 0.6 ? 'a' : 'b'
    const depth = (await heldPlaces(this.queue)).get(group) ?? 0
    const outcome = await call(group).then(
      () => undefined,
      (error: unknown) => error,
    )
    if (depth + count <= this.#capacity) expect(outcome).toBeUndefined()
    else if (count <= this.#capacity) expect(outcome).toMatchObject({ groupId: group, depth, capacity: this.#capacity })
  }
}

test('a job is accepted exactly as long as those of its group that wait, are delayed or wait for children leave a place', async () => {
  for (let seed = 1; seed <= STORIES; seed++) {
    const story = new Story(seed)
    for (let step = 0; step < STEPS; step++) await story.step()
    const { queue } = story
    for (const [id, count] of await heldPlaces(queue)) {
      const { waiting, delayed } = await queue.getGroup(id)
      expect(waiting + delayed, `seed ${seed}`).toBeGreaterThanOrEqual(count)
    }
    await queue.obliterate({ force: true })
    expect(await client.keys(queue.toKey('*'))).toEqual([])
  }
})

test('retries in their backoff hold places of their group, and give them back', async () => {
  const queue = shop.queue({ groups: { capacity: 3 } })
  const opts = { attempts: 2, backoff: LATER_MS, group: { id: 'a' } }
  await queue.addBulk([1, 2].map(() => ({ name: 'j', data: {}, opts })))
  const worker = shop.worker(queue, async ({ attemptsMade }) => {
    if (attemptsMade === 0) throw new Error('once')
  })
  await eventsOf('failed', worker).reach(2)
  await expect.poll(() => queue.getGroup('a')).toMatchObject({ waiting: 0, delayed: 2 })
  await expect(queue.addBulk([1, 2].map(() => ({ name: 'j', data: {}, opts })))).rejects.toMatchObject({ depth: 2 })
  const completed = eventsOf('completed', worker)
  for (const job of await queue.getDelayed()) await job.promote()
  await completed.reach(2)
  expect(await queue.getGroup('a')).toMatchObject({ status: 'idle', waiting: 0, delayed: 0 })
  expect(await client.exists(queue.toKey('meta:groups:later'))).toBe(0)
})

test('iterations of a scheduler hold a place each, and come whether or not there is one', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  const template = { name: 'j', opts: { group: { id: 'a' } } }
  await queue.upsertJobScheduler('hourly', { every: LATER_MS, offset: LATER_MS / 2 }, template)
  expect(await queue.getGroup('a')).toMatchObject({ delayed: 1 })
  await expect(queue.add('j', {}, { group: { id: 'a' } })).rejects.toBeInstanceOf(GroupFullError)
  const worker = shop.worker(queue, async () => {})
  const completed = eventsOf('completed', worker)
  for (const job of await queue.getDelayed()) await job.promote()
  await completed.reach(1)
  // The next one is there.
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, delayed: 1 })
  await queue.removeJobScheduler('hourly')
  await queue.add('j', {}, { group: { id: 'a' } })
})

test('a parent holds a place of its group until it has left the line', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  // The flow producer declares no shape.
  await queue.waitUntilReady()
  const flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
  const queueName = queue.name
  const flow = (id: string) => ({
    ...{ name: 'parent', queueName, data: {}, opts: { group: { id: 'a' } } },
    children: [{ name: 'child', queueName, data: {}, opts: { group: { id } } }],
  })
  await expect(flows.add(flow('a'))).rejects.toBeInstanceOf(TooLargeError)
  await flows.add(flow('b'))
  await expect(queue.add('j', {}, { group: { id: 'a' } })).rejects.toMatchObject({ groupId: 'a', depth: 1 })
  const completed = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  expect((await completed.reach(2)).map(({ name }) => name)).toEqual(['child', 'parent'])
  await queue.add('j', {}, { group: { id: 'a' } })
})

test('of jobs that are due beyond the horizon of the capacity, none holds a place', async () => {
  const queue = shop.queue({ capacity: 100, capacityHorizonMs: 60_000, groups: { capacity: 2 } })
  const later = (delay: number) => queue.add('j', {}, { delay, group: { id: 'a' } })
  for (let i = 0; i < 5; i++) await later(LATER_MS)
  await later(30_000)
  await later(30_000)
  await expect(later(LATER_MS)).rejects.toMatchObject({ groupId: 'a', depth: 2, capacity: 2 })
})

test('what stock clients did with delayed jobs is found out by reports', async () => {
  const queue = shop.queue({ groups: { capacity: 500 } })
  await queue.addBulk(
    Array.from({ length: 250 }, () => ({ name: 'j', data: {}, opts: { delay: LATER_MS, group: { id: 'a' } } })),
  )
  const stock = shop.keep(new Queue(queue.name, { connection, prefix }))
  await stock.drain(true)
  expect(await queue.getGroup('a')).toMatchObject({ delayed: 250 })
  const { store } = queue.backend as unknown as ShapedBackend
  await expect
    .poll(async () => {
      await store.run('report', ['', '', '{}', '0', ''])
      return queue.getGroup('a')
    })
    .toMatchObject({ delayed: 0 })
})

test('a stock flow whose parent has a group is sorted in', async () => {
  const queue = shop.queue({ groups: { capacity: 1 } })
  const flows = shop.keep(new FlowProducer({ connection, prefix }))
  const queueName = queue.name
  const opts = { group: { id: 'a' } } as object
  await flows.add({ name: 'parent', queueName, opts, children: [{ name: 'child', queueName, opts }] })
  const completed = eventsOf(
    'completed',
    shop.worker(queue, async () => {}),
  )
  expect((await completed.reach(2)).map(({ name }) => name)).toEqual(['child', 'parent'])
})

test('a bulk that is added once and finds its group full is added by a later call with its key, once', async () => {
  const queue = shop.queue({ groups: { capacity: 2 } })
  const jobs = [1, 2].map(() => ({ name: 'j', data: {}, opts: { group: { id: 'a' } } }))
  const once = () => queue.addOnce(jobs, { key: 'key', fingerprint: 'same' })
  const delayed = await queue.add('j', {}, { delay: LATER_MS, group: { id: 'a' } })
  await expect(once()).rejects.toMatchObject({ groupId: 'a', depth: 1, capacity: 2 })
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 0, delayed: 1 })
  await delayed.remove()
  const first = await once()
  expect(first).toMatchObject({ replayed: false })
  // The group is full again, of these.
  expect(await once()).toMatchObject({ ids: first.ids, replayed: true })
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 2, delayed: 0 })
})

test('a job whose backoff is over in the call that begins it holds one place', async () => {
  const queue = shop.queue({ groups: {} })
  await queue.addBulk([1, 2].map(() => ({ name: 'j', data: {}, opts: { group: { id: 'a' } } })))
  const worker = shop.worker(queue, null)
  const job = (await worker.getNextJob('token'))!
  await worker.getBackend().moveToDelayed(job.id as string, Date.now(), 0, 'token', { fetchNext: true })
  expect(await queue.getGroup('a')).toMatchObject({ waiting: 1, delayed: 0 })
  expect(await client.exists(queue.toKey('meta:groups:later'))).toBe(0)
})
