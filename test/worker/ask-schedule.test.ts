import { describe, expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import { AskSchedule } from '../../src/worker/ask-schedule.ts'

const time = { monotonicMs: () => 0, wallMs: () => 1000, after: () => () => {} }
const conditions = {
  maxRateLimitDelayMs: 30_000,
  concurrency: () => 3,
  horizonUs: () => 50_000,
  intervalUs: () => undefined,
  receivedUntilMs: () => 0,
}

/** What Redis answered at a time where no job could be had. */
function empty(nowUs: number, delayedMs: number) {
  return readDeparture([1, String(nowUs), 0, [], 'empty', '', '', delayedMs, 0])
}

test('an older answer that is heard last does not make a worker forget when the next delayed job is due', () => {
  const schedule = new AskSchedule(conditions, new RedisClock(time))
  schedule.answered(empty(1, 0))
  expect(schedule.beginWait()).toBe(0)
  schedule.answered(empty(3, 1500))
  schedule.answered(empty(2, 0))
  expect(schedule.dueWhileWaitingMs).toBe(500)
  // What Redis says after that is true again, also after its clock went back.
  schedule.answered(empty(2, 0))
  expect(schedule.dueWhileWaitingMs).toBeUndefined()
})

/** A worker that sleeps for a slot two minutes ahead. passable: whether only groups hold the jobs */
function sleeper(passable = false, slotUs = '120000000') {
  const clock = { nowMs: 0, receivedUntilMs: Number.NEGATIVE_INFINITY }
  const moving = { ...time, monotonicMs: () => clock.nowMs }
  const redisClock = new RedisClock(moving)
  redisClock.sample(0, 0)
  const schedule = new AskSchedule({ ...conditions, receivedUntilMs: () => clock.receivedUntilMs }, redisClock)
  const rest = [slotUs, slotUs, 0, 0, [], '', '', false, 0, '', passable ? 1 : 0]
  schedule.answered(readDeparture([1, '0', 0, [], 'closed', ...rest]))
  return { clock, schedule }
}

test('a worker that may have missed a wake-up asks again after 10 s', () => {
  const { clock, schedule } = sleeper()
  expect(schedule.waitMs(3)).toBe(10_000)
  clock.nowMs = 9999
  expect(schedule.waitMs(3)).toBeGreaterThan(0)
  clock.nowMs = 10_000
  expect(schedule.waitMs(3)).toBe(0)
})

test('one that has heard all wake-ups sleeps on, for a minute at most', () => {
  const { clock, schedule } = sleeper()
  for (clock.nowMs = 10_000; clock.nowMs < 60_000; clock.nowMs += 5000) {
    clock.receivedUntilMs = clock.nowMs - 5000
    expect(schedule.waitMs(3)).toBe(10_000)
  }
  clock.nowMs = 60_000
  clock.receivedUntilMs = 60_000
  expect(schedule.waitMs(3)).toBe(0)
})

test('after an error it waits as long as that asks for, however long it has slept', () => {
  const { clock, schedule } = sleeper()
  clock.nowMs = 90_000
  schedule.failed(new Error('connection lost'))
  expect(schedule.waitMs(3)).toBe(50)
})

test('while only groups hold the jobs, a sleeping worker waits for the marker; without one it sleeps on', () => {
  const { clock, schedule } = sleeper(true)
  clock.receivedUntilMs = Number.POSITIVE_INFINITY
  expect([schedule.listens, schedule.blocks, schedule.beginWait()]).toEqual([true, false, 0])
  schedule.markerCame(undefined)
  expect(schedule.waitMs(3)).toBe(10_000)
  // The marker of a delayed job, which no other worker knows; the wall clock stands at 1000.
  schedule.markerCame(1500)
  expect(schedule.waitMs(3)).toBe(500)
  schedule.markerCame(0)
  expect(schedule.waitMs(3)).toBe(0)
})

test.each([
  ['that the queue itself holds', () => sleeper(false)],
  ['whose slot comes soon', () => sleeper(true, '90000')],
])('a sleeping worker %s does not wait for the marker', (_, asleep) => {
  expect(asleep().schedule.listens).toBe(false)
})

test.each([
  ['that fails', 'connection lost', [50, 100, 200, 400, 800, 1000, 1000]],
  ['without memory', 'OOM command not allowed when used memory > maxmemory', [50, 100, 200, 200]],
])('a Redis %s is asked again ever later, and from the first delay after an answer', (_, message, delays) => {
  const { clock, schedule } = sleeper()
  const waitsMs = () =>
    delays.map(() => {
      schedule.failed(new Error(message))
      const waitMs = schedule.waitMs(3)
      clock.nowMs += waitMs
      return [waitMs, schedule.hasFailed]
    })
  expect(waitsMs()).toEqual(delays.map((delay) => [delay, true]))
  schedule.answered(empty(1, 0))
  expect(schedule.hasFailed).toBe(false)
  expect(waitsMs()).toEqual(delays.map((delay) => [delay, true]))
})

describe('with all known slots taken, the next in 100 ms and a horizon of 50 ms', () => {
  /** @param intervalUs between two slots @param leadUs how much sooner a slot is asked for */
  function full(intervalUs: number | undefined, concurrency: number, leadUs = 0) {
    const clock = new RedisClock(time)
    clock.sample(0, 0)
    const given = { ...conditions, intervalUs: () => intervalUs, concurrency: () => concurrency }
    const schedule = new AskSchedule(given, clock)
    schedule.answered(readDeparture([1, '0', 0, [], 'full', '', '100000', 0, 0, [], '', '', null, leadUs]))
    return schedule
  }

  test.each([
    ['as many places are free as half a horizon has slots', 5000, 20, 5],
    ['half of its places are free, where these are fewer', 5000, 6, 3],
    ['one place is free, where slots are farther apart', 40_000, 20, 1],
  ])('a worker asks at once if %s', (_, intervalUs, concurrency, free) => {
    const schedule = full(intervalUs, concurrency)
    expect(schedule.waitMs(free)).toBe(0)
    if (free > 1) expect(schedule.waitMs(free - 1)).toBe(75)
  })

  test('with fewer it asks half a horizon before the slot, sooner by the lead of its limits', () => {
    expect(full(5000, 20).waitMs(1)).toBe(75)
    expect(full(5000, 20, 30_000).waitMs(1)).toBe(45)
  })

  test('and without a rate at once', () => {
    expect(full(undefined, 20).waitMs(1)).toBe(0)
  })
})
