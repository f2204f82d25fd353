import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidLimitError, type SafeShape, safeShape } from '../../src/index.ts'
import { intervalUs } from '../../src/rate.ts'

/** The grid of intervals, in which times are whole numbers: 1/1024 µs. */
const STEPS_PER_MS = 1_024_000

const stepsOf = (ms: number) => Math.round(ms * STEPS_PER_MS)

/** When units leave that come at these times: GCRA, which holds each back until it conforms. Whole steps. */
function departures(arrivals: readonly number[], { rate, burst }: SafeShape): number[] {
  const interval = stepsOf(rate.period)
  let tat = 0
  let last = 0
  return arrivals.map((arrival) => {
    const at = Math.max(arrival, last, tat + (1 - burst) * interval)
    tat = Math.max(tat, at) + interval
    last = at
    return at
  })
}

/** The most that lie in a closed window of that length, wherever it begins. */
function mostIn(times: readonly number[], length: number): number {
  const sorted = times.toSorted((one, other) => one - other)
  let from = 0
  let most = 0
  sorted.forEach((at, i) => {
    while (at - (sorted[from] as number) > length) from++
    most = Math.max(most, i - from + 1)
  })
  return most
}

test.each([
  [{ quota: 100, windowMs: 60_000, burst: 10, jitterMs: 500 }, 664.835],
  [{ quota: 100, windowMs: 60_000, burst: 1, jitterMs: 0 }, 600],
  [{ quota: 10, windowMs: 1000, burst: 3, jitterMs: 50 }, 131.25],
  [{ quota: 2, windowMs: 1000, burst: 1, jitterMs: 100 }, 550],
])('%o leaves every %f ms', (provider, intervalMs) => {
  const shape = safeShape(provider)
  expect(shape.rate.period).toBeCloseTo(intervalMs, 3)
  expect(shape.burst).toBe(provider.burst)
  // The bound itself is not enough: the interval is the first step above it.
  const bound = ((provider.windowMs + provider.jitterMs) * STEPS_PER_MS) / (provider.quota - provider.burst + 1)
  expect(stepsOf(shape.rate.period)).toBe(Math.floor(bound) + 1)
  expect(shape.rate.limit).toBe(1)
})

test('one step less breaks the limit of the provider', () => {
  const shape = safeShape({ quota: 100, windowMs: 60_000, burst: 1 })
  const arrivals = Array.from({ length: 200 }, () => 0)
  const shorter = { ...shape, rate: { limit: 1, period: shape.rate.period - 1 / STEPS_PER_MS } }
  expect(mostIn(departures(arrivals, shape), stepsOf(60_000))).toBe(100)
  expect(mostIn(departures(arrivals, shorter), stepsOf(60_000))).toBe(101)
})

test('the burst is 2 % of the limit where it is not given, and at least 1', () => {
  expect(safeShape({ quota: 1000, windowMs: 1000 }).burst).toBe(20)
  expect(safeShape({ quota: 10, windowMs: 1000 }).burst).toBe(1)
})

const gaps = fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3_000 * STEPS_PER_MS })), {
  minLength: 1,
  maxLength: 300,
})

test('whatever comes and however late each unit is, no window of the provider is ever broken', () => {
  let full = 0
  const provider = fc.record({
    q: fc.integer({ min: 1, max: 40 }),
    w: fc.integer({ min: 1, max: 5000 }),
    jitterMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3000 })),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  const late = fc.array(fc.oneof(fc.constant(0), fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true })), {
    minLength: 1,
    maxLength: 50,
  })
  const run = (
    q: number,
    w: number,
    jitterMs: number,
    share: number,
    apart: readonly number[],
    by: readonly number[],
  ) => {
    const shape = safeShape({ quota: q, windowMs: w, jitterMs, burst: Math.max(1, Math.floor(q * share)) })
    let now = 0
    const left = departures(
      apart.map((gap) => (now += gap)),
      shape,
    )
    const arrived = left.map((at, i) => at + Math.floor((by[i % by.length] as number) * stepsOf(jitterMs)))
    const most = mostIn(arrived, stepsOf(w))
    if (most === q) full++
    expect(most).toBeLessThanOrEqual(q)
  }
  const given = fc.tuple(provider, gaps, late)
  fc.assert(
    fc.property(given, ([{ q, w, jitterMs, share }, apart, by]) => run(q, w, jitterMs, share, apart, by)),
    { numRuns: 2000 },
  )
  // Or it would only have shown that slow is slow.
  expect(full).toBeGreaterThan(50)
})

