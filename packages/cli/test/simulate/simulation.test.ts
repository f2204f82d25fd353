import fc from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import type { Shape } from '../../../../src/index.ts'
import { ReferenceBucket } from '../../../../src/testing/index.ts'
import { useRedis } from '../../../../test/support/redis.ts'
import type { Arrival } from '../../src/simulate/arrival.ts'
import type { GroupSetting } from '../../src/simulate/group-settings.ts'
import { arrivalsOf } from '../../src/simulate/load.ts'
import { seriesOf } from '../../src/simulate/series.ts'
import { FATE, type Outcome, type SimulationOptions, simulate } from '../../src/simulate/simulation.ts'
import { maxMinShares, summarize, waitsMs } from '../../src/simulate/summary.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const START_US = 1_764_000_000_000_017
const HORIZON_US = 50_000

function run(shape: Shape, arrivals: readonly Arrival[], options: SimulationOptions = {}): Promise<Outcome> {
  return simulate(client, shape, arrivals, { prefix: redis.prefix, ...options })
}

async function scratchKeys(): Promise<string[]> {
  return client.keys(`{${redis.prefix}*`)
}

afterEach(async () => expect(await scratchKeys()).toEqual([]))

function arrival(afterUs: number, more: Partial<Arrival> = {}): Arrival {
  return { atUs: START_US + afterUs, cost: 1, priority: 0, delayMs: 0, ...more }
}

/** Slots in µs since the beginning; undefined where a job did not start. */
async function slots(shape: Shape, arrivals: readonly Arrival[], options: SimulationOptions = {}) {
  const outcome = await run(shape, arrivals, options)
  return startsOf(outcome)
}

function startsOf({ fates, slotsUs }: Outcome): (number | undefined)[] {
  return [...fates].map((fate, i) => (fate === FATE.started ? (slotsUs[i] as number) - START_US : undefined))
}

const gaps = fc.array(
  fc.record({
    gap: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 400_000 })),
    cost: fc.integer({ min: 1, max: 3 }),
  }),
  { minLength: 1, maxLength: 60 },
)

function arrivalsAfter(all: readonly { gap: number; cost: number }[]): Arrival[] {
  let at = 0
  return all.map(({ gap, cost }) => {
    at += gap
    return arrival(at, { cost })
  })
}

