import fc from 'fast-check'
import { expect, test } from 'vitest'
import { type ClockPoint, pausedMs, type Stretch, splitWait } from '../../src/inspect/wait-split.ts'

const none = { rate: 0, limits: 0, concurrency: 0, pause: 0, workers: 0 }
const at = (seconds: number, held: Partial<ClockPoint['heldMs']> = {}): ClockPoint => ({
  atMs: seconds * 1000,
  heldMs: { ...none, ...held },
})
const stretch = (from: number, to: number): Stretch => ({ fromMs: from * 1000, toMs: to * 1000 })

test.each<[string, ClockPoint[], Stretch[], Stretch, object]>([
  ['no clocks: nobody looked', [], [], stretch(0, 10), { workers: 10_000 }],
  ['the rate all the time', [at(0), at(100, { rate: 100_000 })], [], stretch(20, 50), { rate: 30_000 }],
  [
    'parts of several causes',
    [at(0), at(10, { rate: 4000, limits: 3000, concurrency: 2000, workers: 1000 })],
    [],
    stretch(0, 10),
    { rate: 4000, limits: 3000, concurrency: 2000, workers: 1000 },
  ],
  ['between two points', [at(0), at(10, { rate: 10_000 })], [], stretch(2, 4), { rate: 2000 }],
  [
    'between two points nothing waited at first',
    [at(0), at(10, { rate: 5000 })],
    [],
    stretch(4, 6),
    { rate: 1000, workers: 1000 },
  ],
  [
    'nothing waited at first, and then there was a pause',
    [at(0), at(20, { rate: 5000 })],
    [stretch(10, 18)],
    stretch(8, 20),
    { rate: 4000, pause: 8000 },
  ],
  [
    'a pause is exact, whatever the clocks say of it',
    [at(0), at(30, { rate: 20_000, pause: 3000 })],
    [stretch(10, 20)],
    stretch(5, 30),
    { rate: 15_000, pause: 10_000 },
  ],
  [
    'during a pause no other clock goes',
    [at(0), at(20, { rate: 10_000 })],
    [stretch(10, 20)],
    stretch(5, 12),
    { rate: 5000, pause: 2000 },
  ],
  [
    'a pause that has no end yet',
    [at(0)],
    [stretch(4, Number.POSITIVE_INFINITY)],
    stretch(0, 10),
    { workers: 4000, pause: 6000 },
  ],
  [
    'clocks that tell of more than there was',
    [at(0), at(10, { rate: 15_000, limits: 5000 })],
    [],
    stretch(0, 10),
    { rate: 7500, limits: 2500 },
  ],
  [
    'clocks that went back: the state was lost',
    [at(0, { rate: 9000 }), at(10)],
    [],
    stretch(0, 10),
    { workers: 10_000 },
  ],
  [
    'before the first point they went as they had on the whole',
    [at(100, { rate: 30_000, workers: 10_000 }), at(110, { rate: 40_000, workers: 10_000 })],
    [],
    stretch(80, 110),
    { rate: 25_000, workers: 5000 },
  ],
  ['a job that did not wait', [at(0), at(10, { rate: 9000 })], [stretch(0, 10)], stretch(5, 5), {}],
])('how a wait divides: %s', (_, points, pauses, wait, parts) => {
  const split = splitWait(points, pauses, wait)
  for (const [cause, ms] of Object.entries({ ...none, ...parts })) {
    expect(split[cause as keyof typeof split], cause).toBeCloseTo(ms, 6)
  }
})

const stretches = fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 0, maxLength: 12 }).map((lengths) => {
  const edges = lengths.map((_, i) => lengths.slice(0, i + 1).reduce((sum, one) => sum + one, 0))
  return edges.flatMap((to, i) => (i % 2 === 1 ? [{ fromMs: edges[i - 1] as number, toMs: to }] : []))
})
const clocks = fc
  .array(fc.tuple(fc.nat(4000), fc.nat(3000), fc.nat(3000), fc.nat(3000), fc.nat(3000)), { maxLength: 20 })
  .map((steps) => {
    let point = at(0)
    return steps.map(([ms, rate, limits, concurrency, workers]) => {
      const { heldMs, atMs } = point
      point = {
        atMs: atMs + ms,
        heldMs: {
          rate: heldMs.rate + rate,
          limits: heldMs.limits + limits,
          concurrency: heldMs.concurrency + concurrency,
          pause: heldMs.pause,
          workers: heldMs.workers + workers,
        },
      }
      return point
    })
  })

test('whatever the clocks and the pauses, the parts sum up to the wait, and none is below 0', () => {
  fc.assert(
    fc.property(clocks, stretches, fc.nat(30_000), fc.nat(30_000), (points, pauses, fromMs, length) => {
      const wait = { fromMs, toMs: fromMs + length }
      const parts = splitWait(points, pauses, wait)
      const values = Object.values(parts)
      expect(values.reduce((sum, one) => sum + one, 0)).toBeCloseTo(length, 6)
      expect(Math.min(...values)).toBeGreaterThanOrEqual(0)
      expect(parts.pause).toBeCloseTo(pausedMs(pauses, wait), 6)
    }),
  )
})
