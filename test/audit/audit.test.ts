import { expect, test } from 'vitest'
import { audit } from '../../src/audit/audit.ts'
import type { AuditEntry } from '../../src/inspect/queue-status.ts'

const START_US = 1_764_000_000_000_000

/** 10/s, burst 1. */
function entry(ms: number, more: Partial<Omit<AuditEntry, 'grantedUs' | 'heldUs'>> = {}): AuditEntry {
  const slotUs = START_US + ms * 1000
  return {
    jobId: `j${ms}`,
    slotUs,
    cost: 1,
    intervalUs: 100_000,
    burst: 1,
    limits: {},
    ...{ grantedUs: slotUs, heldUs: 0 },
    startedUs: slotUs + 500,
    ...more,
  }
}

test('a bound that is kept', () => {
  const found = audit([0, 100, 200, 450, 550].map((ms) => entry(ms)))
  expect(found).toMatchObject({ departures: 5, broken: false, stretches: 1, unpaced: 0, givenBack: 0 })
  expect(found.worst).toMatchObject({ excessUs: 0 })
  expect(found.lateness).toEqual({ starts: 5, early: 0, p50Us: 500, p99Us: 500, maxUs: 500 })
})

test('a planted violation is found, and where', () => {
  const found = audit([0, 100, 150, 250].map((ms) => entry(ms)))
  expect(found.broken).toBe(true)
  expect(found.worst).toEqual({
    fromUs: START_US + 100_000,
    toUs: START_US + 150_000,
    cost: 2,
    allowed: 1.5,
    excessUs: 50_000,
  })
  // Slots are told in whole µs: one may seem to be missing.
  expect(audit([entry(0), entry(99.999)]).broken).toBe(false)
  expect(audit([entry(0), entry(99.998)]).broken).toBe(true)
})

test('each group is held against its own rate', () => {
  const group = (id: string) => ({ group: { id, intervalUs: 300_000, burst: 1 } })
  const kept = [
    entry(0, group('a')),
    entry(100, group('b')),
    entry(300, group('a')),
    entry(400, group('b')),
    entry(500),
  ]
  expect(audit(kept).groups).toMatchObject({ groups: 2, departures: 4, broken: 0, worst: { excessUs: 0 } })
  const broken = audit([...kept, entry(600, group('b'))])
  expect(broken.broken).toBe(true)
  expect(broken.worst).toMatchObject({ excessUs: 0 })
  expect(broken.groups).toMatchObject({ broken: 1, departures: 5, worst: { group: 'b', excessUs: 100_000, cost: 2 } })
  expect(audit([entry(0)]).groups).toBeUndefined()
})

test('a limit per group is held against what each group took', () => {
  const limits = [{ name: 'tokens', by: 'group', rate: '10/s', burst: 2, unit: 'tokens' }] as const
  const took = (id: string, tokens: number) => ({ groupLimits: { id, taken: { tokens } } })
  const kept = [
    ...[entry(0, took('a', 2)), entry(100, took('', 2)), entry(200, took('b', 2))],
    ...[entry(300, took('a', 2)), entry(400), entry(500, took('b', 1))],
  ]
  const whole = audit(kept, { limits })
  expect(whole).toMatchObject({ broken: false, groups: undefined, limits: [{ name: 'tokens', departures: 5 }] })
  const broken = audit([...kept, entry(550, took('b', 2))], { limits })
  expect(broken.limits).toMatchObject([{ keys: { group: 'b' }, broken: true, departures: 6, worst: { cost: 3 } }])
  expect(audit([entry(0)], { limits }).limits).toMatchObject([{ departures: 0, broken: false }])
})

test('a value is checked by what it was allowed when its jobs left', () => {
  const limits = [{ name: 'plan', by: ['group', 'host'], rate: '10/s', burst: 2 }] as const
  const took = (value: string, plan: number) => ({ groupLimits: { id: 'a', taken: { plan }, values: { plan: value } } })
  const faster = { limitRules: { plan: { intervalUs: 50_000, burst: 4 } } }
  const burst = [took('1:a1:h', 2), took('2:é1:h', 4)].map((one, i) => entry(i, { ...one, ...(i ? faster : {}) }))
  const next = (ms: number, more: object) => audit([...burst, entry(ms, { ...took('2:é1:h', 1), ...more })], { limits })
  const keys = { group: 'é', host: 'h' }
  expect(next(51, faster).limits).toMatchObject([{ broken: false, values: 2, departures: 3 }])
  expect(next(50, faster).limits).toMatchObject([{ broken: true, keys }])
  // Lowered since: what had gone before is no longer allowed.
  expect(next(51, {}).limits).toMatchObject([{ broken: false }])
  expect(
    audit(
      burst.map(({ limitRules: _, ...one }) => one),
      { limits },
    ).limits,
  ).toMatchObject([{ broken: false }])
  const twice = [0, 1].map((ms) => entry(ms, took('2:é1:h', 2)))
  expect(audit(twice, { limits }).limits).toMatchObject([{ broken: true, keys, worst: { cost: 4 } }])
})

