import { expect, test } from 'vitest'
import { createLimiter, type LimiterOptions, type LimitRedis } from '../../src/limits/index.ts'

/** A client that is never asked. */
const unused: LimitRedis = {
  status: 'wait',
  defineCommand: () => {},
  connect: async () => {},
  once: () => {},
  removeListener: () => {},
}

test.each<[Omit<LimiterOptions, 'name'>, number]>([
  [{ rate: '100/s', burst: 50 }, 0],
  // The rate times the interval.
  [{ rate: '100/s', burst: 50, sync: { intervalMs: 200 } }, 20],
  // Ten units a process.
  [{ rate: '100/s', burst: 50, sync: { intervalMs: 200, share: 0.02, processes: 4 } }, 4],
  // The limit, unless fewer processes could have leased it.
  [{ algorithm: 'fixed-window', rate: '100/min', sync: { intervalMs: 500 } }, 100],
  [{ algorithm: 'sliding-window-log', rate: '100/min', sync: { intervalMs: 500, share: 0.05, processes: 4 } }, 20],
  [{ algorithm: 'fixed-window', rate: '100/day', align: 'day', sync: { intervalMs: 23 * 3_600_000 } }, 200],
  [{ rate: '10/s', burst: 9, tiers: { paid: { rate: '50/s' } }, tierOf: {}, sync: { intervalMs: 100 } }, 5],
])('%o may pass %f more', (options, bound) => {
  expect(createLimiter(unused, { name: 'bound', ...options }).overshootBound).toBeCloseTo(bound, 3)
})

test.each<[Omit<LimiterOptions, 'name'>, RegExp]>([
  [{ rate: '1/s', sync: { intervalMs: 0 } }, /sync.intervalMs must be a number of ms > 0; got 0/],
  [{ rate: '1/s', sync: {} as { intervalMs: number } }, /sync.intervalMs must be a number of ms > 0; got null/],
  [{ rate: '1/s', sync: { intervalMs: 10, share: 2 } }, /sync.share must be a number above 0, at most 1; got 2/],
  [{ rate: '1/s', sync: { intervalMs: 10, maxLocalKeys: 0 } }, /sync.maxLocalKeys .* got 0/],
  [{ rate: '1/s', sync: { intervalMs: 10, processes: 0 } }, /sync.processes must be a whole number >= 1; got 0/],
  [{ rate: '1/s', local: { rate: '1/s', burst: 0 } }, /local.burst must be a whole number >= 1; got 0/],
  [{ rate: '1/s', local: { rate: '1/s', share: 0 } }, /local.share must be a number above 0, at most 1; got 0/],
  [{ rate: '1/s', local: { rate: '1/s', maxLocalKeys: 0 } }, /local.maxLocalKeys must be a whole number >= 1; got 0/],
  [{ rate: '1/s', mitigation: { maxKeys: 0 } }, /mitigation.maxKeys must be a whole number >= 1; got 0/],
  [{ algorithm: 'concurrency', concurrency: 5, sync: { intervalMs: 10 } }, /sync decides in memory.* concurrency/],
  [{ algorithm: 'concurrency', concurrency: 5, local: { rate: '1/s' } }, /local decides in memory.* concurrency/],
  [{ algorithm: 'fixed-window', rate: '5/s', sync: { intervalMs: 1001 } }, /1001 is longer than the window of 1000 ms/],
])('%o is refused', (options, message) => {
  expect(() => createLimiter(unused, { name: 'wrong', ...options })).toThrow(message)
})

test('the least that each option may be', () => {
  const sync = { intervalMs: 0.1, share: 1, processes: 1, maxLocalKeys: 1 }
  const local = { rate: '1/s', burst: 1, share: 1, maxLocalKeys: 1 }
  for (const one of [{ sync }, { local }, { mitigation: { maxKeys: 1 } }, { mitigation: true }])
    createLimiter(unused, { name: 'least', rate: '1/s', ...one })
})
