import { Queue } from 'bullmq'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { HeldQueue } from '../model/held-queue.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'
import { ReferenceLine } from './reference.ts'

const redis = useRedis(import.meta.url)
const held = new HeldQueue(redis, redis.client(), 'held')
const stock = new Queue('held', { connection: redis.connection, prefix: redis.prefix })
afterAll(() => Promise.all([held.close(), stock.close()]))

const priorities = fc.constantFrom(0, 0, 1, 2, 3, 10, 1000)
const pick = fc.nat({ max: 1000 })
type Step = readonly [name: string, one: number, other: number]
const step = (name: string, one: fc.Arbitrary<number>, other: fc.Arbitrary<number> = fc.constant(0)) =>
  fc.tuple(fc.constant(name), one, other)
const ageings = fc.constantFrom(1, 100, 1000, 5000, 60_000)
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: step('add', priorities) },
  { weight: 2, arbitrary: step('stock', priorities, fc.integer({ min: -20_000, max: 20_000 })) },
  { weight: 2, arbitrary: step('delay', priorities, fc.integer({ min: 1, max: 20_000 })) },
  { weight: 8, arbitrary: step('depart', fc.constantFrom(1, 1, 2, 5, 20)) },
  { weight: 8, arbitrary: step('wait', fc.oneof(fc.nat({ max: 5000 }), fc.constantFrom(100, 1000, 5000))) },
  { weight: 1, arbitrary: step('remove', pick) },
  { weight: 1, arbitrary: step('priority', pick, priorities) },
  { weight: 1, arbitrary: step('promote', pick) },
  { weight: 1, arbitrary: step('ageing', ageings) },
  { weight: 1, arbitrary: step('off', fc.constant(0)) },
)

/** A queue in step with the reference. */
class Story {
  readonly #group: boolean
  readonly #line: ReferenceLine
  #jobs = 0

  constructor(line: ReferenceLine, group: boolean) {
    this.#line = line
    this.#group = group
  }

  static get nowMs(): number {
    return Math.floor(held.nowUs / 1000)
  }

