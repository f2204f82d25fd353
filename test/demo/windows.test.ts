import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  achievedPerSecond,
  allowedWithin,
  gaps,
  mostWithin,
  type Pace,
  percentile,
  worstExcess,
} from '../../workers/demo/windows.ts'

const fiftyPerSecond: Pace = { limit: 50, periodUs: 1_000_000, burst: 1 }

/** The definition itself, over all pairs, in whole numbers of any size. */
function excessByDefinition(times: readonly number[], { limit, periodUs, burst }: Pace, slackUs: number): number {
  let worst: bigint | undefined
  for (let i = 0; i < times.length; i++) {
    for (let j = i; j < times.length; j++) {
      const windowUs = BigInt(times[j]! - times[i]! + slackUs)
      const excess = BigInt(j - i + 1) - ((windowUs * BigInt(limit)) / BigInt(periodUs) + BigInt(burst))
      if (worst === undefined || excess > worst) worst = excess
    }
  }
  return Number(worst ?? 0n)
}

describe('worstExcess', () => {
  test.each([
    ['nothing', [], 0],
    ['one start', [7], 0],
    ['exactly on the grid', [0, 20_000, 40_000, 60_000], 0],
    ['one microsecond too close', [0, 19_999, 40_000], 1],
    ['two at once', [0, 0], 1],
    ['fifty in ten milliseconds', Array.from({ length: 50 }, (_, i) => i * 200), 49],
    ['a late start, then back on the grid', [0, 25_000, 40_000, 60_000], 1],
    ['far from zero', [1.8e15, 1.8e15 + 20_000, 1.8e15 + 40_000], 0],
  ])('%s', (_, times, excess) => {
    expect(worstExcess(times, fiftyPerSecond)).toBe(excess)
  })

  test('what the burst allows is no excess', () => {
    expect(worstExcess([0, 0, 0, 20_000], { ...fiftyPerSecond, burst: 3 })).toBe(0)
    expect(worstExcess([0, 0, 0, 0], { ...fiftyPerSecond, burst: 3 })).toBe(1)
  })

  test('the jitter of a receiver lengthens every window', () => {
    expect(worstExcess([0, 15_000], fiftyPerSecond, 4999)).toBe(1)
    expect(worstExcess([0, 15_000], fiftyPerSecond, 5000)).toBe(0)
  })

  test('one pass finds what the definition finds over all pairs', () => {
    const paces = fc.record({
      limit: fc.integer({ min: 1, max: 3000 }),
      periodUs: fc.constantFrom(1_000_000, 60_000_000, 900_000_000),
      burst: fc.integer({ min: 1, max: 5 }),
    })
    const steps = fc.array(fc.nat({ max: 3_000_000 }), { minLength: 1, maxLength: 40 })
    fc.assert(
      fc.property(paces, steps, fc.nat({ max: 50_000 }), (pace, distances, slackUs) => {
        let at = 1_760_000_000_000_000
        const times = distances.map((distance) => (at += distance))
        expect(worstExcess(times, pace, slackUs)).toBe(excessByDefinition(times, pace, slackUs))
      }),
    )
  })
})

test('mostWithin counts the fullest closed window', () => {
  expect(mostWithin([], 10)).toBe(0)
  expect(mostWithin([0, 5, 10, 11, 30], 10)).toBe(3)
  expect(mostWithin([0, 10, 20], 9)).toBe(1)
})

test('allowedWithin is b + T/I', () => {
  expect(allowedWithin(1_000_000, fiftyPerSecond)).toBe(51)
  expect(allowedWithin(1_000_000, fiftyPerSecond, 20_000)).toBe(52)
})

test('achievedPerSecond measures between the first and the last start', () => {
  expect(achievedPerSecond([0, 20_000, 40_000])).toBe(50)
  expect(achievedPerSecond([5])).toBeUndefined()
  expect(achievedPerSecond([])).toBeUndefined()
})

test('gaps are the distances between neighbours', () => {
  expect(gaps([3, 5, 9])).toEqual([2, 4])
  expect(gaps([3])).toEqual([])
})

test('percentile takes the nearest rank', () => {
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index)
  expect(percentile(hundred, 50)).toBe(50)
  expect(percentile(hundred, 99)).toBe(99)
  expect(percentile([4], 99)).toBe(4)
  expect(percentile([], 50)).toBeUndefined()
})