describe('against the reference', () => {
  const buckets = fc.record({
    limit: fc.integer({ min: 1, max: 400 }),
    burst: fc.integer({ min: 3, max: 9 }),
    mode: fc.constantFrom('enforce' as const, 'enforce' as const, 'shadow' as const, 'off' as const),
  })

  test('every job starts at the slot of the exact bucket', async () => {
    await fc.assert(
      fc.asyncProperty(buckets, gaps, async ({ limit, burst, mode }, all) => {
        const shape = { rate: { limit, period: 7000 }, burst, mode }
        const arrivals = arrivalsAfter(all)
        const bucket = new ReferenceBucket(shape, START_US)
        const expected = arrivals.map(({ atUs, cost }) => {
          bucket.advance(atUs - bucket.nowUs)
          return (bucket.depart(cost, 1e15) as number) - START_US
        })
        expect(await slots(shape, arrivals)).toEqual(expected)
      }),
      { numRuns: 60 },
    )
  })

  test('a limit in the place of the rate holds jobs as long', async () => {
    await fc.assert(
      fc.asyncProperty(buckets, gaps, async ({ limit, burst }, all) => {
        const rate = { limit, period: 7000 }
        const bucket = new ReferenceBucket({ rate, burst }, START_US)
        const expected = arrivalsAfter(all).map(({ atUs, cost }) => {
          bucket.advance(atUs - bucket.nowUs)
          return (bucket.depart(cost, 1e15) as number) - START_US
        })
        const units = arrivalsAfter(all).map(({ cost, ...one }) => ({ ...one, cost: 1, costs: { tokens: cost } }))
        const found = await slots({ limits: [{ name: 'tokens', unit: 'tokens', rate, burst, shared: true }] }, units)
        // A limit has no last slot: a cheap job may stand at the slot of a dear one, and each ask rounds up.
        for (const [i, slot] of found.entries()) {
          expect(Math.abs((slot as number) - (expected[i] as number))).toBeLessThanOrEqual(all.length)
        }
      }),
      { numRuns: 20 },
    )
  })

  test('the same jobs find no place', async () => {
    await fc.assert(
      fc.asyncProperty(
        // Jobs whose slots are closer than half a horizon leave the queue together, some of them later.
        fc.integer({ min: 1, max: 39 }),
        fc.integer({ min: 1, max: 8 }),
        gaps,
        async (limit, capacity, all) => {
          const rate = { limit, period: 1000 }
          const arrivals = arrivalsAfter(all)
          const bucket = new ReferenceBucket({ rate, burst: 3 }, START_US)
          const granted: number[] = []
          const expected = arrivals.map(({ atUs, cost }) => {
            if (granted.filter((us) => us > atUs).length >= capacity) return undefined
            bucket.advance(atUs - bucket.nowUs)
            const slot = bucket.depart(cost, 1e15) as number
            // A job leaves the queue one horizon before it starts.
            granted.push(Math.max(atUs, slot - HORIZON_US))
            return slot - START_US
          })
          const outcome = await run({ rate, burst: 3, capacity }, arrivals)
          expect(startsOf(outcome)).toEqual(expected)
          expect([...outcome.fates].filter((fate) => fate === FATE.full).length).toBe(
            expected.filter((slot) => slot === undefined).length,
          )
          expect(outcome.longestQueue).toBeLessThanOrEqual(capacity)
        },
      ),
      { numRuns: 50 },
    )
  })

  test('waits are those of the queueing theory (M/D/1)', async () => {
    const arrivals = arrivalsOf({ parts: [{ rate: '5/s', forMs: 2 * 3_600_000 }], seed: 7 })
    const outcome = await run({ rate: '8/s' }, arrivals)
    const waits = waitsMs(outcome, arrivals)
    const mean = waits.reduce((sum, wait) => sum + wait, 0) / waits.length
    // Pollaczek and Khinchine: rho / (2 mu (1 - rho)) = 104.2 ms
    const rho = 5 / 8
    expect(mean).toBeGreaterThan((1000 * rho) / (2 * 8 * (1 - rho)) / 1.05)
    expect(mean).toBeLessThan(((1000 * rho) / (2 * 8 * (1 - rho))) * 1.05)
    expect(summarize(outcome, { rate: '8/s' }, arrivals).utilisation).toBeCloseTo(rho, 1)
  })
})

test('under a schedule the rate in force is drawn for a week, and utilisation is relative to what it allows', async () => {
  // Nights and weekends are closed, on the clock of Berlin: from 07:00 UTC, since it is winter.
  const schedule = [{ days: 'mon-fri', from: '08:00', to: '20:00', rate: '2/min' }, { rate: 0 as const }]
  const shape: Shape = { rate: { schedule, timeZone: 'Europe/Berlin' } }
  const arrivals = arrivalsOf({ parts: [{ rate: '1/min', forMs: 7 * 86_400_000 }], pattern: 'even' })
  const outcome = await run(shape, arrivals)
  const { rate } = seriesOf(outcome, arrivals, shape)
  const hour = 3600
  const steps = rate.slice(0, -1).map(([seconds, perSecond]) => [seconds / hour, Number((perSecond * 60).toFixed(6))])
  const day = (at: number) => [
    [24 * at + 7, 2],
    [24 * at + 19, 0],
  ]
  // The queue is empty on the tenth day.
  expect(steps).toEqual([[0, 0], ...[0, 1, 2, 3, 4, 7, 8, 9].flatMap(day).slice(0, -1)])
  // On the first day, whose night was shorter, 300 more could have left.
  expect(summarize(outcome, shape, arrivals).utilisation).toBeCloseTo(10_080 / 10_380, 4)
})