  #options(priority: number, more: object = {}): object {
    this.#jobs += 1
    const own = this.#group ? { group: { id: 'a', priority } } : priority === 0 ? {} : { priority }
    return { jobId: `j${this.#jobs}`, timestamp: Story.nowMs, ...own, ...more }
  }

  async take([name, one, other]: Step): Promise<void> {
    const line = this.#line
    const nowMs = Story.nowMs
    if (name === 'add') {
      await held.add(this.#options(one))
      line.add(`j${this.#jobs}`, one, { at: line.arrival(held.nowUs), dueUs: nowMs * 1000 })
    } else if (name === 'stock') {
      if (this.#group) return
      await stock.add('job', {}, this.#options(one, { timestamp: nowMs + other }))
      line.add(`j${this.#jobs}`, one, { at: undefined, dueUs: (nowMs + other) * 1000 })
    } else if (name === 'delay') {
      await held.add(this.#options(one, { delay: other }) as never)
      const fromUs = (Math.ceil(held.nowUs / 1000) + other) * 1000
      line.addDelayed(`j${this.#jobs}`, one, { dueUs: (nowMs + other) * 1000, fromUs })
    } else if (name === 'wait') await held.advanceTo(held.nowUs + one * 1000)
    else if (name === 'depart') await this.#depart(one)
    else if (name === 'ageing' || name === 'off') {
      const ageingMs = name === 'off' ? null : one
      await held.backend.store.override({ priorityAgeingMs: ageingMs }, 'test', 'test', undefined)
      line.ageingMs = ageingMs ?? undefined
    } else await this.#change(name, one, other)
  }

  async #change(name: string, at: number, priority: number): Promise<void> {
    const among = name === 'promote' ? this.#line.delayed : this.#line.waiting
    const id = among[at % among.length]
    if (id === undefined) return
    const job = (await held.queue.getJob(id))!
    if (name === 'promote') {
      await job.promote()
      this.#line.promote(id, held.nowUs)
    } else if (name === 'remove') {
      await job.remove()
      this.#line.remove(id)
    } else if (!this.#group) {
      await job.changePriority({ priority })
      this.#line.changePriority(id, priority)
    }
  }

  /** As many as one call starts. */
  async #depart(jobs: number): Promise<void> {
    this.#line.promoteDue(held.nowUs)
    const { grants, stop } = await held.depart(jobs)
    for (const { id } of grants) {
      expect(id).toBe(this.#line.next(held.nowUs))
      this.#line.remove(id)
    }
    const next = grants.length < jobs ? this.#line.next(held.nowUs) : undefined
    if (stop !== 'closed') expect(next).toBeUndefined()
  }

  /** Until nothing waits. */
  async end(): Promise<void> {
    while (this.#line.waiting.length + this.#line.delayed.length > 0) {
      await this.#depart(3)
      await held.advanceTo(held.nowUs + 1_000_000)
    }
    expect((await held.depart(1)).stop).toBe('empty')
  }
}

describe.each([
  ['without a rate', {}, false],
  ['at a rate', { rate: '2/s', limits: [{ name: 'minute', rate: '50/min' }] }, false],
  ['inside a group', { groups: {} }, true],
  ['of jobs without a group among groups', { groups: { rate: '2/s' } }, false],
] as const)('jobs %s', (_, shape, group) => {
  test('leave in the order of the reference, whatever happens to them', { timeout: 600_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(ageings, fc.array(steps, { minLength: 10, maxLength: 60 }), async (ageingMs, story) => {
        await held.reset({ ...shape, priorityAgeingMs: ageingMs })
        const told = new Story(new ReferenceLine(ageingMs), group)
        for (const one of story) await told.take(one)
        await told.end()
      }),
      { numRuns: caseCount(60, 'AGEING_STORIES') },
    )
  })
})

/** A line whose jobs come at a few times: of so many priorities that not all are compared, or of some, in groups too. */
const line = fc.record({
  levels: fc.constantFrom(2, 5, 70, 100),
  groups: fc.constantFrom(0, 1, 4),
  bulks: fc.array(fc.array(fc.nat({ max: 10_000 }), { minLength: 1, maxLength: 45 }), { minLength: 1, maxLength: 4 }),
  waitMs: fc.constantFrom(1, 1000, 60_000),
  ageingMs: ageings,
})

type Line = typeof line extends fc.Arbitrary<infer T> ? T : never

async function fill({ levels, groups, bulks, waitMs, ageingMs }: Line): Promise<void> {
  await held.reset({ ...(groups > 0 && { groups: {} }), priorityAgeingMs: ageingMs })
  for (const [at, bulk] of bulks.entries()) {
    // Every other bulk comes from a stock producer, whose jobs of groups are sorted in once they are the next ones.
    const producer = at % 2 === 0 ? held.queue : stock
    await producer.addBulk(
      bulk.map((number, i) => {
        const priority = number % levels
        const group = groups > 0 && number % (groups + 1)
        const own = group ? { group: { id: `g${group}`, priority } } : priority === 0 ? {} : { priority }
        const told = { jobId: `j${at}-${i}`, timestamp: Story.nowMs }
        const opts = { ...own, ...told, ...(number % 7 === 0 && { delay: 2 * waitMs }) }
        return { name: 'job', data: {}, opts: opts as object }
      }),
    )
    await held.advanceTo(held.nowUs + waitMs * 1000)
  }
}

test('one call takes the jobs that as many calls would take, of any number of priorities', async () => {
  const take = async (told: Line, each: number) => {
    await fill(told)
    const taken: string[] = []
    for (let more = true; more; ) {
      for (let i = 0; i < 12 && more; i += each) {
        const { grants, stop } = await held.depart(each)
        taken.push(...grants.map(({ id }) => id))
        more = stop !== 'empty'
      }
      if (!more && (await held.queue.getDelayedCount()) > 0) more = true
      await held.advanceTo(held.nowUs + told.waitMs * 1000)
    }
    return taken
  }
  await fc.assert(
    fc.asyncProperty(line, async (told) => {
      const one = await take(told, 1)
      expect(one).toHaveLength(told.bulks.flat().length)
      expect(await take(told, 12)).toEqual(one)
      expect(await take(told, 4)).toEqual(one)
    }),
    { numRuns: caseCount(15, 'AGEING_STORIES') },
  )
})
