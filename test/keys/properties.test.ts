import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import type { ShapedJobsOptions } from '../../src/admission/job-options.ts'
import { giveBackArguments } from '../../src/departure/give-back.ts'
import { type HeldJob, heldJobs } from '../../src/departure/held-job.ts'
import { encodeRule, type LimitRule } from '../../src/limits/definition.ts'
import { encodeQueueLimits, type QueueLimit } from '../../src/limits/queue-limits.ts'
import type { Model } from '../limits/model/base.ts'
import { createModel } from '../limits/model/model.ts'
import { HeldQueue } from '../model/held-queue.ts'
import { expectBound, unitsOf } from '../queue-limits/support/bounds.ts'
import { caseCount } from '../support/cases.ts'
import { useRedis } from '../support/redis.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const held = new HeldQueue(redis, client, 'held')
afterAll(() => held.close())

type Keys = { readonly model?: string; readonly host?: string }
interface Waiting {
  readonly id: string
  readonly group: string
  readonly keys: Keys
  readonly costs: Readonly<Record<string, number>>
}

const RULES: readonly Partial<LimitRule>[] = [
  { rate: '2/s', burst: 2 },
  { rate: '10/s', burst: 3 },
  { algorithm: 'token-bucket', rate: '3/s', burst: 4 },
  { algorithm: 'leaky-bucket', rate: '3/s', burst: 2 },
  { algorithm: 'fixed-window', rate: '3/s' },
  { algorithm: 'fixed-window', rate: '2/s', align: 'first' },
  { algorithm: 'sliding-window-log', rate: '3/s' },
  { algorithm: 'sliding-window-counter', rate: '4/s' },
]
const BY: readonly (readonly string[])[] = [['model'], ['host'], ['group'], ['group', 'model'], ['model', 'host']]

const limit = fc.record({
  rule: fc.constantFrom(...RULES),
  by: fc.constantFrom(...BY),
  unit: fc.constantFrom(undefined, undefined, 'tokens'),
})
const job = fc.record({
  group: fc.constantFrom('', '', 'a', 'b', 'c'),
  keys: fc.record({ model: fc.constantFrom('x', 'y', 'z'), host: fc.constantFrom('h', 'i') }, { requiredKeys: [] }),
  tokens: fc.integer({ min: 0, max: 2 }),
  priority: fc.constantFrom(0, 0, 0, 2),
})
const step = fc.oneof(
  fc.record({ add: fc.array(job, { minLength: 1, maxLength: 6 }) }),
  fc.record({ depart: fc.integer({ min: 1, max: 4 }) }),
  fc.record({ advanceMs: fc.integer({ min: 1, max: 700 }) }),
)
/** What also happens to such a queue. */
const incident = fc.oneof(
  step,
  step,
  fc.record({ remove: fc.nat() }),
  fc.record({ back: fc.nat() }),
  fc.record({ group: fc.constantFrom('a', 'b'), paused: fc.boolean() }),
  fc.record({ inForce: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }) }),
)
const scenario = fc.record({
  limits: fc.array(limit, { minLength: 1, maxLength: 4 }),
  rate: fc.constantFrom(undefined, undefined, '5/s'),
  horizonUs: fc.constantFrom(0, 0, 50_000),
})

function valueIn({ by }: QueueLimit, { group, keys }: Waiting): string | undefined {
  const values = [by ?? []].flat().map((name) => (name === 'group' ? group : keys[name as keyof Keys]))
  return values.includes(undefined) ? undefined : JSON.stringify(values)
}

/** Each limit and value, with what it has let leave, beside a model of the algorithm. */
class Cells {
  readonly #cells = new Map<string, { limit: QueueLimit; model: Model; left: { slotUs: number; units: number }[] }>()

  constructor(public limits: readonly QueueLimit[]) {}

  of(one: Waiting): { name: string; limit: QueueLimit; model: Model; units: number }[] {
    return this.limits.flatMap((limit) => {
      const value = valueIn(limit, one)
      const units = unitsOf(limit, { costs: one.costs })
      if (value === undefined || units === 0) return []
      const name = `${limit.name} ${value}`
      const { name: _, by: __, unit: ___, ...rule } = limit
      const cell = this.#cells.get(name) ?? { limit, model: createModel(encodeRule(rule)), left: [] }
      this.#cells.set(name, cell)
      return [{ name, limit, model: cell.model, units }]
    })
  }

