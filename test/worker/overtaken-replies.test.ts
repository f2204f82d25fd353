import { expect, test } from 'vitest'
import { readDeparture } from '../../src/departure/reply.ts'
import { RedisClock } from '../../src/redis/clock.ts'
import { AskSchedule } from '../../src/worker/ask-schedule.ts'
import { idleDispatcher, nothing } from './idle-host.ts'

/** What Redis answers while the next slot is a day ahead. */
function closed() {
  const slotUs = String(Date.now() * 1000 + 86_400_000_000)
  return readDeparture([1, String(Date.now() * 1000), 0, [], 'closed', slotUs, slotUs, 0, 0])
}

test.each([
  ['is older than makes the worker ask again', true, 3],
  ['is newer than is done with', false, 2],
])('a wake-up: one that the reply to the end of a job %s', async (_, overtakes, asked) => {
  let asks = 0
  let closing = false
  const dispatcher = idleDispatcher({
    closing: () => closing,
    ask: async () => {
      asks += 1
      return closed()
    },
    process: async () => {},
  })
  const running = dispatcher.run()
  await expect.poll(() => asks).toBe(1)
  const beforeMs = dispatcher.nowMs
  dispatcher.wake()
  await expect.poll(() => asks).toBe(2)
  dispatcher.exchanged({ ...nothing, reply: closed(), sentMs: overtakes ? beforeMs : dispatcher.nowMs })
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(asks).toBe(asked)
  closing = true
  dispatcher.wake()
  await running
})

function empty() {
  return readDeparture([1, String(Date.now() * 1000), 0, [], 'empty', '', '', 0, 0])
}

test.each([
  ['a wake-up', (schedule: AskSchedule) => schedule.wake()],
  ['the marker', (schedule: AskSchedule) => schedule.markerCame(0)],
  // Redis has it no longer, so this worker alone knows when the job is due.
  ['the marker of a delayed job', (schedule: AskSchedule) => schedule.markerCame(Date.now() + 60_000)],
] as const)('a worker does not wait for the marker on a reply that is older than %s', (_, comes) => {
  const clock = new RedisClock()
  const conditions = {
    maxRateLimitDelayMs: 1000,
    concurrency: () => 1,
    horizonUs: () => 50_000,
    intervalUs: () => undefined,
    receivedUntilMs: () => 0,
  }
  const schedule = new AskSchedule(conditions, clock)
  schedule.answered(empty())
  expect(schedule.blocks).toBe(true)
  const { wakes } = schedule
  const sentMs = clock.time.monotonicMs()
  comes(schedule)
  expect(schedule.wokenAtMs).toBeGreaterThanOrEqual(sentMs)
  schedule.answered(empty(), schedule.wakes !== wakes)
  expect(schedule.blocks).toBe(false)
  expect(schedule.waitMs(1)).toBeLessThanOrEqual(0)
  schedule.answered(empty())
  expect(schedule.blocks).toBe(true)
})