describe('what a queue does', () => {
  const together = (count: number, more: (i: number) => Partial<Arrival> = () => ({})) =>
    Array.from({ length: count }, (_, i) => arrival(0, more(i)))

  test('a job that leaves at the moment of an arrival makes room for it', async () => {
    const shape = { rate: '10/s', capacity: 1 }
    expect(await slots(shape, [...together(2), arrival(50_000)])).toEqual([0, 100_000, 200_000])
    expect(await slots(shape, [...together(2), arrival(49_999)])).toEqual([0, 100_000, undefined])
  })

  test('prioritized jobs leave behind those without, the most important first', async () => {
    const arrivals = together(4, (i) => ({ priority: [5, 0, 2, 0][i] as number }))
    // The first is alone when it comes; the bucket holds it back no more.
    expect(await slots({ rate: '10/s' }, arrivals)).toEqual([0, 100_000, 300_000, 200_000])
  })

  test('a job that has aged leaves before younger ones, in a group as well', async () => {
    const shape = { rate: '1/s', priorityAgeingMs: 1000 }
    const low = arrival(1, { priority: 2 })
    const arrivals = [arrival(0), low, arrival(100_000), arrival(1_500_000), arrival(2_500_000)]
    expect(await slots(shape, arrivals)).toEqual([0, 3_000_000, 1_000_000, 2_000_000, 4_000_000])
    const grouped = arrivals.map(({ priority, ...more }) => ({ ...more, priority: 0, group: { id: 'a', priority } }))
    expect(await slots({ ...shape, groups: {} }, grouped)).toEqual(await slots(shape, arrivals))
  })

  test('delayed jobs come once their delay is over, take places until then, and wait from there on', async () => {
    const shape = { rate: '10/s', capacity: 2 }
    const arrivals = [
      arrival(0, { delayMs: 1000 }),
      arrival(0, { delayMs: 500, priority: 1 }),
      arrival(10),
      arrival(600_000),
    ]
    const outcome = await run(shape, arrivals)
    // BullMQ counts whole ms.
    expect(startsOf(outcome)).toEqual([1_000_000 - 17, 500_000 - 17, undefined, 600_000])
    expect([...waitsMs(outcome, arrivals)]).toEqual([0, 0, 0])
  })

  test('jobs that could not start in time are refused', async () => {
    const outcome = await run({ rate: '10/s', maxWaitMs: 250 }, together(5))
    expect(startsOf(outcome)).toEqual([0, 100_000, 200_000, undefined, undefined])
    expect([...outcome.fates].slice(3)).toEqual([FATE.late, FATE.late])
  })

  test('overflow drops the oldest, or the least important', async () => {
    const oldest = await run({ rate: '1/s', capacity: 2, overflow: 'drop-oldest' }, together(5))
    expect([...oldest.fates]).toEqual([FATE.started, FATE.dropped, FATE.dropped, FATE.started, FATE.started])
    const shape = { rate: '1/s', capacity: 2, overflow: 'drop-lowest' } as const
    const lowest = await simulate(
      client,
      shape,
      together(4, (i) => ({ priority: [9, 9, 5, 1][i] as number })),
    )
    expect([...lowest.fates]).toEqual([FATE.started, FATE.dropped, FATE.started, FATE.started])
    expect(summarize(lowest, shape, together(4))).toMatchObject({ accepted: 4, refused: 0, dropped: 1, started: 3 })
  })

  test('a cost above the burst, and one above a limit, is refused', async () => {
    const limits = [{ name: 'tokens', unit: 'tokens', rate: '100/s', burst: 10 }]
    const arrivals = [
      arrival(0, { cost: 3 }),
      arrival(0, { costs: { tokens: 11 } }),
      arrival(0, { costs: { tokens: 10 } }),
    ]
    const outcome = await run({ rate: '10/s', burst: 2, limits }, arrivals)
    expect([...outcome.fates]).toEqual([FATE.tooDear, FATE.tooDear, FATE.started])
  })

  test.each([
    ['sliding-window-log', [0, 0, 1_000_000, 1_000_000, 2_000_000]],
    ['fixed-window', [0, 0, 999_983, 999_983, 1_999_983]],
  ] as const)('a limit of %s holds jobs back', async (algorithm, expected) => {
    const limits = [{ name: 'window', algorithm, rate: '2/s' }]
    expect(await slots({ limits }, together(5))).toEqual(expected)
  })

  test('places bind: jobs start as others end', async () => {
    const outcome = await run({}, together(5), { places: 2, jobMs: 1000 })
    expect(startsOf(outcome)).toEqual([0, 0, 1_000_000, 1_000_000, 2_000_000])
    const found = summarize(outcome, {}, together(5), { places: 2, jobMs: 1000 })
    expect(found).toMatchObject({
      placeBound: 3,
      placeUtilisation: 5 / 6,
      finishedAfterMs: 3000,
      utilisation: undefined,
    })
  })

  test('with enough places only the rate binds; a job that is held takes one', async () => {
    const arrivals = together(20)
    const enough = await run({ rate: '10/s' }, arrivals, { places: 3, jobMs: 200 })
    expect(enough.placeBound).toBe(0)
    expect(startsOf(enough).at(-1)).toBe(1_900_000)
    const few = await run({ rate: '10/s', concurrency: 2 }, arrivals, { jobMs: 200 })
    expect(few.placeBound).toBeGreaterThanOrEqual(9)
  })

  test('by keys, with the tiers of jobs', async () => {
    const limits = [{ name: 'rpm', by: 'model', rate: '1/s', tiers: { pro: { rate: '10/s' } } }]
    const of = (model: string, tier?: string) => arrival(0, { keys: { model }, ...(tier ? { tier } : {}) })
    const arrivals = [of('a'), of('a'), of('b', 'pro'), of('b', 'pro'), of('b', 'pro')]
    expect(await slots({ limits }, arrivals)).toEqual([0, 1_000_000, 0, 100_000, 200_000])
  })

  test('by keys, what a tier allows at once, and no job without the key is too dear', async () => {
    const limits = [{ name: 'tpm', by: 'model', rate: '1/s', burst: 2, tiers: { pro: { burst: 5 } } }]
    const of = (more: Partial<Arrival>) => arrival(0, { cost: 4, ...more })
    const keys = { model: 'a' }
    expect(await slots({ limits }, [of({ keys }), of({ keys, tier: 'pro' }), of({})])).toEqual([undefined, 0, 0])
  })

  test('a limit of concurrency lends places while jobs run', async () => {
    const limits = [{ name: 'calls', algorithm: 'concurrency', concurrency: 2, leaseMs: 1000 }] as const
    const found = await slots({ limits }, together(5), { jobMs: 3000 })
    for (const [i, after] of [0, 0, 3_000_000, 3_000_000, 6_000_000].entries()) {
      expect(found[i] as number).toBeGreaterThanOrEqual(after)
      expect(found[i] as number).toBeLessThanOrEqual(after + 60_000)
    }
  })
})

