import { Job } from 'bullmq'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidShapeError, type Shape, type ShapedQueue, type ShapedWorker } from '../../src/index.ts'
import { inspectorOf } from '../inspect/support.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { Record as Seen, Workshop } from '../worker/support.ts'

// Room for tenants that come: how many of a queue's places one group may take.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()

const WHO = { by: 'ada', reason: 'a test' }
const RUNS = caseCount(200, 'ROOM_STORIES')
const GROUPS = ['a', 'b', 'c'] as const
const of = (group: string, count: number) =>
  Array.from({ length: count }, () => ({ name: group, data: {}, opts: { group: { id: group } } }))

/** A worker whose jobs run until they are let go. */
function holding(queue: ShapedQueue, concurrency: number) {
  const started = new Seen<string>()
  const running: { readonly group: string; readonly end: () => void }[] = []
  shop.worker(
    queue,
    ({ name }) =>
      new Promise<void>((end) => {
        running.push({ group: name, end })
        started.add(name)
      }),
    { concurrency },
  )
  // A worker closes once its jobs have ended.
  shop.keep({ close: async () => endAll() })
  const end = (group: string) => {
    const at = running.findIndex((job) => job.group === group)
    running.splice(at, 1)[0]?.end()
  }
  const endAll = () => {
    for (const job of running.splice(0)) job.end()
  }
  return { started, end, count: (group: string) => running.filter((job) => job.group === group).length }
}

test('of 20 places and one tenant with 500 long jobs, the first job of another tenant starts at once', async () => {
  const queue = shop.queue({ concurrency: 20, groups: { keepFree: 2 } })
  await queue.addBulk(of('large', 500))
  const { started, count, end } = holding(queue, 30)
  await started.reach(19)
  await expect.poll(() => queue.getGroup('large')).toMatchObject({ active: 19, status: 'maxed', maxedBy: 'keepFree' })
  const [next] = await queue.getGroupJobs('large')
  const { hold, assumptions } = (await inspectorOf(redis, shop).explain(queue.name, next!.id as string))!
  expect(hold).toMatchObject({ cause: 'concurrency', group: 'large' })
  expect(assumptions.join(' ')).toContain('kept for groups with no running job (keepFree)')
  await queue.addBulk(of('small', 2))
  // No job has ended.
  expect((await started.reach(20)).at(-1)).toBe('small')
  expect(count('large')).toBe(19)
  // A third one needs a place of the queue.
  await queue.addBulk(of('third', 1))
  end('large')
  expect((await started.reach(21)).at(-1)).toBe('third')
  await queue.drain()
})

test('a share of the concurrency follows what is in force', async () => {
  const queue = shop.queue({ concurrency: 20, groups: { concurrency: '25%' } })
  await queue.addBulk(of('a', 30))
  const { started, count, end } = holding(queue, 50)
  await started.reach(5)
  await queue.addBulk(of('b', 1))
  expect((await started.reach(6)).at(-1)).toBe('b')
  await queue.setShape({ concurrency: 43 }, WHO)
  await started.reach(11)
  expect(count('a')).toBe(10)
  // 8 allow two: none starts before fewer run.
  await queue.setShape({ concurrency: 8 }, WHO)
  for (let i = 0; i < 8; i++) end('a')
  await expect.poll(() => queue.getActiveCount()).toBe(3)
  end('a')
  await started.reach(12)
  expect(count('a')).toBe(2)
  await queue.setGroup('a', { concurrency: '50%' }, WHO)
  await started.reach(14)
  expect(await queue.getGroup('a')).toMatchObject({
    active: 4,
    inForce: { concurrency: '50%' },
    maxedBy: 'concurrency',
  })
  expect(count('a')).toBe(4)
  await queue.drain()
})

/** Jobs that are taken, end and go in a queue, and what may run by rule alone. */
class World {
  readonly queue: ShapedQueue
  readonly #worker: ShapedWorker
  readonly #taken: Job[] = []
  readonly #keepFree: number
  /** As 3 makes it in `resize`. */
  #places = 6

  constructor(shape: Shape) {
    this.#keepFree = shape.groups?.keepFree as number
    this.queue = shop.queue(shape)
    this.#worker = shop.worker(this.queue, null, { autorun: false, maxStalledCount: 100 })
  }

  async add(n: number): Promise<void> {
    await this.queue.addBulk(of(GROUPS[n % 3] as string, 1 + (n % 4)))
  }