test('each day of a plan has its quota', () => {
  const limits = [{ name: 'warm', by: 'host', warmUp: { plan: [{ day: 1, quota: 2 }] } }] as const
  const took = (limit: number) => ({
    groupLimits: { id: '', taken: { warm: 1 }, values: { warm: 'h' } },
    limitRules: { warm: { limit } },
  })
  const days = [0, 1, 86_400_000, 86_400_001, 86_400_002].map((ms, i) => entry(ms, took(i < 2 ? 2 : 3)))
  expect(audit(days, { limits }).limits).toMatchObject([{ broken: false, departures: 5 }])
  expect(audit([...days, entry(86_400_003, took(3))], { limits }).limits).toMatchObject([{ broken: true }])
})

test('a start before its slot breaks a promise too', () => {
  const found = audit([entry(0), entry(100, { startedUs: START_US + 99_999 })])
  expect(found).toMatchObject({ broken: true, lateness: { early: 1 } })
})

test('only the last departures are looked at, where so many are asked for', () => {
  const all = [entry(0), entry(50), entry(150), entry(250)]
  expect(audit(all).broken).toBe(true)
  expect(audit(all, { last: 3 })).toMatchObject({ broken: false, departures: 3 })
})

test('jobs that were given back before they started do not count', () => {
  const granted = (ms: number, jobId: string) => entry(ms, { jobId, startedUs: undefined as never })
  // A worker closed: a and b went back, and others had their slots.
  const slots = [entry(0), granted(100, 'a'), granted(200, 'b'), entry(100, { jobId: 'c' })]
  const found = audit([...slots, entry(200, { jobId: 'a' }), entry(300, { jobId: 'b' }), entry(400)])
  expect(found).toMatchObject({ broken: false, givenBack: 2, departures: 5 })
})

test('nor does one that departed again before anybody told of its second start', () => {
  const { startedUs: _, ...again } = entry(160, { jobId: 'a' })
  const { startedUs: __, ...before } = entry(100, { jobId: 'a' })
  expect(audit([entry(0), before, again])).toMatchObject({ broken: false, givenBack: 1, departures: 2 })
})

test('a job that is tried again departs twice', () => {
  expect(audit([entry(0, { jobId: 'a' }), entry(50, { jobId: 'a' })])).toMatchObject({ broken: true, departures: 2 })
})

test.each([
  ['a departure that no bucket held', [entry(0), { ...entry(10), intervalUs: undefined as never }, entry(20)], []],
  ['a clock that was set back', [entry(0), entry(100), entry(40), entry(140)], []],
  ['two changes between two departures', [entry(0), entry(50)], [START_US + 10_000, START_US + 20_000]],
])('%s parts what is held against the bound', (_what, entries, changesUs) => {
  const withoutStarts = entries.map(({ startedUs: _, ...one }) => one)
  expect(audit(withoutStarts, { changesUs })).toMatchObject({ broken: false, stretches: 2 })
})

test('one change parts nothing: the faster of the two rates counts in its gap', () => {
  const slower = { intervalUs: 1_000_000 }
  const changesUs = [START_US + 10_000]
  expect(audit([entry(0), entry(100, slower)], { changesUs })).toMatchObject({ broken: false, stretches: 1 })
  expect(audit([entry(0), entry(50, slower)], { changesUs })).toMatchObject({ broken: true })
  expect(audit([entry(0), entry(100, slower), entry(1000, slower)], { changesUs }).broken).toBe(true)
})

test('each limit is held against its own rule, since it is what it is', () => {
  const limits = [
    { name: 'tokens', rate: '10/s', burst: 5 },
    { name: 'calls', algorithm: 'sliding-window-log', rate: '2/s' },
  ] as const
  const all = [0, 100, 200].map((ms) => entry(ms, { limits: { tokens: 2, calls: 1 } }))
  const found = audit(all, { limits })
  expect(found.limits.map(({ name, broken, departures }) => [name, broken, departures])).toEqual([
    ['tokens', false, 3],
    ['calls', true, 3],
  ])
  expect(found.broken).toBe(true)
  expect(audit(all, { limits, limitsSinceUs: START_US + 1 }).broken).toBe(false)
})

test('gaps are the time in which nothing held the queue and nothing left', () => {
  const at = (ms: number, heldMs: number) => ({ ...entry(ms), heldUs: heldMs * 1000 })
  const { gaps } = audit([at(0, 0), at(100, 100), at(700, 150), at(800, 250), at(1000, 350)])
  expect(gaps.map(({ jobId, openUs }) => [jobId, openUs])).toEqual([
    ['j700', 500_000],
    ['j1000', 100_000],
  ])
  // Without a rate, a limit held it.
  const unpaced = [at(0, 0), at(500, 450), at(900, 400)].map(({ intervalUs: _, ...one }) => one)
  expect(audit(unpaced).gaps.map(({ jobId, openUs }) => [jobId, openUs])).toEqual([['j500', 50_000]])
})

test('nothing kept, nothing found', () => {
  expect(audit([])).toMatchObject({ departures: 0, broken: false, worst: undefined, lateness: undefined, gaps: [] })
})
