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