test('the bucket of a provider never runs dry', () => {
  const provider = fc.record({
    perS: fc.integer({ min: 1, max: 50 }),
    burst: fc.integer({ min: 2, max: 30 }),
    jitterMs: fc.integer({ min: 0, max: 2000 }),
  })
  const late = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 50 })
  fc.assert(
    fc.property(provider, gaps, late, ({ perS, burst, jitterMs }, apart, by) => {
      const shape = safeShape({ model: 'token-bucket', rate: `${perS}/s`, burst, jitterMs })
      let now = 0
      const left = departures(
        apart.map((gap) => (now += gap)),
        shape,
      )
      const arrived = left.map((at, i) => at + (by[i % by.length] as number) * stepsOf(jitterMs))
      let tokens = burst
      let last = 0
      for (const at of arrived.toSorted((one, other) => one - other)) {
        tokens = Math.min(burst, tokens + ((at - last) * perS) / stepsOf(1000)) - 1
        last = at
        expect(tokens).toBeGreaterThan(-1e-6)
      }
    }),
    { numRuns: 2000 },
  )
})

test('of a bucket the rate is kept, and the burst is what its jitter leaves', () => {
  expect(safeShape({ model: 'token-bucket', rate: '10/s', burst: 5 })).toMatchObject({
    burst: 5,
    rate: { limit: 1, period: 100 },
  })
  expect(safeShape({ model: 'token-bucket', rate: '10/s', burst: 5, jitterMs: 250 })).toMatchObject({
    burst: 2,
    rate: { limit: 1, period: 100 },
  })
  // 1 / I <= R leaves nothing for a burst: 1 + 1000 / I <= 5 is what is left.
  expect(safeShape({ model: 'token-bucket', rate: '10/s', burst: 5, jitterMs: 1000 })).toMatchObject({
    burst: 1,
    rate: { limit: 1, period: 250 },
  })
})

test('a limit takes it as it is: no interval is shortened on the way', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 1, max: 10_000_000 }), (q, w) => {
      const { rate, burst } = safeShape({ quota: q, windowMs: w })
      const interval = Math.ceil(intervalUs({ limit: rate.limit, periodMs: rate.period }) * 1024)
      expect(interval * (q - burst + 1)).toBeGreaterThan(w * STEPS_PER_MS)
    }),
  )
})

test.each([
  [{ quota: 10, windowMs: 1000, burst: 11 }, /burst 11 is more than the 10/],
  [{ quota: 0, windowMs: 1000 }, /quota must be a whole number >= 1; got 0/],
  [{ quota: 10, windowMs: 0 }, /windowMs must be a number of ms > 0; got 0/],
  [{ quota: 10, windowMs: 1000, jitterMs: -1 }, /jitterMs must be a number of ms >= 0; got -1/],
  [{ quota: 10, windowMs: 1000, burst: 1.5 }, /burst must be a whole number >= 1; got 1.5/],
  [{ model: 'token-bucket', rate: '1/s', burst: 1, jitterMs: 20 } as const, /burst 1 allows no jitter.* 20 ms/],
  [{ model: 'token-bucket', rate: '1/s', burst: 0.5 } as const, /burst must be a number >= 1; got 0.5/],
])('%o can not be met', (provider, message) => {
  expect(() => safeShape(provider)).toThrow(InvalidLimitError)
  expect(() => safeShape(provider)).toThrow(message)
})
