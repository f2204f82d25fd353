import { type Job, Queue } from 'bullmq'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isRefusal } from '../../src/errors.ts'
import { type Shape, ShapedFlowProducer, type ShapedQueue, type ShapedWorker } from '../../src/index.ts'
import { changeFailed } from '../../src/queue/failed-jobs.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

// Groups in strict order, in random histories: each job that starts is one that may, by an exact reference, one starts
// whenever one may, and whatever has happened, all jobs can be done.
const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)
const client = redis.client()
const { connection, prefix } = redis

const HOUR_MS = 3_600_000
const RUNS = caseCount(150, 'STRICT_STORIES')
const GROUPS = ['a', 'b'] as const
const WHO = { by: 'ada', reason: 'a test' }
const CLEANED = ['prioritized', 'delayed', 'completed', 'failed', 'active'] as const

interface Choice {
  readonly n: number
  readonly m: number
  readonly yes: boolean
}

interface Known {
  readonly group: string
  readonly priority: number
  /** The job that waits for this one. */
  parent: string | undefined
}

/** What is known of each group by rule alone: which of its jobs have started and have not ended, and which wait. */
class World {
  readonly queue: ShapedQueue
  readonly stock: Queue
  readonly #flows: ShapedFlowProducer
  readonly #worker: ShapedWorker
  readonly #dead: string
  readonly #known = new Map<string, Known>()
  readonly #started = new Set<string>()
  /** Jobs that failed and pause their group, by that. */
  readonly #failed = new Map<string, string>()
  readonly #taken: Job[] = []
  readonly #holds: boolean
  #ids = 0

  constructor(shape: Shape) {
    this.#holds = shape.groups?.onFailed === 'hold'
    this.queue = shop.queue(shape)
    this.#dead = `${this.queue.name}-dead`
    this.stock = shop.keep(new Queue(this.queue.name, { connection, prefix }))
    this.#flows = shop.keep(new ShapedFlowProducer({ connection, prefix }))
    this.#worker = shop.worker(this.queue, null, { deadLetter: this.#dead, autorun: false })
  }

