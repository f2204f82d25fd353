import { expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import { AskSchedule } from '../../src/worker/ask-schedule.ts'

const time = { monotonicMs: () => 0, wallMs: () => 1000, after: () => () => {} }
const conditions = {
  maxRateLimitDelayMs: 30_000,
  concurrency: () => 3,
  horizonUs: () => 50_000,
  intervalUs: () => undefined,
  heardAtMs: () => 0,
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
  const clock = { nowMs: 0, heardAtMs: Number.NEGATIVE_INFINITY }
  const moving = { ...time, monotonicMs: () => clock.nowMs }
  const redisClock = new RedisClock(moving)
  redisClock.sample(0, 0)
  const schedule = new AskSchedule({ ...conditions, heardAtMs: () => clock.heardAtMs }, redisClock)
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
    clock.heardAtMs = clock.nowMs - 5000
    expect(schedule.waitMs(3)).toBe(10_000)
  }
  clock.nowMs = 60_000
  clock.heardAtMs = 60_000
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
  clock.heardAtMs = Number.POSITIVE_INFINITY
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
