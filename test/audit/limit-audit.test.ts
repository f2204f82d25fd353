import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Charge } from '../../src/audit/limit-audit.ts'
import { auditLimit } from '../../src/audit/limit-audit.ts'
import type { QueueLimit } from '../../src/index.ts'

const DAY_US = 86_400_000_000
const charges = fc
  .array(fc.record({ gap: fc.integer({ min: 0, max: 900_000 }), cost: fc.integer({ min: 1, max: 3 }) }), {
    minLength: 1,
    maxLength: 40,
  })
  .map((all) => {
    let us = 1_764_000_000_000_000
    return all.map(({ gap, cost }): Charge => {
      us += gap
      return { us, cost }
    })
  })
const sum = (some: readonly Charge[]) => some.reduce((all, { cost }) => all + cost, 0)

/** Whether some window holds too much, each looked at by itself. */
const TRIALS: Readonly<Record<string, (all: readonly Charge[], limit: number) => boolean>> = {
  'sliding-window-log': (all, limit) =>
    all.some(({ us }) => sum(all.filter((one) => one.us > us - 1_000_000 && one.us <= us)) > limit),
  'fixed-window': (all, limit) =>
    all.some(({ us }) => sum(all.filter((one) => Math.floor(one.us / 1e6) === Math.floor(us / 1e6))) > limit),
  'sliding-window-counter': (all, limit) =>
    all.some(({ us }, i) => {
      const start = us - (us % 1_000_000)
      const until = all.slice(0, i + 1)
      const used = sum(until.filter((one) => one.us >= start))
      const before = sum(all.filter((one) => one.us >= start - 1_000_000 && one.us < start))
      return used + before * (1 - (us - start) / 1_000_000) > limit * (1 + 1e-9)
    }),
}

describe.each(Object.keys(TRIALS))('%s', (algorithm) => {
  test('is broken exactly where one of its windows holds too much', () => {
    const seen = { kept: 0, broken: 0 }
    fc.assert(
      fc.property(charges, fc.integer({ min: 3, max: 14 }), (all, limit) => {
        const rule = { name: 'calls', algorithm, rate: `${limit}/s` } as QueueLimit
        const { broken } = auditLimit(rule, all)
        expect(broken).toBe(TRIALS[algorithm]!(all, limit))
        seen[broken ? 'broken' : 'kept'] += 1
      }),
      { numRuns: 500 },
    )
    expect(Math.min(seen.kept, seen.broken)).toBeGreaterThan(20)
  })
})

test.each(['gcra', 'token-bucket', 'leaky-bucket'] as const)('%s has burst and rate', (algorithm) => {
  const limit: QueueLimit = { name: 'calls', algorithm, rate: '10/s', burst: 3 }
  const at = (ms: number): Charge => ({ us: ms * 1000, cost: 1 })
  expect(auditLimit(limit, [0, 0, 0, 100, 200].map(at))).toMatchObject({ broken: false, departures: 5 })
  expect(auditLimit(limit, [0, 0, 0, 100, 199].map(at))).toMatchObject({ broken: true, worst: { cost: 5 } })
})

test('what was charged a whole window ago counts no more', () => {
  const limit: QueueLimit = { name: 'calls', algorithm: 'sliding-window-log', rate: '1/s' }
  const after = (us: number) => [0, us].map((one) => ({ us: one, cost: 1 }))
  expect(auditLimit(limit, after(1_000_000)).broken).toBe(false)
  expect(auditLimit(limit, after(999_999)).broken).toBe(true)
})

test('windows that begin with their first unit are known after a quiet one', () => {
  const limit: QueueLimit = { name: 'calls', algorithm: 'fixed-window', rate: '2/s', align: 'first' }
  const at = (ms: number): Charge => ({ us: ms * 1000, cost: 1 })
  expect(auditLimit(limit, [0, 0, 0, 2000, 2500, 3000, 3000].map(at)).broken).toBe(false)
  expect(auditLimit(limit, [0, 2000, 2500, 2999].map(at))).toMatchObject({ broken: true, worst: { cost: 3 } })
})

describe('windows that begin with their first unit, and costs that were settled', () => {
  const limit: QueueLimit = { name: 'calls', algorithm: 'fixed-window', rate: '2/s', align: 'first' }
  const at = (ms: number, cost = 1): Charge => ({ us: ms * 1000, cost })
  const settledAt = (ms: number): Charge => ({ ...at(ms, 0), isSettled: true })
  const broken = (...charges: Charge[]) => auditLimit(limit, charges).broken

  test('the next charge may begin another window once all of one was given back', () => {
    // Of the windows from 2,500 and from 3,500 each holds two.
    const later = [2500, 3400, 3500, 3600].map((ms) => at(ms))
    expect(broken(at(0), at(2000), ...later)).toBe(true)
    expect(broken(at(0), at(2000, 0), ...later)).toBe(false)
    expect(broken(at(0), at(2000, 0), ...later, ...[5000, 5100, 5200].map((ms) => at(ms)))).toBe(true)
  })

  test('what is charged again later begins a window', () => {
    // From 2,500, where one unit is charged again, and from 3,500.
    const later = [3400, 3500, 3600].map((ms) => at(ms))
    expect(broken(at(0), ...later)).toBe(true)
    expect(broken(at(0), settledAt(2500), ...later)).toBe(false)
    expect(auditLimit(limit, [at(0), settledAt(2500), ...later]).departures).toBe(4)
  })
})

test('days are those of the time zone', () => {
  const limit: QueueLimit = {
    name: 'calls',
    algorithm: 'fixed-window',
    rate: '2/day',
    align: 'day',
    timeZone: 'Asia/Tokyo',
  }
  // Midnight in Tokyo is 15:00 UTC.
  const at = (hours: number): Charge => ({ us: 20_000 * DAY_US + hours * 3_600_000_000, cost: 1 })
  expect(auditLimit(limit, [13, 14, 15, 16].map(at)).broken).toBe(false)
  expect(auditLimit(limit, [12, 13, 14].map(at)).broken).toBe(true)
})

test.each([
  ['week', '2026-03-23T00:00+01:00', '2026-03-30T00:00+02:00'],
  ['month', '2026-10-01T00:00+02:00', '2026-11-01T00:00+01:00'],
] as const)('a %s is that of the calendar of the time zone', (align, from, to) => {
  const limit: QueueLimit = {
    ...{ name: 'calls', algorithm: 'fixed-window', rate: `2/${align}`, align, timeZone: 'Europe/Berlin' },
  }
  const [start, end] = [Date.parse(from) * 1000, Date.parse(to) * 1000]
  const worst = (...us: number[]) =>
    auditLimit(
      limit,
      us.map((one) => ({ us: one, cost: 1 })),
    ).worst?.cost
  expect(worst(start - 1, start, end - 1, end)).toBe(2)
  expect(worst(start, start + 1, end - 1)).toBe(3)
})

test.each([
  [{ name: 'n', algorithm: 'concurrency', concurrency: 1 }, 'when jobs end'],
  [{ name: 'n', rate: '1/day', mode: 'shadow' }, 'holds nothing'],
  [{ name: 'n', rate: '1000/s', shared: true }, 'only what this queue took'],
] satisfies [QueueLimit, string][])('%j: it says what it does not see', (limit, note) => {
  const found = auditLimit(
    limit,
    [0, 1000, 2000].map((us) => ({ us, cost: 1 })),
  )
  expect(found.broken).toBe(false)
  expect(found.note).toContain(note)
})
