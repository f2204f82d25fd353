import fc from 'fast-check'
import { expect, test } from 'vitest'
import { worstBucketWindow } from '../../src/audit/bucket-window.ts'
import type { PacedDeparture } from '../../src/audit/stretches.ts'
import { ReferenceBucket, worstWindow } from '../../src/testing/index.ts'
import { worstExcess } from './brute-force.ts'

const START_US = 1_764_000_000_000_017

function departures(
  all: readonly { gap: number; cost: number }[],
  intervalUs: number,
  burst: number,
): PacedDeparture[] {
  let slotUs = START_US
  return all.map(({ gap, cost }) => {
    slotUs += gap
    return { slotUs, cost, intervalUs, burst }
  })
}

const steps = fc.array(fc.record({ gap: fc.integer({ min: 0, max: 3000 }), cost: fc.integer({ min: 1, max: 4 }) }), {
  minLength: 1,
  maxLength: 30,
})

test('with one rate it finds the window that the trial of all windows finds', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 2_000_000 }), fc.integer({ min: 1, max: 6 }), (all, ticks, burst) => {
      const some = departures(all, ticks / 1024, burst)
      const found = worstBucketWindow(some)!
      expect(found.excessUs / (ticks / 1024)).toBeCloseTo(worstExcess(some), 6)
      expect(found.cost - found.allowed).toBeCloseTo(worstExcess(some), 6)
      const inside = some.filter(({ slotUs }) => slotUs >= found.fromUs && slotUs <= found.toUs)
      expect(inside.reduce((sum, { cost }) => sum + cost, 0)).toBeGreaterThanOrEqual(found.cost)
    }),
    { numRuns: 500 },
  )
})

test('the same as worstWindow of sluice/testing', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 4, max: 6 }), (all, intervalUs, burst) => {
      const found = worstBucketWindow(departures(all, intervalUs, burst))!
      const starts = departures(all, intervalUs, burst).map(({ slotUs, cost }) => ({ departureTimeUs: slotUs, cost }))
      const expected = worstWindow(starts, { rate: { limit: 1000, period: intervalUs }, burst })!
      expect(found.excessUs).toBeCloseTo(expected.excessUs, 3)
      expect([found.fromUs, found.toUs]).toEqual([expected.fromUs, expected.toUs])
    }),
    { numRuns: 300 },
  )
})

test('with changes it finds what the trial of all windows finds', () => {
  const changing = fc.array(
    fc.record({
      gap: fc.integer({ min: 0, max: 3000 }),
      cost: fc.integer({ min: 1, max: 4 }),
      shape: fc.constantFrom<readonly [number, number]>([100, 4], [100, 4], [700, 4], [1000, 9]),
    }),
    { minLength: 1, maxLength: 25 },
  )
  fc.assert(
    fc.property(changing, (all) => {
      const some = departures(all, 1, 1).map((one, i) => {
        const [intervalUs, burst] = all[i]!.shape
        return { ...one, intervalUs, burst }
      })
      const found = worstBucketWindow(some)!
      const expected = worstExcess(some)
      // A level is rounded down to a tick when the rate changes.
      if (expected > 0.01) expect(found.cost - found.allowed).toBeGreaterThan(0)
      if (expected < -0.01) expect(found.excessUs).toBeLessThanOrEqual(0)
      const ends = some.filter(({ slotUs }) => slotUs === found.toUs)
      const same = ends.filter(
        ({ intervalUs }) => Math.abs((found.cost - found.allowed) * intervalUs - found.excessUs) < 1,
      )
      expect(same.length).toBeGreaterThan(0)
    }),
    { numRuns: 500 },
  )
})

const deeds = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({ cost: fc.integer({ min: 1, max: 3 }), passedUs: fc.integer({ min: 0, max: 60_000 }) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ limit: fc.integer({ min: 10, max: 500 }), burst: fc.integer({ min: 3, max: 9 }) }),
    },
  ),
  { minLength: 5, maxLength: 60 },
)

test('what the exact bucket grants is never accused, whatever changes; one job too soon is', () => {
  fc.assert(
    fc.property(deeds, (all) => {
      const bucket = new ReferenceBucket({ rate: '100/s', burst: 5 }, START_US)
      const some: PacedDeparture[] = []
      let changed = false
      for (const deed of all) {
        if ('limit' in deed) {
          // A second change before the next departure would not be seen.
          if (!changed) bucket.reshape({ rate: `${deed.limit}/s`, burst: deed.burst })
          changed = true
          continue
        }
        bucket.advance(deed.passedUs)
        const slotUs = bucket.depart(deed.cost, 1e12)!
        const { intervalUs, burst } = bucket.state!
        some.push({ slotUs, cost: deed.cost, intervalUs, burst })
        changed = false
      }
      if (some.length === 0) return
      expect(worstBucketWindow(some)!.excessUs).toBeLessThanOrEqual(1)
      const full = { ...some.at(-1)!, cost: some.at(-1)!.burst }
      expect(worstBucketWindow([...some, full, { ...full, cost: 1 }])!.excessUs).toBeGreaterThan(1)
    }),
    { numRuns: 500 },
  )
})

test('no departures, no window', () => {
  expect(worstBucketWindow([])).toBeUndefined()
})