  #opts({ n, m }: Choice, parent?: string) {
    this.#ids += 1
    const jobId = `j${this.#ids}`
    const group = GROUPS[n % 2] as string
    const priority = m % 3
    this.#known.set(jobId, { group, priority, parent })
    const keys = { host: `h${m % 4}` }
    return { jobId, group: { id: group, ...(priority > 0 && { priority }) }, keys, attempts: 1 + (m % 2) }
  }

  async add(choice: Choice): Promise<void> {
    await this.queue.add('add', {}, this.#opts(choice))
  }

  async addBulk(choice: Choice): Promise<void> {
    const jobs = [0, 1, 2].map((i) => ({ name: 'b', data: {}, opts: this.#opts({ ...choice, n: choice.n + i }) }))
    await this.queue.addBulk(jobs)
  }

  /** Children that are there before their parent starts hold nothing up. */
  async flow(choice: Choice): Promise<void> {
    const queueName = this.queue.name
    const opts = this.#opts(choice)
    const child = (i: number) => ({
      name: 'child',
      queueName,
      data: {},
      opts: this.#opts({ ...choice, n: choice.n + i }, opts.jobId),
    })
    await this.#flows.add({ name: 'parent', queueName, data: {}, opts, children: [child(0), child(1)] })
  }

  /**
   * A running job waits for a child that it adds, which may be of its own group. Jobs that waited for each other's groups
   * would wait for ever.
   */
  async waitForChild(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    if (!job) return
    const parent = { id: job.id as string, queue: this.queue.toKey('').slice(0, -1) }
    const n = this.#known.get(job.id as string)?.group === 'a' ? choice.n : 1
    await this.queue.add('child', {}, { ...this.#opts({ ...choice, n }, job.id), parent })
    if (!(await job.moveToWaitingChildren(job.token as string))) throw new Error('it has a child')
  }

  #take({ n }: Choice): Job | undefined {
    return this.#taken.splice(n % Math.max(1, this.#taken.length), 1)[0]
  }

  /** Takes the next job, and holds that against the reference. */
  async take(): Promise<string | undefined> {
    const [waiting, settings] = await Promise.all([
      this.#waiting(),
      Promise.all(GROUPS.map((group) => this.queue.getGroup(group))),
      this.#noteEnds(),
    ])
    const paused = new Set(settings.filter(({ overrides }) => overrides.paused).map(({ id }) => id))
    const job = (await this.#worker.getNextJob(`t${this.#ids}`, { block: false })) as Job | undefined
    const may = GROUPS.filter((group) => !paused.has(group)).flatMap((group) => this.#mayStart(group, waiting))
    if (!job) {
      expect(may).toEqual([])
      return undefined
    }
    expect(may).toContain(job.id)
    this.#started.add(job.id as string)
    this.#taken.push(job)
    return job.id
  }

  /** Jobs that are gone hold nothing; one that failed does again once it is back. */
  async #noteEnds(): Promise<void> {
    const jobs = await this.queue.getJobs(['active', 'delayed', 'waiting-children', 'prioritized', 'waiting'])
    const alive = new Set(jobs.map(({ id }) => id as string))
    for (const id of this.#started) if (!alive.has(id)) this.#started.delete(id)
    for (const [group, id] of this.#failed) {
      if (!alive.has(id)) continue
      this.#failed.delete(group)
      this.#started.add(id)
    }
  }

  async #waiting(): Promise<readonly string[]> {
    const groups = await Promise.all(GROUPS.map((group) => this.queue.getGroupJobs(group, 0, -1)))
    const jobs = groups.flat()
    // A job that is redriven is no child any more.
    for (const { id, parentKey } of jobs) (this.#known.get(id as string) as Known).parent = parentKey?.split(':').at(-1)
    return jobs.map(({ id }) => id as string)
  }

  /** The jobs of a group of which one is to start next. */
  #mayStart(group: string, waiting: readonly string[]): readonly string[] {
    const own = waiting.filter((id) => this.#known.get(id)?.group === group)
    const holders = [...this.#started].filter((id) => this.#known.get(id)?.group === group)
    if (holders.length > 0) return own.filter((id) => holders.every((holder) => this.#waitsFor(holder, id)))
    const least = Math.min(...own.map((id) => this.#known.get(id)?.priority ?? 0))
    return own.filter((id) => this.#known.get(id)?.priority === least)
  }

  /** Whether a job is another one, or one for which that waits. */
  #waitsFor(holder: string, id: string | undefined): boolean {
    return id !== undefined && (holder === id || this.#waitsFor(holder, this.#known.get(id)?.parent))
  }

  async complete(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    await job?.moveToCompleted('done', job.token as string, false)
  }

  async fail(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    if (!job) return
    const group = this.#known.get(job.id as string)?.group as string
    const before = await this.queue.getGroup(group)
    await job.moveToFailed(new Error('no'), job.token as string, false)
    if ((await job.getState()) !== 'failed') return
    this.#started.delete(job.id as string)
    if (!this.#holds || before.overrides.paused) return
    this.#failed.set(group, job.id as string)
    expect((await this.queue.getGroup(group)).overrides.paused).toMatchObject({
      ...{ by: `job ${job.id}`, reason: 'failed permanently: no' },
    })
  }

  async backOff(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    await job?.moveToDelayed(Date.now() + HOUR_MS, job.token as string)
  }

  async giveBack(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    await job?.moveToWait(job.token as string)
  }

  async stall(choice: Choice): Promise<void> {
    const job = this.#take(choice)
    if (!job) return
    await client.del(`${this.queue.toKey(job.id as string)}:lock`)
    for (let i = 0; i < 2; i++) {
      await client.del(this.queue.toKey('stalled-check'))
      await this.#worker.getBackend().moveStalledJobsToWait()
    }
    // Any others that ran have a lock.
  }

  async #pick({ n }: Choice, ...states: ('failed' | 'delayed' | 'prioritized' | 'waiting-children')[]) {
    const jobs = await this.queue.getJobs(states)
    return jobs[n % Math.max(1, jobs.length)]
  }

  async promote(choice: Choice): Promise<void> {
    await (await this.#pick(choice, 'delayed'))?.promote()
  }

  async remove(choice: Choice): Promise<void> {
    await (await this.#pick(choice, 'delayed', 'prioritized', 'failed', 'waiting-children'))?.remove()
  }

  async retry(choice: Choice): Promise<void> {
    await (await this.#pick(choice, 'failed'))?.retry()
  }

  async retryAll(): Promise<void> {
    await this.queue.retryJobs({ state: 'failed' })
  }

  async deadLetter(choice: Choice): Promise<void> {
    const job = await this.#pick(choice, 'failed')
    if (job) await changeFailed(this.queue, job.id as string, { kind: 'deadLetter', to: this.#dead })
  }

  async redrive(): Promise<void> {
    await this.queue.redrive({ from: this.#dead })
  }

  async pauseGroup({ n }: Choice): Promise<void> {
    await this.#noteEnds()
    this.#failed.delete(GROUPS[n % 2] as string)
    await this.queue.pauseGroup(GROUPS[n % 2] as string, WHO)
  }

  async resumeGroup({ n }: Choice): Promise<void> {
    await this.#noteEnds()
    this.#failed.delete(GROUPS[n % 2] as string)
    await this.queue.resumeGroup(GROUPS[n % 2] as string, WHO)
  }

  async clean({ n, m }: Choice): Promise<void> {
    const state = CLEANED[n % CLEANED.length] as 'failed'
    await this.queue.clean(0, m % 3, state)
    const active = await client.lrange(this.queue.toKey('active'), 0, -1)
    this.#taken.splice(0, this.#taken.length, ...this.#taken.filter(({ id }) => active.includes(id as string)))
  }

  async drain({ yes }: Choice): Promise<void> {
    await this.queue.drain(yes)
  }

  /** Whatever has happened, all jobs can be done. */
  async finish(): Promise<void> {
    for (let left = 200; left > 0; left--) {
      for (const n of [0, 1]) await this.resumeGroup({ n, m: 0, yes: false })
      await this.queue.retryJobs({ state: 'failed' })
      await this.queue.promoteJobs()
      while (await this.take());
      if (this.#taken.length === 0) break
      for (const job of this.#taken.splice(0)) await job.moveToCompleted('done', job.token as string, false)
    }
    const counts = await this.queue.getJobCounts('active', 'delayed', 'prioritized', 'waiting', 'waiting-children')
    expect(counts).toEqual({ active: 0, delayed: 0, prioritized: 0, waiting: 0, 'waiting-children': 0 })
    for (const group of GROUPS) expect(await this.queue.getGroup(group)).toMatchObject({ status: 'idle', active: 0 })
    expect(await client.exists(this.queue.toKey('meta:groups:held'))).toBe(0)
  }

  async clear(): Promise<void> {
    this.#taken.length = 0
    this.#known.clear()
    this.#started.clear()
    this.#failed.clear()
    await this.queue.obliterate({ force: true })
    const letters = await client.keys(`${prefix}:${this.#dead}:*`)
    if (letters.length > 0) await client.del(letters)
  }
}

const BRINGING = ['add', 'addBulk', 'flow'] as const
const TAKING = ['take', 'take', 'complete'] as const
const OTHERS = [
  ...(['waitForChild', 'fail', 'fail', 'backOff', 'giveBack', 'stall', 'promote', 'remove', 'retry'] as const),
  ...(['retryAll', 'deadLetter', 'redrive', 'pauseGroup', 'resumeGroup', 'clean', 'drain'] as const),
]
type Kind = (typeof BRINGING)[number] | (typeof TAKING)[number] | (typeof OTHERS)[number]

const EXPECTED =
  /^(Missing (key|lock) for|Job .+ (belongs to a job scheduler|is not in the|could not be removed|has (pending|failed)))/

async function act(world: World, { kind, ...choice }: Choice & { readonly kind: Kind }): Promise<void> {
  try {
    await world[kind](choice)
  } catch (error) {
    if (!isRefusal(error) && !EXPECTED.test((error as Error).message)) throw error
  }
}

const SHAPES: readonly Shape[] = [
  { groups: { order: 'strict' } },
  { groups: { order: 'strict', onFailed: 'hold' } },
  { groups: { order: 'strict' }, priorityAgeingMs: 60_000 },
  { groups: { order: 'strict' }, limits: [{ name: 'host', by: 'host', algorithm: 'fixed-window', rate: '1000/h' }] },
]

test('in any history, jobs of a group start one at a time and in order, and none blocks it for ever', async () => {
  const worlds = new Map<Shape, World>()
  const step = (of: readonly Kind[]) =>
    fc.record({ kind: fc.constantFrom(...of), n: fc.nat(99), m: fc.nat(99), yes: fc.boolean() })
  const steps = fc.array(fc.oneof(step(BRINGING), step(TAKING), step(OTHERS)), { minLength: 2, maxLength: 24 })
  const history = fc.record({ shape: fc.constantFrom(...SHAPES), steps })
  const property = fc.asyncProperty(history, async ({ shape, steps: all }) => {
    const world = worlds.get(shape) ?? new World(shape)
    worlds.set(shape, world)
    try {
      await world.queue.getShape()
      for (const each of all) await act(world, each)
      await world.finish()
    } finally {
      await world.clear()
    }
  })
  // STRICT_SHRINK=1 looks for the shortest history that fails.
  await fc.assert(property, { numRuns: RUNS, endOnFailure: process.env.STRICT_SHRINK === undefined })
})
