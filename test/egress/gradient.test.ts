import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Gradient2Limit, type GradientOptions } from '../../src/egress/gradient.ts'
import { InvalidInputError } from '../../src/errors.ts'

const MAX = 60

/**
 * A limit before a database on a clock of its own: `workers` statements at once take the base latency each, more of them
 * share, so that all take longer. As many run as the limit allows and are wanted.
 */
class Simulation {
  nowMs = 0
  baseMs = 20
  workers = 20
  wanted = Number.POSITIVE_INFINITY
  readonly limit: Gradient2Limit

  constructor(options: GradientOptions = {}) {
    this.limit = new Gradient2Limit({ max: MAX, now: () => this.nowMs, ...options })
  }

  run(seconds: number): void {
    const endMs = this.nowMs + seconds * 1000
    while (this.nowMs < endMs) {
      const inflight = Math.max(1, Math.min(this.limit.limit, this.wanted))
      const latencyMs = this.baseMs * Math.max(1, inflight / this.workers)
      this.nowMs += latencyMs / inflight
      this.limit.sample(latencyMs, inflight)
    }
  }
}

test('it grows to the most while the latency stays as it is', () => {
  const simulation = new Simulation({ initial: 5 })
  simulation.workers = 1000
  simulation.run(120)
  expect(simulation.limit.limit).toBe(MAX)
})

test('it falls as the database gets slower, and settles where the latency is within the tolerance', () => {
  const simulation = new Simulation({ initial: MAX })
  simulation.workers = 1000
  simulation.run(60)
  expect(simulation.limit.limit).toBe(MAX)
  simulation.workers = 10
  simulation.run(20)
  // 10 at once take 20 ms each, and 15 take 30: 1.5 times as long. A window may add the queue of four.
  expect(simulation.limit.limit).toBeLessThanOrEqual(23)
  expect(simulation.limit.limit).toBeGreaterThanOrEqual(10)
})

test('it climbs again once the database is as fast as before', () => {
  const simulation = new Simulation({ initial: MAX })
  simulation.workers = 1000
  simulation.run(60)
  simulation.workers = 5
  simulation.run(30)
  const low = simulation.limit.limit
  simulation.workers = 1000
  simulation.run(120)
  expect(low).toBeLessThan(25)
  expect(simulation.limit.limit).toBe(MAX)
})

test('it neither grows nor falls while less than half of it is used', () => {
  const simulation = new Simulation({ initial: 30 })
  simulation.wanted = 10
  simulation.run(60)
  expect(simulation.limit.limit).toBe(30)
  simulation.baseMs = 400
  simulation.run(600)
  expect(simulation.limit.limit).toBe(30)
})

test('an idle queue keeps its limit', () => {
  const simulation = new Simulation({ initial: 30 })
  simulation.nowMs = 86_400_000
  expect(simulation.limit.limit).toBe(30)
})

test('after long slowness the usual latency is learnt anew within minutes', () => {
  const simulation = new Simulation({ initial: 30 })
  simulation.workers = 1000
  simulation.baseMs = 2000
  simulation.run(600)
  simulation.baseMs = 20
  simulation.run(120)
  expect(simulation.limit.limit).toBe(MAX)
  // Still far from 2 s, but no longer usual.
  simulation.baseMs = 100
  simulation.run(10)
  expect(simulation.limit.limit).toBeLessThan(MAX)
})

test('what is no latency is passed over', () => {
  let nowMs = 0
  const limit = new Gradient2Limit({ initial: 20, smoothing: 1, now: () => nowMs })
  for (let i = 0; i < 9; i++) limit.sample(10, 20)
  nowMs = 1000
  for (const none of [0, -5, Number.NaN, Number.POSITIVE_INFINITY, 0.01]) limit.sample(none, 20)
  limit.sample(10, Number.NaN)
  expect(limit.limit).toBe(20)
  limit.sample(10, 20)
  expect(limit.limit).toBe(24)
})

test('a window needs a second and ten calls', () => {
  let nowMs = 0
  const limit = new Gradient2Limit({ initial: 20, now: () => nowMs })
  for (let i = 0; i < 100; i++) limit.sample(10, 20)
  expect(limit.limit).toBe(20)
  nowMs = 1000
  limit.sample(10, 20)
  // smoothing × queueSize = 0.8 more, whole
  expect(limit.limit).toBe(20)
  nowMs = 2000
  for (let i = 0; i < 9; i++) limit.sample(10, 20)
  expect(limit.limit).toBe(20)
  limit.sample(10, 20)
  expect(limit.limit).toBe(21)
})

test('however many refusals a window has, the limit falls once, and never below the least', () => {
  let nowMs = 0
  const limit = new Gradient2Limit({ initial: 100, min: 50, now: () => nowMs })
  for (let i = 0; i < 10; i++) limit.dropped()
  expect(limit.limit).toBe(90)
  nowMs = 1000
  limit.dropped()
  expect(limit.limit).toBe(81)
  for (let i = 0; i < 20; i++) {
    nowMs += 1000
    limit.dropped()
  }
  expect(limit.limit).toBe(50)
})

test('what was measured before a refusal does not raise the limit after it', () => {
  let nowMs = 0
  const limit = new Gradient2Limit({ initial: 100, smoothing: 1, now: () => nowMs })
  for (let i = 0; i < 50; i++) limit.sample(10, 100)
  nowMs = 1000
  limit.dropped()
  limit.sample(10, 100)
  expect(limit.limit).toBe(90)
})

test('defaults: from 20, between 1 and 200', () => {
  expect(new Gradient2Limit().limit).toBe(20)
  expect(new Gradient2Limit({ max: 10 }).limit).toBe(10)
  expect(new Gradient2Limit({ initial: 1000 }).limit).toBe(200)
})

test('whatever is measured, the limit is whole and stays within its bounds', () => {
  const latency = fc.oneof(fc.double(), fc.double({ min: 0.1, max: 10_000, noNaN: true }))
  const events = fc.array(fc.tuple(latency, fc.oneof(fc.nat(300), fc.double()), fc.nat(3000), fc.nat(19)), {
    maxLength: 400,
  })
  fc.assert(
    fc.property(events, fc.integer({ min: 1, max: 30 }), fc.nat(200), (list, min, more) => {
      let nowMs = 0
      const limit = new Gradient2Limit({ min, max: min + more, now: () => nowMs })
      for (const [latencyMs, inflight, aheadMs, which] of list) {
        nowMs += aheadMs
        if (which === 0) limit.dropped()
        else limit.sample(latencyMs, inflight)
        expect(Number.isInteger(limit.limit)).toBe(true)
        expect(limit.limit).toBeGreaterThanOrEqual(min)
        expect(limit.limit).toBeLessThanOrEqual(min + more)
      }
    }),
  )
})

test.each([
  ['min', { min: 0 }],
  ['min', { min: 1.5 }],
  ['max', { min: 5, max: 4 }],
  ['initial', { initial: 0 }],
  ['smoothing', { smoothing: 0 }],
  ['smoothing', { smoothing: 1.1 }],
  ['tolerance', { tolerance: 0.9 }],
  ['queueSize', { queueSize: -1 }],
  ['longWindow', { longWindow: Number.NaN }],
  ['backoff', { backoff: 1 }],
])('a wrong %s is refused by name: %j', (name, options) => {
  expect(() => new Gradient2Limit(options)).toThrow(InvalidInputError)
  expect(() => new Gradient2Limit(options)).toThrow(`gradient limit: ${name} must be`)
})