  /** In µs from now. */
  earliest(one: Waiting, nowUs: number): number {
    return Math.max(
      0,
      ...this.of(one).map(({ model, units }) => {
        model.now = nowUs
        return model.earliest(units)
      }),
    )
  }

  charge(one: Waiting, nowUs: number, slotUs: number): void {
    for (const { name, model, units } of this.of(one)) {
      model.now = nowUs
      model.commit(units, slotUs - nowUs, 0)
      this.#cells.get(name)?.left.push({ slotUs, units })
    }
  }

  /** It has not left after all. Its charge may stay. */
  forget(one: Waiting, slotUs: number): void {
    for (const { name, units } of this.of(one)) {
      const left = this.#cells.get(name)?.left ?? []
      const at = left.findIndex((each) => each.slotUs === slotUs && each.units === units)
      if (at >= 0) left[at] = { slotUs, units: 0 }
    }
  }

  expectBounds(): void {
    for (const { limit, left } of this.#cells.values()) expectBound(limit, left)
  }
}

type Step = typeof incident extends fc.Arbitrary<infer T> ? T : never

class Run {
  readonly waiting = new Map<string, Waiting>()
  readonly cells: Cells
  readonly #running: { readonly one: Waiting; readonly held: HeldJob }[] = []
  readonly #paused = new Set<string>()
  #count = 0

  constructor(
    readonly limits: readonly QueueLimit[],
    /** Whether no job may wait but for a limit. */
    public isSimple: boolean,
    readonly horizonUs: number,
  ) {
    this.cells = new Cells(limits)
  }

  async take(step: Step): Promise<void> {
    if ('add' in step) await this.add(step.add)
    else if ('depart' in step) await this.depart(step.depart)
    else if ('advanceMs' in step) await held.advanceTo(held.nowUs + step.advanceMs * 1000)
    else if ('remove' in step) await this.#remove(step.remove)
    else if ('back' in step) await this.#back(step.back)
    else if ('group' in step) await this.pause(step.group, step.paused)
    else await this.#setLimits(this.limits.filter((_, i) => step.inForce[i]))
  }

  /** All groups may leave, and all limits hold. */
  async settle(): Promise<void> {
    for (const group of this.#paused) await this.pause(group, false)
  }

  async pause(group: string, isPaused: boolean): Promise<void> {
    const change = JSON.stringify({ paused: isPaused || { clear: true } })
    await held.backend.store.run('set-group', [group, change, 'test', 'test', '', '', ''])
    if (isPaused) this.#paused.add(group)
    else this.#paused.delete(group)
    this.isSimple = false
  }

  async #setLimits(limits: readonly QueueLimit[]): Promise<void> {
    const fields = JSON.stringify({ limits: encodeQueueLimits(limits) })
    await held.backend.store.run('override-shape', [fields, 'test', 'test', '', '', ''])
    this.cells.limits = limits
    this.isSimple = false
  }

  async #remove(at: number): Promise<void> {
    const one = [...this.waiting.values()][at % Math.max(1, this.waiting.size)]
    if (!one) return
    await (await held.queue.getJob(one.id))?.remove()
    this.waiting.delete(one.id)
  }

