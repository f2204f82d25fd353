import { AssertionError } from 'node:assert'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { InvalidInputError } from '../../src/errors.ts'
import { expectPaced, ReferenceBucket, worstWindow } from '../../src/testing/index.ts'

test('evenly spaced starts are paced, in any order', () => {
  expectPaced([60_000, 0, 40_000, 20_000], { rate: '50/s' })
})

test('one start too early is found, and the window is named', () => {
  const starts = [0, 20_000, 30_000, 60_000]
  expect(() => expectPaced(starts, { rate: '50/s' })).toThrow(
    '2 units of cost started within 10 ms (20000 to 30000 µs), but 50/s with burst 1 allows 1.5',
  )
})

test('a burst may start at once, one more may not', () => {
  expectPaced([5, 5, 5], { rate: '1/min', burst: 3 })
  expect(() => expectPaced([5, 5, 5, 5], { rate: '1/min', burst: 3 })).toThrow(AssertionError)
})

test('costs count, and one job may cost more than the burst', () => {
  const start = (departureTimeUs: number, cost?: number) => ({ departureTimeUs, ...(cost ? { cost } : {}) })
  expectPaced([start(0, 4), start(80_000, 1)], { rate: '50/s', burst: 2 })
  expect(() => expectPaced([start(0, 4), start(10_000, 1)], { rate: '50/s', burst: 2 })).toThrow('5 units of cost')
})

test('the tolerance is given in time', () => {
  const starts = [0, 20_000, 35_000]
  expect(() => expectPaced(starts, { rate: '50/s' }, { toleranceUs: 4999 })).toThrow(AssertionError)
  expectPaced(starts, { rate: '50/s' }, { toleranceUs: 5000 })
})

test('without a rate there is nothing to assert', () => {
  expect(() => expectPaced([0], { burst: 2 })).toThrow(InvalidInputError)
  expect(worstWindow([0], {})).toBeUndefined()
  expect(worstWindow([], { rate: '1/s' })).toBeUndefined()
})

test('the worst window is the worst of all windows', () => {
  const start = fc.record({
    departureTimeUs: fc.integer({ min: 0, max: 500_000 }),
    cost: fc.integer({ min: 1, max: 4 }),
  })
  fc.assert(
    fc.property(fc.array(start, { minLength: 1, maxLength: 12 }), fc.integer({ min: 1, max: 3 }), (starts, burst) => {
      const sorted = starts.toSorted((one, other) => one.departureTimeUs - other.departureTimeUs)
      const most = Math.max(burst, ...starts.map(({ cost }) => cost))
      const excesses = sorted.flatMap(({ departureTimeUs: from }, first) =>
        sorted.slice(first).map(({ departureTimeUs: to }, length) => {
          const cost = sorted.slice(first, first + length + 1).reduce((sum, one) => sum + one.cost, 0)
          return (cost - most) * 20_000 - (to - from)
        }),
      )
      const worst = worstWindow(starts, { rate: '50/s', burst })
      expect(worst?.excessUs).toBe(Math.max(...excesses))
      expect(((worst?.cost as number) - (worst?.allowed as number)) * 20_000).toBeCloseTo(worst?.excessUs as number, 6)
    }),
  )
})

test("a bucket of one's own grants what a queue of that shape would", () => {
  const bucket = new ReferenceBucket({ rate: '50/s', burst: 2 })
  expect([bucket.depart(), bucket.depart(), bucket.depart()]).toEqual([0, 0, undefined])
  expect(bucket.level).toBe(2)
  expect(bucket.nextSlotUs()).toBe(20_000)
  bucket.advance(20_000)
  expect(bucket.depart()).toBe(20_000)
  bucket.pauseUntil(1_000_000)
  bucket.pauseUntil(500_000)
  expect(bucket.nextSlotUs()).toBe(1_000_000)
  bucket.clearPause()
  expect(bucket.depart(1, 20_000)).toBe(40_000)
})
