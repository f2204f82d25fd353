import { expect, test } from 'vitest'
import { worstExcess } from './support/bound.ts'

const bucket = { intervalUs: 1000, burst: 3 }

test('departures at the bound are within it, one more is over it', () => {
  const allowed = [0, 0, 0, 1000, 2000, 9000, 9000, 9000]
  expect(worstExcess(allowed, bucket)).toBeLessThanOrEqual(0)
  expect(worstExcess([...allowed, 500], bucket)).toBeGreaterThan(0)
})

test('the worst window is found wherever it lies', () => {
  const spaced = Array.from({ length: 100 }, (_, i) => i * 1000)
  expect(worstExcess(spaced, { intervalUs: 1000, burst: 1 })).toBeLessThanOrEqual(0)
  const crowded = [...spaced, 50_001, 50_002, 50_003]
  expect(Math.round(worstExcess(crowded, { intervalUs: 1000, burst: 1 }))).toBe(3)
})