  #running(group: string): number {
    return this.#taken.filter(({ name }) => name === group).length
  }

  take(): Promise<boolean> {
    return this.#fetched(() => this.#worker.getNextJob('t', { block: false }) as Promise<Job | undefined>)
  }

  async #fetched(fetch: () => Promise<Job | undefined>): Promise<boolean> {
    const waiting = await Promise.all(GROUPS.map(async (group) => (await this.queue.getGroup(group)).waiting))
    const common = GROUPS.reduce((sum, group) => sum + Math.max(0, this.#running(group) - 1), 0)
    const hasRoom = this.#taken.length < this.#places
    const may = GROUPS.filter((group, i) => {
      const isFirst = this.#running(group) === 0
      return hasRoom && (waiting[i] as number) > 0 && (isFirst || common < this.#places - this.#keepFree)
    })
    const job = await fetch()
    if (!job) {
      expect(may).toEqual([])
      return false
    }
    expect(may).toContain(job.name)
    this.#taken.push(job)
    return true
  }

  #leaves(n: number): Job | undefined {
    return this.#taken.splice(n % Math.max(1, this.#taken.length), 1)[0]
  }

  async complete(n: number): Promise<void> {
    await this.#leaves(n)?.moveToCompleted('', 't', false)
  }

  /** Its end takes the next one with it. */
  async goOn(n: number): Promise<void> {
    const job = this.#leaves(n)
    if (!job) return
    await this.#fetched(async () => {
      const [, id] = ((await job.moveToCompleted('', 't', true)) ?? []) as [unknown?, string?]
      return id ? Job.fromId(this.#worker, id) : undefined
    })
  }

  async backOff(n: number): Promise<void> {
    await this.#leaves(n)?.moveToDelayed(Date.now() + 3_600_000, 't')
  }

  async giveBack(n: number): Promise<void> {
    await this.#leaves(n)?.moveToWait('t')
  }

  async promote(): Promise<void> {
    await this.queue.promoteJobs()
  }

  async stall(n: number): Promise<void> {
    const job = this.#leaves(n)
    if (!job) return
    await client.del(`${this.queue.toKey(job.id as string)}:lock`)
    for (let i = 0; i < 2; i++) {
      await client.del(this.queue.toKey('stalled-check'))
      await this.#worker.getBackend().moveStalledJobsToWait()
    }
  }

  async resize(n: number): Promise<void> {
    this.#places = 3 + (n % 6)
    await this.queue.setShape({ concurrency: this.#places }, WHO)
  }

  async drain(): Promise<void> {
    await this.queue.drain(true)
  }

  async clear(): Promise<void> {
    for (const job of this.#taken.splice(0)) await job.moveToCompleted('', 't', false)
    const held = ['held', 'running', 'common'].map((name) => this.queue.toKey(`meta:groups:${name}`))
    await this.queue.drain(true)
    expect(await client.exists(held.slice(0, 2))).toBe(0)
    await this.queue.obliterate({ force: true })
  }
}

const STEPS = ['add', 'take', 'complete', 'goOn', 'backOff', 'giveBack', 'promote', 'stall', 'resize', 'drain'] as const

test('groups that run jobs take all places but those that are kept, and no more, in any history', async () => {
  const shapes = [1, 2].flatMap((keepFree): Shape[] => [
    { concurrency: 6, groups: { keepFree } },
    { concurrency: 6, groups: { keepFree }, limits: [{ name: 'host', by: 'host', rate: '1000/s', burst: 1000 }] },
  ])
  const worlds = new Map<Shape, World>()
  const often = fc.constantFrom(...(['add', 'take', 'take', 'goOn'] as const))
  const step = fc.tuple(fc.oneof(often, fc.constantFrom(...STEPS)), fc.nat(99))
  const history = fc.record({ shape: fc.constantFrom(...shapes), steps: fc.array(step, { maxLength: 40 }) })
  const property = fc.asyncProperty(history, async ({ shape, steps }) => {
    const world = worlds.get(shape) ?? new World(shape)
    worlds.set(shape, world)
    try {
      // Clients restore a shape that is lost.
      await world.queue.getShape()
      await world.resize(3)
      for (const [kind, n] of steps) {
        await world[kind](n)
        if (n % 5 === 0) while (await world.take());
      }
    } finally {
      await world.clear()
    }
  })
  /** One group takes all places; then one of its jobs goes on. */
  const steps: [(typeof STEPS)[number], number][] = [
    ['add', 3],
    ['add', 3],
    ['take', 5],
    ['goOn', 1],
  ]
  await fc.assert(property, {
    ...{ numRuns: RUNS + shapes.length, endOnFailure: process.env.ROOM_SHRINK === undefined },
    examples: shapes.map((shape) => [{ shape, steps }]),
  })
})

test('the places of a stock client that removes a running job are found', async () => {
  const queue = shop.queue({ concurrency: 4, groups: { keepFree: 1 } })
  await queue.addBulk([...of('a', 4), ...of('b', 3)])
  const worker = shop.worker(queue, null, { autorun: false })
  const take = async () => (await worker.getNextJob('t', { block: false })) ?? undefined
  const jobs = [await take(), await take(), await take(), await take()].map((job) => job as Job)
  expect(jobs.map(({ name }) => name)).toEqual(['a', 'b', 'a', 'b'])
  for (const { id } of jobs.slice(2)) {
    await client.lrem(queue.toKey('active'), 1, id as string)
    await client.del(queue.toKey(id as string), `${queue.toKey(id as string)}:lock`)
  }
  await expect.poll(async () => (await take())?.name, { timeout: 5000 }).toBeDefined()
})

test('what keepFree and a share may be is said by name', () => {
  const make = (shape: object) => () => shop.queue(shape as Shape)
  expect(make({ concurrency: 5, groups: { keepFree: 0 } })).toThrow(
    'shape.groups.keepFree must be a whole number >= 1; got 0',
  )
  expect(make({ groups: { keepFree: 1 } })).toThrow(
    new InvalidShapeError('shape.groups.keepFree is a part of shape.concurrency, and needs it; got 1 alone'),
  )
  expect(make({ concurrency: 5, groups: { keepFree: 5 } })).toThrow(
    'shape.groups.keepFree must be fewer than shape.concurrency, 5; got 5',
  )
  for (const concurrency of ['0%', '101%', '25', '2.5555%', 'x%']) {
    expect(make({ concurrency: 5, groups: { concurrency } })).toThrow(
      `shape.groups.concurrency must be a whole number >= 1, or a share of the queue's concurrency such as '25%'; got`,
    )
  }
})
