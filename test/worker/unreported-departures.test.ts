import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { UnreportedDepartures } from '../../src/departure/unreported.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'], now: 0 }))
afterEach(() => void vi.useRealTimers())

/** One call that fetches jobs. @returns how many departures Redis counts with it */
function call(unreported: UnreportedDepartures, fetched: number): number {
  const told = unreported.take()
  unreported.add(fetched, told)
  return told < 0 ? 0 : told + fetched
}

test('a slow queue tells of each departure with the call that fetches it', () => {
  const unreported = new UnreportedDepartures()
  for (let i = 0; i < 5; i++) {
    expect(call(unreported, 1)).toBe(1)
    vi.advanceTimersByTime(250)
  }
})

test('a fast one tells of many with one of its calls, and of none twice', () => {
  const unreported = new UnreportedDepartures()
  const counted: number[] = []
  for (let ms = 0; ms < 1000; ms += 10) {
    counted.push(call(unreported, 2))
    vi.advanceTimersByTime(10)
  }
  expect(counted.filter((count) => count > 0)).toEqual([2, 50, 50, 50])
  vi.advanceTimersByTime(250)
  expect(call(unreported, 0)).toBe(48)
})
