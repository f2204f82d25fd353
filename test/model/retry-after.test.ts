import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import { QueueFullError } from '../../src/errors.ts'
import type { Shape } from '../../src/index.ts'
import { encodeRule, type LimitRule } from '../../src/limits/definition.ts'
import { ReferenceBucket } from '../../src/testing/index.ts'
import { createModel } from '../limits/model/model.ts'
import { caseCount } from '../support/cases.ts'
import { storedMeter } from '../support/meter.ts'
import { useRedis } from '../support/redis.ts'
import { HeldQueue, START_US } from './held-queue.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const queue = new HeldQueue(redis, client, 'retry')
afterAll(() => queue.close())

const HINTS = caseCount(150, 'MODEL_HINTS')
const LONG = { timeout: 600_000 + 200 * HINTS }

/** Tolerance for times that are rounded in different ways, and hints in whole ms. */
const ROUNDED_MS = 2
/** Half a horizon. */
const BATCH_MS = 25

const rule = fc.constantFrom<LimitRule>(
  { algorithm: 'gcra', rate: '7/s', burst: 3 },
  { algorithm: 'gcra', rate: '40/s', burst: 2 },
  { algorithm: 'token-bucket', rate: '11/s', burst: 4 },
  { algorithm: 'leaky-bucket', rate: '9/s', burst: 2 },
  { algorithm: 'fixed-window', rate: '5/s' },
  { algorithm: 'fixed-window', rate: '6/900ms', align: 'first' },
  { algorithm: 'fixed-window', rate: '4/h' },
  { algorithm: 'sliding-window-log', rate: '5/s' },
  { algorithm: 'sliding-window-log', rate: '12/2s' },
  { algorithm: 'sliding-window-counter', rate: '8/s' },
)
const scenarios = fc
  .record({
    rate: fc.option(fc.integer({ min: 1, max: 60 }), { nil: undefined, freq: 4 }),
    burst: fc.integer({ min: 2, max: 4 }),
    rules: fc.array(rule, { maxLength: 2 }),
    capacity: fc.integer({ min: 1, max: 9 }),
    /** Earlier departures, and the time of each after the one before it, ms. */
    history: fc.array(fc.constantFrom(0, 0, 3, 90, 700), { maxLength: 8 }),
    costs: fc.array(fc.constantFrom(1, 1, 1, 2, 0.5), { minLength: 20, maxLength: 20 }),
    pauseMs: fc.constantFrom(0, 0, 0, 700),
    /** Delays of the jobs that were added last, ms. */
    delays: fc.array(fc.constantFrom(20, 400, 2500), { maxLength: 2 }),
    needed: fc.integer({ min: 1, max: 5 }),
  })
  .filter(({ rate, rules }) => rate !== undefined || rules.length > 0)

type Scenario = typeof scenarios extends fc.Arbitrary<infer S> ? S : never

function shapeOf({ rate, burst, rules, capacity }: Scenario): Shape {
  const limits = rules.map((one, i) => ({ name: `limit-${i}`, ...one }))
  return {
    ...(rate === undefined ? {} : { rate: `${rate}/s`, burst }),
    ...(limits.length > 0 ? { limits } : {}),
    capacity,
  }
}

/** Each departure at the first µs at which the rate and all limits allow it, by models that do not look ahead. */
class Exact {
  readonly #bucket: ReferenceBucket | undefined
  readonly #limits
  #nowUs = START_US