  /** A job that was granted goes back before it starts. */
  async #back(at: number): Promise<void> {
    const [granted] = this.#running.splice(at % Math.max(1, this.#running.length), 1)
    if (!granted) return
    const { one, held: job } = granted
    await held.backend.store.run('give-back', giveBackArguments([job], ''))
    this.waiting.set(one.id, one)
    this.cells.forget(one, job.slotUs)
    this.isSimple = false
  }

  async add(jobs: readonly { group: string; keys: Keys; tokens: number; priority: number }[]): Promise<void> {
    const all = jobs.map(({ group, keys, tokens, priority }) => {
      const one: Waiting = { id: `j${this.#count++}`, group, keys, costs: { tokens } }
      this.waiting.set(one.id, one)
      if (priority > 0) this.isSimple = false
      const place = group === '' ? { priority } : { group: { id: group, priority } }
      return { jobId: one.id, keys, costs: one.costs, ...place } as ShapedJobsOptions
    })
    if (all.length === 1) await held.add(all[0])
    else await held.queue.addBulk(all.map((opts) => ({ name: 'job', data: {}, opts })))
  }

  async depart(wanted: number): Promise<number | undefined> {
    const reply = await held.depart(wanted, this.horizonUs)
    const { stop, nextUs } = reply
    for (const job of heldJobs(reply)) {
      const one = this.waiting.get(job.id) as Waiting
      expect(one, `${job.id} leaves once`).toBeDefined()
      expect(this.#paused.has(one.group), 'of a paused group').toBe(false)
      this.waiting.delete(job.id)
      this.#running.push({ one, held: job })
      this.cells.charge(one, held.nowUs, job.slotUs)
    }
    if (stop === 'empty') expect(this.waiting.size, 'none is forgotten').toBe(0)
    if (stop !== 'closed') return undefined
    if (this.isSimple) this.#expectNoneMayGo()
    return nextUs
  }

  /** Without keys that limits name, a group is one lane. */
  #laneOf({ group, keys, costs }: Waiting): unknown[] {
    const names = [...new Set(this.limits.flatMap(({ by }) => [by ?? []].flat()))].filter((name) => name !== 'group')
    const takesNothing = this.limits.some(({ unit }) => unit !== undefined) && costs.tokens === 0
    return [group, ...(names.length === 0 ? [] : [takesNothing, ...names.map((name) => keys[name as keyof Keys])])]
  }

  /** A job that needs nothing for which another lane waits must not be there if it conforms. */
  #expectNoneMayGo(): void {
    const heads = new Map<string, Waiting>()
    for (const one of this.waiting.values()) {
      const lane = JSON.stringify(this.#laneOf(one))
      if (!heads.has(lane)) heads.set(lane, one)
    }
    const needed = new Map<string, number>()
    for (const one of heads.values()) {
      for (const { name } of this.cells.of(one)) needed.set(name, (needed.get(name) ?? 0) + 1)
    }
    for (const one of heads.values()) {
      if (this.cells.of(one).some(({ name }) => (needed.get(name) as number) > 1)) continue
      expect(this.cells.earliest(one, held.nowUs), JSON.stringify(one)).toBeGreaterThan(this.horizonUs)
    }
  }
}

async function leftOver(): Promise<string[]> {
  const keys = await client.keys(`${held.base}meta:*`)
  return keys.map((key) => key.slice(held.base.length)).filter((key) => /lane|line|group:jobs/.test(key))
}

function limitsOf(
  given: typeof scenario extends fc.Arbitrary<infer T extends { limits: unknown }> ? T['limits'] : never,
) {
  return given.map(({ rule, by, unit }, i) => ({ name: `l${i}`, by, ...(unit ? { unit } : {}), ...rule }) as QueueLimit)
}

async function expectAllLeave(run: Run): Promise<void> {
  await run.settle()
  for (let calls = 0; run.waiting.size > 0; calls++) {
    expect(calls, 'all leave').toBeLessThan(200)
    const nextUs = await run.depart(3)
    if (nextUs !== undefined) await held.advanceTo(Math.max(held.nowUs, nextUs - run.horizonUs))
  }
  run.cells.expectBounds()
  expect((await leftOver()).filter((key) => key !== 'meta:lanes')).toEqual([])
}

test('each value of each key keeps its rate, and nobody waits for the key of another', async () => {
  const steps = fc.array(step, { minLength: 1, maxLength: 20 })
  await fc.assert(
    fc.asyncProperty(scenario, steps, async ({ limits: given, rate, horizonUs }, taken) => {
      const limits = limitsOf(given)
      await held.reset({ ...(rate ? { rate } : {}), groups: {}, limits })
      const run = new Run(limits, rate === undefined, horizonUs)
      for (const one of taken) await run.take(one)
      await expectAllLeave(run)
    }),
    { numRuns: caseCount(200, 'KEYS_STORIES') },
  )
})

test('pauses, returns, removals and other limits lose no job and let none leave too soon', async () => {
  const steps = fc.array(incident, { minLength: 1, maxLength: 25 })
  const groups = fc.constantFrom({}, { rate: '4/s' }, { ungrouped: 'first' as const })
  const ageing = fc.constantFrom(undefined, undefined, 1000)
  await fc.assert(
    fc.asyncProperty(
      scenario,
      groups,
      ageing,
      steps,
      async ({ limits: given, rate, horizonUs }, groups, ageing, taken) => {
        const limits = limitsOf(given)
        const shape = { ...(rate ? { rate } : {}), ...(ageing ? { priorityAgeingMs: ageing } : {}), groups, limits }
        await held.reset(shape)
        // Which stores the shape.
        await held.depart(1)
        const run = new Run(limits, false, horizonUs)
        for (const one of taken) await run.take(one)
        await expectAllLeave(run)
      },
    ),
    { numRuns: caseCount(300, 'KEYS_STORIES') },
  )
})
