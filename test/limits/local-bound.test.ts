import fc from 'fast-check'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { LimitAnswer } from '../../src/limits/answer.ts'
import { encodeRule, type LimitRule, quotaOf } from '../../src/limits/definition.ts'
import type { LimiterOptions } from '../../src/limits/index.ts'
import { LimitSet } from '../../src/limits/limit.ts'
import { LocalFront, overshootBound } from '../../src/limits/local-front.ts'
import { worstWindow } from '../../src/testing/index.ts'
import { createModel } from './model/model.ts'

/** One clock for all, µs, moved by hand: Redis's, and that of every process. */
const START_US = 1_000_000_000
let nowUs = START_US

beforeEach(() => {
  nowUs = START_US
  vi.spyOn(performance, 'now').mockImplementation(() => nowUs / 1000)
})
afterEach(() => vi.restoreAllMocks())

interface Passed {
  readonly departureTimeUs: number
  readonly cost: number
}

/** Processes that use one key of a limit, and what passes. */
class FillLevel {
  readonly passed: Passed[] = []
  readonly #fronts: LocalFront[]
  asked = 0
  #decidedUs = 0
  /** µs that the next call takes to Redis, and back. */
  latency = { there: 0, back: 0 }

  constructor(options: LimiterOptions, processes: number) {
    const limit = new LimitSet(options).base
    const model = createModel(encodeRule(options))
    const take = async (_: unknown, __: unknown, cost: number): Promise<LimitAnswer> => {
      nowUs += this.latency.there
      this.asked++
      this.#decidedUs = model.now = nowUs
      const waitUs = Math.ceil(model.earliest(cost))
      if (waitUs === 0) model.commit(cost, 0, 0)
      const remaining = Math.max(0, Math.floor(model.view().left))
      nowUs += this.latency.back
      const retryAfterMs = Math.ceil(waitUs / 1000)
      return { allowed: waitUs === 0, limit: limit.quota, remaining, retryAfterMs, resetAt: new Date(), policy: 'one' }
    }
    const outage = (): never => {
      throw new Error('this Redis is always there')
    }
    this.#fronts = Array.from(
      { length: processes },
      () => LocalFront.of(options, { nowMs: Date.now, limitOf: () => limit, take, outage }) as LocalFront,
    )
  }

  /** Takes until it is refused, so often at most. What asked Redis passes when Redis decides. */
  async take(process: number, cost: number, times: number): Promise<void> {
    const front = this.#fronts[process % this.#fronts.length] as LocalFront
    for (let i = 0; i < times; i++) {
      const asked = this.asked
      if (!(await front.take('joe', cost)).allowed) return
      this.passed.push({ departureTimeUs: this.asked > asked ? this.#decidedUs : nowUs, cost })
    }
  }
}

/** What passed above the limit, units, in the worst of all windows. */
function excessOf(passed: readonly Passed[], rule: LimitRule): number {
  const { interval, limit = 0, window = 0, algorithm } = encodeRule(rule)
  if (interval !== undefined) return (worstWindow(passed, rule as { rate: string })?.excessUs ?? 0) / interval
  const starts =
    algorithm === 'sliding-window-log'
      ? passed.map((one) => one.departureTimeUs)
      : passed.map((one) => one.departureTimeUs - (one.departureTimeUs % window))
  return starts.reduce((worst, from) => {
    const inside = passed.filter(({ departureTimeUs: at }) => at >= from && at < from + window)
    return Math.max(worst, inside.reduce((sum, { cost }) => sum + cost, 0) - limit)
  }, 0)
}

const rules = fc.oneof(
  fc.record({
    algorithm: fc.constantFrom('gcra' as const, 'token-bucket' as const, 'leaky-bucket' as const),
    rate: fc.constantFrom('10/s', '64/s', '300/s'),
    burst: fc.integer({ min: 1, max: 40 }),
  }),
  fc.record({
    algorithm: fc.constantFrom(
      'fixed-window' as const,
      'sliding-window-log' as const,
      'sliding-window-counter' as const,
    ),
    rate: fc.constantFrom('4/s', '20/s', '40/s'),
  }),
)
const crowds = fc.record({
  rule: rules,
  intervalMs: fc.integer({ min: 1, max: 1000 }),
  share: fc.double({ min: 0.01, max: 1, noNaN: true }),
  count: fc.integer({ min: 1, max: 5 }),
  // Whether the bound is told how many there are.
  counted: fc.boolean(),
})
/** Waits are part of the interval: what is leased and used just before its end is what passes above the limit. */
const steps = fc.array(
  fc.record({
    process: fc.nat(4),
    wait: fc.oneof(
      fc.constant(0),
      fc.constantFrom(0.9, 0.99, 0.999, 1, 1.5),
      fc.double({ min: 0, max: 3, noNaN: true }),
    ),
    there: fc.constantFrom(0, 0, 1000, 20_000, 200_000),
    back: fc.constantFrom(0, 0, 1000, 20_000, 200_000),
    cost: fc.constantFrom(1, 1, 1, 2, 5, 0.25),
    times: fc.constantFrom(1, 1, 2, 50),
  }),
  { minLength: 1, maxLength: 60 },
)

test('whatever the processes do, what passes above the limit is within the bound', { timeout: 120_000 }, async () => {
  let highest = 0
  const property = fc.asyncProperty(crowds, steps, async ({ rule, intervalMs, share, count, counted }, acts) => {
    nowUs = START_US
    const sync = { intervalMs, share, ...(counted && { processes: count }) }
    const options = { name: 'one', ...rule, sync }
    const crowd = new FillLevel(options, count)
    const quota = quotaOf(encodeRule(rule))
    for (const { process, wait, cost, times, there, back } of acts) {
      nowUs += Math.floor(wait * intervalMs * 1000)
      crowd.latency = { there, back }
      await crowd.take(process, Math.min(cost, quota), times)
    }
    const bound = overshootBound(options)
    const excess = excessOf(crowd.passed, rule)
    expect(excess).toBeLessThanOrEqual(bound + 1e-6)
    highest = Math.max(highest, excess / bound)
  })
  await fc.assert(property, { numRuns: 1500 })
  // Or a bound that nothing comes near would have been met. How near chance comes differs; the tests below reach it.
  expect(highest).toBeGreaterThan(0.2)
})

test.each([
  // Leased just before a window ends: 10 units less the 2 that asked, and then all of the next window.
  [{ algorithm: 'fixed-window', rate: '10/s' }, { intervalMs: 500, share: 0.5 }, 0.999, { passes: 18, bound: 10 }],
  [
    { algorithm: 'fixed-window', rate: '10/s' },
    { intervalMs: 500, share: 0.2, processes: 2 },
    0.999,
    { passes: 12, bound: 4 },
  ],
  // Leased from a full bucket: it fills by almost 5 before the shares run out.
  [{ rate: '10/s', burst: 10 }, { intervalMs: 500, share: 0.5 }, 0, { passes: 12, bound: 5 }],
] as const)(
  '%o with %o: used at the last moment, that much passes together',
  async (rule, sync, startS, { passes, bound }) => {
    const options = { name: 'one', ...rule, sync }
    const crowd = new FillLevel(options, 2)
    nowUs = START_US + startS * 1_000_000
    for (const process of [0, 1]) await crowd.take(process, 1, 1)
    expect(crowd.passed).toHaveLength(2)
    nowUs += 499_999
    for (const process of [0, 1]) await crowd.take(process, 1, 100)
    expect(crowd.passed.length - 2).toBe(passes)
    expect(overshootBound(options)).toBeCloseTo(bound, 3)
    nowUs = START_US + 100_000_000
    const late = new FillLevel(options, 1)
    await late.take(0, 1, 1)
    // A share that has run out is dropped.
    nowUs += 500_000
    await late.take(0, 1, 1)
    expect(late.asked).toBe(2)
  },
)