  constructor({ rate, burst, rules }: Scenario) {
    this.#bucket = rate === undefined ? undefined : new ReferenceBucket({ rate: `${rate}/s`, burst }, START_US)
    this.#limits = rules.map((one) => createModel(encodeRule(one)))
    for (const limit of this.#limits) limit.now = START_US
  }

  /** @returns when it leaves, not before that time */
  depart(cost: number, fromUs: number): number {
    this.#advance(fromUs)
    for (;;) {
      const slotUs = this.#bucket?.nextSlotUs(cost) ?? this.#nowUs
      const waits = this.#limits.map((limit) => Math.ceil(limit.earliest(cost)))
      const nextUs = Math.max(slotUs, ...waits.map((us) => this.#nowUs + us))
      if (nextUs <= this.#nowUs) break
      this.#advance(nextUs)
    }
    this.#bucket?.depart(cost)
    for (const limit of this.#limits) limit.commit(cost, 0, 0)
    return this.#nowUs
  }

  #advance(us: number): void {
    if (us <= this.#nowUs) return
    this.#bucket?.advance(us - this.#nowUs)
    this.#nowUs = us
    for (const limit of this.#limits) limit.now = us
  }
}

/** Adds jobs; returns the hint if there is no place. */
async function tryAdd(jobs = 1): Promise<number | undefined> {
  try {
    await queue.queue.addBulk(Array.from({ length: jobs }, () => ({ name: 'job', data: {} })))
    return undefined
  } catch (error) {
    if (error instanceof QueueFullError) return error.retryAfterMs
    throw error
  }
}

/** Fills the queue. @returns the jobs in the order in which they leave */
async function fill({ capacity, costs, delays }: Scenario): Promise<{ cost: number; dueUs: number }[]> {
  const timestamp = Math.floor(queue.nowUs / 1000)
  const waiting = Math.max(0, capacity - delays.length)
  const jobs = Array.from({ length: capacity }, (_, i) => {
    const delay = i < waiting ? 0 : (delays[i - waiting] as number)
    return { cost: costs[i] as number, dueUs: delay === 0 ? 0 : (timestamp + delay) * 1000, delay }
  })
  for (const { cost, delay } of jobs) {
    await queue.add({ cost, timestamp, ...(delay > 0 ? { delay } : {}) })
  }
  return [...jobs].sort((one, other) => one.dueUs - other.dueUs)
}

test('retryAfterMs is that of an exact schedule: rate, burst, costs, limits, pauses, delayed jobs', LONG, async () => {
  let waited = 0
  const check = async (scenario: Scenario) => {
    await queue.reset(shapeOf(scenario))
    const exact = new Exact(scenario)
    for (const passedMs of scenario.history) {
      await queue.add()
      const leavesUs = exact.depart(1, queue.nowUs + passedMs * 1000)
      await queue.advanceTo(leavesUs)
      expect((await queue.depart(1)).grants, `at ${leavesUs}`).toHaveLength(1)
      // The job counts as ended: there are no workers here.
      await client.del(`${queue.base}active`)
    }
    const { pauseMs } = scenario
    if (pauseMs > 0) await queue.backend.store.pause({ kind: 'for', ms: pauseMs, reason: 'test' })
    const jobs = await fill(scenario)
    const needed = Math.min(scenario.needed, jobs.length)
    let leavesUs = queue.nowUs + pauseMs * 1000
    for (const { cost, dueUs } of jobs.slice(0, needed)) leavesUs = exact.depart(cost, Math.max(leavesUs, dueUs))
    const told = (await tryAdd(needed)) as number
    const expected = (leavesUs - queue.nowUs) / 1000
    if (expected <= 0) {
      expect(told).toBeLessThanOrEqual(1000)
      return
    }
    waited += 1
    expect(Math.abs(told - expected), `told ${told}, exactly ${expected}`).toBeLessThanOrEqual(ROUNDED_MS)
  }
  await fc.assert(fc.asyncProperty(scenarios, check), {
    numRuns: HINTS,
    includeErrorInReport: true,
  })
  expect(waited).toBeGreaterThan(HINTS / 3)
})

test('with workers it is when the one wakes that takes the last of the jobs', LONG, async () => {
  const scenario = fc.record({
    limit: fc.integer({ min: 1, max: 900 }),
    burst: fc.integer({ min: 1, max: 4 }),
    capacity: fc.integer({ min: 1, max: 40 }),
    needed: fc.integer({ min: 1, max: 40 }),
    /** Possibly larger than in the steady state: jobs granted that far ahead leave the queue at once. */
    firstHorizonMs: fc.constantFrom(50, 50, 1000),
    pauseMs: fc.constantFrom(0, 0, 700),
    passedUs: fc.integer({ min: 0, max: 100_000 }),
  })
  await fc.assert(
    fc.asyncProperty(scenario, async ({ limit, burst, capacity, firstHorizonMs, pauseMs, passedUs, ...asked }) => {
      const needed = Math.min(asked.needed, capacity)
      await queue.reset({ rate: `${limit}/s`, burst, capacity })
      const top = async () => {
        while ((await tryAdd()) === undefined);
      }
      await top()
      let reply = await queue.depart(50, firstHorizonMs * 1000)
      if (pauseMs > 0) await queue.backend.store.pause({ kind: 'for', ms: pauseMs, reason: 'test' })
      await queue.advanceTo(queue.nowUs + passedUs)
      const ask = async () => {
        await client.del(`${queue.base}active`)
        do {
          await top()
          reply = await queue.depart(50, 50_000)
        } while (reply.stop !== 'closed')
      }
      await ask()
      await top()
      const refusedUs = queue.nowUs
      const told = (await tryAdd(needed)) as number
      // With the mean lateness of the worker's wake-ups, as recorded by the meter.
      const lateUs = Number((await storedMeter(client, queue.base)).late)
      let free = 0
      while (free < needed) {
        await queue.advanceTo(Math.max(queue.nowUs, (reply.wakeUs as number) + lateUs))
        reply = await queue.depart(50, 50_000)
        free += reply.grants.length
      }
      const expected = (queue.nowUs - refusedUs) / 1000
      // Slots within half a horizon are granted together: with the last of them, or with later ones. The lateness of
      // each of these wake-ups adds up.
      const batches = Math.ceil((needed * 1000) / limit / BATCH_MS)
      const dense = BATCH_MS + 1000 / limit + (batches * lateUs) / 1000 + ROUNDED_MS
      const sparse = ROUNDED_MS + 1 + (needed === 1 ? 0 : lateUs / 1000)
      // At 40/s the next slot lies at the very end of half a horizon, and a rounded wake-up decides whether it is within.
      const tolerance = needed === 1 || limit < 40 ? sparse : dense
      expect(Math.abs(told - expected), `told ${told}, was ${expected}`).toBeLessThanOrEqual(tolerance)
    }),
    { numRuns: HINTS, includeErrorInReport: true },
  )
})

test('under a concurrency, the first place is taken by the worker that sleeps, the next at the end of its job', async () => {
  await queue.reset({ rate: '1/s', concurrency: 2, capacity: 3 })
  for (let i = 0; i < 3; i++) await queue.add()
  // Jobs take five seconds; the first one may take longer, as long as few have been measured.
  const request = { jobs: 2, horizonUs: 50_000, ran: '5000000 0' }
  const { grants, stop } = await queue.departAs('held', request)
  expect([grants.length, stop]).toEqual([1, 'closed'])
  const told = [await tryAdd(2), await tryAdd(3)] as [number, number]
  const lateMs = Number((await storedMeter(client, queue.base)).late) / 1000
  expect(Math.abs(told[0] - 950 - lateMs)).toBeLessThanOrEqual(ROUNDED_MS)
  expect(Math.abs(told[1] - 6000)).toBeLessThanOrEqual(ROUNDED_MS)
})

test('a slot in the middle of a microsecond is waited for to its end', async () => {
  await queue.reset({ rate: '3/s', capacity: 1 })
  for (const us of [0, 350_000, 700_000]) {
    await queue.advanceTo(START_US + us)
    await queue.add()
    await queue.depart(1)
  }
  await client.del(`${queue.base}active`)
  await queue.add()
  // Three intervals, each rounded up to 1/1024 µs, end slightly after the second.
  expect(await tryAdd()).toBe(334)
})