describe('groups', () => {
  const of = (afterUs: number, id: string, more: Partial<Arrival> = {}) => arrival(afterUs, { group: { id }, ...more })

  test('groups take turns, by weight and by priority inside a group', async () => {
    const shape = { rate: '10/s', groups: {} }
    const all = [
      of(0, 'a'),
      of(0, 'a'),
      of(0, 'a'),
      of(1, 'b'),
      arrival(1),
      of(1, 'b', { group: { id: 'b', priority: 0 } }),
    ]
    expect(await slots(shape, all)).toEqual([0, 100_000, 400_000, 200_000, 300_000, 500_000])
    const inside = [
      of(0, 'x'),
      of(0, 'a', { group: { id: 'a', priority: 2 } }),
      of(0, 'a', { group: { id: 'a', priority: 1 } }),
    ]
    expect(await slots(shape, inside)).toEqual([0, 200_000, 100_000])
  })

  test('the rate of a group holds that group alone', async () => {
    const shape = { rate: '100/s', groups: { rate: '1/s' } }
    const all = [of(0, 'a'), of(0, 'a'), of(0, 'a'), of(500_000, 'b'), of(600_000, 'b')]
    expect(await slots(shape, all)).toEqual([0, 1_000_000, 2_000_000, 500_000, 1_500_000])
  })

  test('at its concurrency a group waits for the end of one of its jobs', async () => {
    const shape = { groups: { concurrency: 1 } }
    const all = [of(0, 'a'), of(0, 'a'), of(10_000, 'b'), of(20_000, 'a')]
    expect(await slots(shape, all, { jobMs: 300 })).toEqual([0, 300_000, 10_000, 600_000])
    const { placeBound } = await run(shape, all, { jobMs: 300 })
    expect(placeBound).toBe(2)
  })

  test('in strict order, with a share and with keepFree a group waits as it does in Redis', async () => {
    const all = [of(0, 'a'), of(0, 'a'), of(0, 'a'), of(0, 'a'), of(10_000, 'b')]
    const found = (shape: Shape, more: SimulationOptions = {}) => slots(shape, all, { jobMs: 300, ...more })
    const strict = [0, 300_000, 600_000, 900_000, 10_000]
    expect(await found({ groups: { order: 'strict' } })).toEqual(strict)
    expect(await found({ groups: {} }, { setGroup: { a: { order: 'strict' } } })).toEqual(strict)
    const halves = [0, 0, 300_000, 300_000, 10_000]
    expect(await found({ concurrency: 4, groups: { concurrency: '50%' } })).toEqual(halves)
    // One job besides the first one of each group.
    expect(await found({ concurrency: 3, groups: { keepFree: 2 } })).toEqual(halves)
  })

  test('a full group refuses, and so does one whose turns come too late', async () => {
    const full = await run({ rate: '1/s', groups: { capacity: 1 } }, [of(0, 'a'), of(1, 'a'), of(2, 'a'), of(3, 'b')])
    expect([...full.fates]).toEqual([FATE.started, FATE.started, FATE.full, FATE.started])
    const shape = { rate: '1/s', maxWaitMs: 2500, groups: {} }
    const late = await run(shape, [of(0, 'a'), of(1, 'a'), of(2, 'a'), of(3, 'a'), of(4, 'b')])
    expect([...late.fates]).toEqual([FATE.started, FATE.started, FATE.started, FATE.late, FATE.started])
  })

  test('with overflow a new job replaces one of its own group', async () => {
    const shape = { rate: '1/s', capacity: 2, overflow: 'drop-oldest' as const, groups: {} }
    const found = await run(shape, [of(0, 'a'), of(1, 'a'), of(2, 'b'), of(3, 'a'), of(4, 'c'), of(5, 'b')])
    const { started, dropped, full } = FATE
    expect([...found.fates]).toEqual([started, dropped, dropped, started, full, started])
  })

  test('a delayed job comes into its group', async () => {
    const all = [of(0, 'a'), of(0, 'a'), of(0, 'b', { delayMs: 50 }), of(0, 'a')]
    const [first, second, delayed, last] = await slots({ rate: '10/s', groups: {} }, all)
    expect([first, second, delayed, last]).toEqual([0, 100_000, 200_000, 300_000])
  })

  test('what is set for a group holds for that one: rate, weight, concurrency, capacity, a pause', async () => {
    const two = [of(0, 'a'), of(0, 'a'), of(0, 'a'), of(1, 'b'), of(1, 'b'), of(1, 'b')]
    const fair = { rate: '10/s', groups: {} }
    const set = (a: GroupSetting, shape: Shape = fair, more: SimulationOptions = {}) =>
      slots(shape, two, { setGroup: { a }, ...more })
    expect(await set({ rate: '1/s' })).toEqual([0, 1_000_000, 2_000_000, 100_000, 200_000, 300_000])
    expect(await set({ rate: null }, { groups: { rate: '1/s' } })).toEqual([0, 0, 0, 1, 1_000_001, 2_000_001])
    expect(await set({ concurrency: 1 }, { groups: {} }, { jobMs: 500 })).toEqual([0, 500_000, 1_000_000, 1, 1, 1])
    expect(await set({ capacity: 1 })).toEqual([0, 100_000, undefined, 200_000, 300_000, 400_000])
    expect(await set({ paused: true })).toEqual([undefined, undefined, undefined, 1, 100_001, 200_001])
    const later = await set({ paused: true, ttlMs: 5000 })
    expect(later.slice(3)).toEqual([1, 100_001, 200_001])
    // A time of a group is in whole ms.
    const endUs = (Math.floor(START_US / 1000) + 5000) * 1000 - START_US
    expect(later.slice(0, 3)).toEqual([endUs, endUs + 100_000, endUs + 200_000])
    const heavy = [...two.slice(0, 3), of(0, 'a'), ...two.slice(3, 5)]
    const weighed = (weight: number) => slots(fair, heavy, { setGroup: { a: { weight } } })
    expect(await weighed(1)).toEqual([0, 100_000, 300_000, 500_000, 200_000, 400_000])
    expect(await weighed(2)).toEqual([0, 100_000, 300_000, 400_000, 200_000, 500_000])
  })

  test('without groups in the shape nothing can be set for one', async () => {
    const refused = run({ rate: '1/s' }, [arrival(0)], { setGroup: { a: { rate: '1/s' } } })
    await expect(refused).rejects.toThrow('setGroup needs a shape with groups')
  })

  test('without groups in the shape, or in mode off, they change nothing', async () => {
    const all = [of(0, 'a'), of(0, 'a'), of(1, 'b')]
    for (const shape of [{ rate: '10/s' }, { rate: '10/s', groups: {}, mode: 'off' as const }]) {
      const found = await slots(shape, all)
      expect(found.toSorted((one, other) => one! - other!)).toEqual(found)
    }
  })

  test('fairness: one line serves who comes first, groups serve all alike', async () => {
    const campaign = Array.from({ length: 300 }, () => of(0, 'large'))
    const others = Array.from({ length: 60 }, (_, i) => of(1_000_000 + i * 300_000, `small-${i % 6}`))
    const arrivals = [...campaign, ...others]
    const summaries = await Promise.all(
      [{ rate: '10/s' }, { rate: '10/s', groups: {} }].map(async (shape) =>
        summarize(await run(shape, arrivals), shape, arrivals),
      ),
    )
    const [line, fair] = summaries.map(({ groups }) => groups!)
    expect(line).toMatchObject({ count: 7, fairness: 1 / 7 })
    expect(fair!.fairness).toBeGreaterThan(0.99)
    expect(fair!.longestWait).toMatchObject({ group: 'large' })
    expect(fair!.medianLongestWaitMs).toBeLessThan(1000)
    expect(line!.medianLongestWaitMs).toBeGreaterThan(10_000)
    expect(summaries.map(({ finishedAfterMs }) => finishedAfterMs)[0]).toBe(summaries[1]!.finishedAfterMs)
  })

  test.each([
    [[5, 1, 10], 6, [2.5, 1, 2.5]],
    [[1, 1], 10, [1, 1]],
    [[4, 4], 2, [1, 1]],
  ])('max-min sharing of %j out of %d is %j', (asked, total, shares) => {
    expect(maxMinShares(asked, total)).toEqual(shares)
  })
})
