import { expect, test } from 'vitest'
import type { MeterState } from '../../../../src/queue/meter-state.ts'
import { reconnectDelayMs } from '../../src/jobs/connection.ts'
import { LastMeter } from '../../src/jobs/last-meter.ts'
import { preferredWaitS } from '../../src/jobs/post-jobs.ts'

async function policiesOf(last: LastMeter) {
  await last.refresh()
  return last.policies()
}

const meter = (state: Partial<MeterState>) => Promise.resolve({ depth: 0, ...state } as MeterState)

test.each([
  ['50/s', 50, 1000],
  ['100/15min', 100, 900_000],
  ['1/250ms', 4, 1000],
  ['1/10s', 1, 10_000],
  ['0.5/s', 1, 2000],
  ['12.3457/s', 12, 1000],
  ['1000/1500ms', 666, 1000],
  ['1/day', 1, 86_400_000],
])('a rate of %s is %i in %i ms', async (rate, quota, windowMs) => {
  const policies = await policiesOf(new LastMeter('q', () => meter({ rate })))
  expect(policies).toEqual([{ name: 'q-egress', quota, windowMs }])
})

test('what this process lets in is counted until the meter is read again', async () => {
  const last = new LastMeter('q', () => meter({ capacity: 10, depth: 3 }))
  const left = async () => (await policiesOf(last))[0]?.remaining
  last.admitted(1)
  expect(await left()).toBe(7)
  last.admitted(5)
  expect(await left()).toBe(2)
  last.admitted(5)
  expect(await left()).toBe(0)
})

test('where the meter can not be read nothing is told', async () => {
  expect(await policiesOf(new LastMeter('q', () => Promise.reject(new Error('away'))))).toEqual([])
})

test.each([
  [undefined, undefined],
  ['', undefined],
  ['wait=5', 5],
  ['respond-async, wait=10', 10],
  ['WAIT = "7"; a=b, return=minimal', 7],
  ['wait=5, wait=9', 5],
  ['wait=-1', undefined],
  ['wait=1.5', undefined],
  ['wait', undefined],
  ['await=5', undefined],
])('Prefer: %j waits %j s', (field, seconds) => {
  expect(preferredWaitS(field)).toBe(seconds)
})

test('reconnecting is spread out, and never later than 5 s', () => {
  expect([1, 3, 20].map((attempt) => reconnectDelayMs(attempt, 0))).toEqual([50, 50, 50])
  expect([1, 3, 20].map((attempt) => reconnectDelayMs(attempt, 1))).toEqual([100, 400, 5000])
})
