import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { UnreportedDepartures } from '../../src/departure/exchange.ts'

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
  const pass = (ms: number) => {
    for (const endMs = performance.now() + ms; performance.now() < endMs; vi.advanceTimersByTime(10)) {
      counted.push(call(unreported, 2))
    }
    return counted.splice(0).filter((count) => count > 0)
  }
  // At first more often.
  const first = pass(1000)
  expect(first.length).toBeGreaterThan(8)
  expect(first.slice(0, 3)).toEqual([2, 2, 4])
  pass(1000)
  const late = pass(1000)
  expect(late).toEqual(Array(4).fill(50))
  vi.advanceTimersByTime(250)
  expect(call(unreported, 0)).toBeGreaterThan(0)
  expect(call(unreported, 0)).toBe(0)
})

test('what it tells is all that departed', () => {
  const unreported = new UnreportedDepartures()
  let counted = 0
  for (let i = 0; i < 500; i++, vi.advanceTimersByTime(10)) counted += call(unreported, 2)
  vi.advanceTimersByTime(250)
  expect(counted + call(unreported, 0)).toBe(1000)
})
