import { beforeEach, expect, test } from 'vitest'
import { type LocalTime, RedisClock } from '../../src/redis-clock.ts'

/** A clock that stands still until it is moved. */
class HeldTime implements LocalTime {
  monotonic = 5000
  wall = 1_700_000_000_000

  monotonicMs(): number {
    return this.monotonic
  }

  wallMs(): number {
    return this.wall
  }

  after(): never {
    throw new Error('this clock has no timers')
  }

  pass(ms: number): void {
    this.monotonic += ms
    this.wall += ms
  }

  /** As some machines do: the monotonic clock stands still while they are suspended. */
  suspend(ms: number): void {
    this.wall += ms
  }
}

const START_US = 9_000_000_000
let time: HeldTime
let clock: RedisClock
/** By how much Redis's clock was set back, µs. */
let setBackUs = 0
/** Redis's clock, for the test alone: it began at START_US when the local one was at 5000 ms. */
const redisUs = (driftPpm = 0) => START_US + (time.monotonic - 5000) * 1000 * (1 + driftPpm / 1e6)

beforeEach(() => {
  time = new HeldTime()
  clock = new RedisClock(time)
  setBackUs = 0
})

/** A reply that took so long from Redis to here. */
function reply(tripMs: number, driftPpm = 0): void {
  const writtenUs = redisUs(driftPpm)
  time.pass(tripMs)
  clock.sample(writtenUs)
}

test('without a sample nothing is known and nothing waits', () => {
  expect(clock.nowUs()).toBeUndefined()
  expect(clock.untilMs(START_US + 1e9)).toBe(0)
})

test('the fastest reply of the last seconds counts, whatever comes after it', () => {
  reply(8)
  expect(redisUs() - clock.nowUs()!).toBeCloseTo(8000, 6)
  reply(1)
  expect(redisUs() - clock.nowUs()!).toBeCloseTo(1000, 6)
  for (let i = 0; i < 4; i++) reply(40)
  const behind = redisUs() - clock.nowUs()!
  expect(behind).toBeGreaterThanOrEqual(1000)
  // 160 ms later the margin for drift has cost 80 µs.
  expect(behind).toBeCloseTo(1080, 6)
})

test('it is never ahead of Redis, however trips vary and clocks drift up to 500 ppm', () => {
  for (const driftPpm of [-500, -50, 0, 50, 500]) {
    time = new HeldTime()
    clock = new RedisClock(time)
    for (let i = 0; i < 400; i++) {
      reply((i * 37) % 23, driftPpm)
      time.pass((i * 91) % 171)
      expect(clock.nowUs()!).toBeLessThanOrEqual(redisUs(driftPpm) + 1e-3)
    }
  }
})

test('a clock that ran away is corrected within the life of a sample', () => {
  reply(1)
  const fast = -1000
  for (let i = 0; i < 30; i++) {
    time.pass(999)
    reply(1, fast)
  }
  // Redis falls behind by 1 ms a second, faster than the margin: after 10 s the old samples no longer count.
  expect(clock.nowUs()! - redisUs(fast)).toBeLessThanOrEqual(10_000 * 0.5 + 1)
  expect(clock.nowUs()! - redisUs(fast)).toBeGreaterThan(-10_000)
})

test('an old sample is forgotten after ten seconds, for a slower one that is younger', () => {
  reply(1)
  time.pass(10_500)
  reply(30)
  expect(redisUs() - clock.nowUs()!).toBeCloseTo(30_000, 3)
})

test('times are told as waits on the local clock', () => {
  reply(0)
  expect(clock.untilMs(redisUs() + 25_000)).toBeCloseTo(25, 6)
  expect(clock.latenessUs(redisUs() + 25_000)).toBeCloseTo(-25_000, 3)
  time.pass(30)
  // 15 µs of margin in 30 ms.
  expect(clock.latenessUs(START_US + 25_000)).toBeCloseTo(4985, 3)
})

test('after a reset the next sample stands alone: another server, or a clock that was set back', () => {
  reply(0)
  const known = clock.nowUs()
  clock.reset()
  // Until then what was known is all that there is for the jobs that are held.
  expect(clock.nowUs()).toBe(known)
  clock.sample(500)
  expect(clock.nowUs()).toBe(500)
})

test('a machine that was suspended is late by its sleep, though its monotonic clock stood still', () => {
  reply(0)
  const slot = redisUs() + 10_000
  time.suspend(3000)
  expect(clock.latenessUs(slot)).toBeCloseTo(3_000_000 - 10_000, 3)
  // A fresh sample knows.
  reply(0)
  expect(clock.latenessUs(slot)).toBeCloseTo(-10_000, 3)
})

test('a wall clock that is set a little, or set back, is no sleep', () => {
  reply(0)
  const slot = redisUs()
  time.suspend(40)
  expect(clock.latenessUs(slot)).toBeCloseTo(0, 3)
  time.suspend(-60_000)
  expect(clock.latenessUs(slot)).toBeCloseTo(0, 3)
})

/** A reply of a call that took so long to Redis and back. */
function answer(thereMs: number, backMs: number): void {
  const sentMs = time.monotonic
  time.pass(thereMs)
  const writtenUs = redisUs() - setBackUs
  time.pass(backMs)
  clock.sample(writtenUs, sentMs)
}

test('a call whose answer was read before it was sent shows that the clock went back', () => {
  answer(1, 1)
  time.pass(500)
  setBackUs = 40_000
  answer(1, 1)
  const behindUs = redisUs() - setBackUs - clock.nowUs()!
  expect(behindUs).toBeCloseTo(1000, 6)
})

test('a slow call on either way shows nothing: the best sample stays', () => {
  answer(1, 1)
  for (const [thereMs, backMs] of [
    [60, 1],
    [1, 60],
    [60, 60],
  ] as const) {
    answer(thereMs, backMs)
    // 1 ms of the first sample, and the margin for drift.
    expect(redisUs() - clock.nowUs()!).toBeLessThan(1200)
  }
})
