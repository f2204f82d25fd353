import fc from 'fast-check'
import { expect, test } from 'vitest'
import { retryAfterSeconds } from '../../src/responses/retry-after.ts'

const YEAR_MS = 31_536_000_000
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
const wait = fc.double({ min: 0, max: YEAR_MS, noNaN: true })

test('never earlier than the true time, at least 1, at most 20 % later, whole', () => {
  fc.assert(
    fc.property(wait, chance, (ms, random) => {
      const seconds = retryAfterSeconds(ms, () => random)
      expect(Number.isSafeInteger(seconds)).toBe(true)
      expect(seconds).toBeGreaterThanOrEqual(1)
      expect(seconds * 1000).toBeGreaterThanOrEqual(ms)
      expect(seconds).toBeLessThanOrEqual(Math.max(1, Math.ceil((ms * 1.2) / 1000)))
    }),
    { numRuns: 2000 },
  )
})

test('who has to wait longer is never told less, with the same chance', () => {
  fc.assert(
    fc.property(wait, wait, chance, (a, b, random) => {
      const [short, long] = a < b ? [a, b] : [b, a]
      expect(retryAfterSeconds(short, () => random)).toBeLessThanOrEqual(retryAfterSeconds(long, () => random))
    }),
  )
})

test.each([
  [0, 0, 1],
  [1, 0.999, 1],
  [833, 0.999, 1],
  [1000, 0, 1],
  [1000, 0.999, 2],
  [1001, 0, 2],
  [10_000, 0, 10],
  [10_000, 0.5, 11],
  [10_000, 0.999, 12],
  [-5000, 0.999, 1],
  [Number.NaN, 0.999, 1],
  [Number.POSITIVE_INFINITY, 0.999, 2_147_483_647],
])('%d ms with chance %d: %d s', (ms, random, seconds) => {
  expect(retryAfterSeconds(ms, () => random)).toBe(seconds)
})

test('each second of the range is as likely as the others', () => {
  const told = Array.from({ length: 1100 }, (_, i) => retryAfterSeconds(50_000, () => i / 1100))
  const counts = new Map<number, number>()
  for (const seconds of told) counts.set(seconds, (counts.get(seconds) ?? 0) + 1)
  expect([...counts]).toEqual(Array.from({ length: 11 }, (_, i) => [50 + i, 100]))
})

test('chance is taken without being asked', () => {
  const told = new Set(Array.from({ length: 400 }, () => retryAfterSeconds(10_000)))
  expect([...told].toSorted()).toEqual([10, 11, 12])
})
