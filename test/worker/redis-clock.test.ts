import { beforeEach, expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { type LocalTime, RedisClock } from '../../src/redis/clock.ts'
import { idleDispatcher } from './idle-host.ts'

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

/** A reply of a call that took so long to Redis and back. */
function answer(thereMs: number, backMs: number): void {
  const sentMs = time.monotonic
  time.pass(thereMs)
  const writtenUs = redisUs() - setBackUs
  time.pass(backMs)
  clock.sample(writtenUs, sentMs)
}

test('without a sample nothing is known and nothing waits', () => {
  expect(clock.nowUs()).toBeUndefined()
  expect(clock.untilMs(START_US + 1e9)).toBe(0)
})

test('the fastest reply counts, whatever comes after it', () => {
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

test('a clock that runs away faster than the margin is found out by its next answers', () => {
  for (let i = 0; i < 60; i++) {
    answer(1, 1)
    time.pass(998)
    // It falls behind by 1 ms in each second.
    setBackUs += 1000
  }
  const aheadUs = clock.nowUs()! - (redisUs() - setBackUs)
  expect(aheadUs).toBeLessThanOrEqual(2500)
  expect(aheadUs).toBeGreaterThan(-2500)
})

test('a good sample is kept while only worse ones come, and grows by the drift', () => {
  answer(1, 1)
  for (let i = 0; i < 20; i++) {
    time.pass(1000)
    answer(10, 2000)
  }
  // 1 ms, and 500 ppm of 60 s.
  expect(redisUs() - clock.nowUs()!).toBeLessThan(1000 + 61_000 * 0.5)
  expect(clock.errorUs()).toBeLessThan(2000 + 61_000)
})

test('the error is the fastest round trip, and what both bounds may have drifted', () => {
  expect(clock.errorUs()).toBe(Number.POSITIVE_INFINITY)
  reply(1)
  expect(clock.errorUs()).toBe(Number.POSITIVE_INFINITY)
  answer(2, 3)
  expect(clock.errorUs()).toBeLessThanOrEqual(5000)
  const before = clock.errorUs()
  time.pass(1000)
  expect(clock.errorUs()).toBeCloseTo(before + 1000, 3)
  // Each way of another call.
  answer(1, 300)
  answer(300, 1)
  expect(clock.errorUs()).toBeLessThan(2700)
})

test('what is known always holds the truth, however trips vary and clocks drift up to 500 ppm', () => {
  for (const driftPpm of [-500, -50, 0, 50, 500]) {
    time = new HeldTime()
    clock = new RedisClock(time)
    for (let i = 0; i < 400; i++) {
      const sentMs = time.monotonic
      time.pass((i * 53) % 19)
      const writtenUs = redisUs(driftPpm)
      time.pass((i * 37) % 23)
      clock.sample(writtenUs, sentMs)
      time.pass((i * 91) % 171)
      const behindUs = redisUs(driftPpm) - clock.nowUs()!
      expect(behindUs).toBeGreaterThanOrEqual(-1e-3)
      expect(behindUs).toBeLessThanOrEqual(clock.errorUs() + 0.1)
    }
  }
})

test('a clock that was set forward is believed at once', () => {
  answer(1, 1)
  setBackUs = -5_000_000
  answer(1, 1)
  expect(redisUs() - setBackUs - clock.nowUs()!).toBeCloseTo(1000, 6)
  expect(clock.errorUs()).toBeCloseTo(2001, 6)
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

test('a suspended machine is late by its sleep, though its monotonic clock stood still', () => {
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

test("a job that replaces an ended one departs by Redis's clock, as the same reply tells it", async () => {
  let closing = false
  const slotsUs: number[] = []
  const nowUs = Date.now() * 1000
  const aheadUs = nowUs + 3_600_000_000
  const first = readDeparture([1, String(nowUs), 0, [[[], '1', String(nowUs), '1', '0', '']], 'full'])
  const dispatcher = idleDispatcher({
    closing: () => closing,
    ask: async () => first,
    waitForMarker: async () => 0,
    process: async ({ id, slotUs }) => {
      slotsUs.push(slotUs)
      closing = id === '2'
      if (closing) return
      const end = { id, token: 'token', fields: [], fetches: true } as never
      dispatcher.exchanged({
        ends: [end],
        results: [[[], '2', 0, 0]],
        nowUs: aheadUs,
        reply: undefined,
        sentMs: dispatcher.nowMs,
      })
    },
  })
  await dispatcher.run()
  expect(slotsUs).toEqual([nowUs, expect.closeTo(aheadUs, -8)])
})
