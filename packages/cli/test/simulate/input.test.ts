import { describe, expect, test } from 'vitest'
import { InvalidInputError, InvalidRateError, InvalidShapeError } from '../../../../src/errors.ts'
import { InvalidArrivalsError } from '../../src/simulate/arrival.ts'
import { arrivalsOf, type LoadOptions } from '../../src/simulate/load.ts'
import { readArrivals } from '../../src/simulate/read-arrivals.ts'
import { parseShapeText } from '../../src/simulate/shape-text.ts'

describe('arrivals of a file', () => {
  test('lines of a recording, plain times, and both in any order', async () => {
    const lines = [
      '1764000000500',
      '',
      '2025-11-24T16:00:00.25Z',
      '{"at":1764000000000.5,"cost":2,"costs":{"t":3},"priority":4,"delay":5}',
    ]
    expect(await readArrivals(lines)).toEqual([
      { atUs: 1_764_000_000_000_500, cost: 2, costs: { t: 3 }, priority: 4, delayMs: 5 },
      { atUs: 1_764_000_000_250_000, cost: 1, priority: 0, delayMs: 0 },
      { atUs: 1_764_000_000_500_000, cost: 1, priority: 0, delayMs: 0 },
    ])
  })

  test('groups, with and without a priority', async () => {
    const lines = ['{"at":1,"group":"a"}', '{"at":2,"group":{"id":"b","priority":3}}']
    expect((await readArrivals(lines)).map(({ group }) => group)).toEqual([{ id: 'a' }, { id: 'b', priority: 3 }])
  })

  test('keys, as a queue stores them', async () => {
    const [arrival] = await readArrivals(['{"at":1,"keys":{"model":"large","tier":3}}'])
    expect(arrival?.keys).toEqual({ model: 'large', tier: '3' })
  })

  test('the tier', async () => {
    const arrivals = await readArrivals(['{"at":1,"tier":"pro"}', '{"at":2}'])
    expect(arrivals.map(({ tier }) => tier)).toEqual(['pro', undefined])
  })

  test.each([
    [['{"at":1,"keys":{"group":"a"}}'], 'line 1: a name in keys must be'],
    [['{"at":1,"tier":""}'], 'line 1: the tier of a job must be a name'],
    [['{"at":1,"group":""}'], 'line 1: the id of a group must be a string'],
    [['{"at":1,"group":null}'], 'line 1: the id of a group must be a string'],
    [['{"at":1,"group":{"id":"a","priority":-1}}'], 'line 1: group.priority must be a whole number'],
    [['1764000000500', 'yesterday'], 'line 2: expected a time (ms since 1970 or ISO 8601), or JSON'],
    [['-5'], 'line 1: expected a time'],
    [['9e300'], 'line 1: expected a time'],
    [['{"cost":1}'], 'line 1: expected a time'],
    [['{"at":1,'], 'line 1: expected a time'],
    [['{"at":1,"cost":0}'], 'line 1: cost must be a number > 0'],
    [['{"at":1,"costs":[1]}'], 'line 1: costs must be an object'],
    [['{"at":1,"priority":-1}'], 'line 1: priority must be a whole number from 0'],
    [['{"at":1,"delay":"soon"}'], 'line 1: delay must be a whole number from 0'],
    [['', ' '], 'expected arrivals, one a line'],
  ])('%j: %s', async (lines, message) => {
    const error = await readArrivals(lines).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(InvalidArrivalsError)
    expect((error as Error).message).toContain(message)
  })
})

describe('a described load', () => {
  const load = (options: Partial<LoadOptions> = {}) =>
    arrivalsOf({ parts: [{ rate: '50/s', forMs: 60_000 }], ...options })

  test('even: one interval apart', () => {
    const some = load({ pattern: 'even' })
    expect(some.length).toBe(3000)
    expect(some.every(({ atUs }, i) => i === 0 || atUs - some[i - 1]!.atUs === 20_000)).toBe(true)
    expect(new Date(some[0]!.atUs / 1000).toISOString()).toBe('2024-01-01T00:00:00.000Z')
  })

  test.each(['poisson', 'bursty'] as const)(
    '%s: the same in the mean, in order, and again by the same seed',
    (pattern) => {
      const some = load({ pattern, seed: 4 })
      expect(some.length).toBeGreaterThan(2600)
      expect(some.length).toBeLessThan(3400)
      expect(some.every(({ atUs }, i) => i === 0 || atUs >= some[i - 1]!.atUs)).toBe(true)
      expect(load({ pattern, seed: 4 })).toEqual(some)
      expect(load({ pattern, seed: 5 })).not.toEqual(some)
    },
  )

  test('poisson gaps are spread as an exponential, those of groups are not', () => {
    const alone = (pattern: 'poisson' | 'bursty') => {
      const some = load({ pattern })
      const gaps = some.slice(1).map(({ atUs }, i) => atUs - some[i]!.atUs)
      return gaps.filter((gap) => gap > 20_000).length / gaps.length
    }
    expect(alone('poisson')).toBeCloseTo(Math.exp(-1), 1)
    expect(alone('bursty')).toBeLessThan(0.15)
  })

  test('groups: few have most of the jobs, and the times are the same without them', () => {
    const parts = [{ rate: '100/s', forMs: 60_000 }]
    const some = load({ parts, groups: 10 })
    const counts = new Map<string, number>()
    for (const { group } of some) counts.set(group!.id, (counts.get(group!.id) ?? 0) + 1)
    const harmonic = Array.from({ length: 10 }, (_, i) => 1 / (i + 1)).reduce((sum, part) => sum + part)
    expect(counts.size).toBe(10)
    for (const rank of [1, 2, 10]) {
      const share = counts.get(`group-${rank}`)! / some.length
      expect(Math.abs(share * rank * harmonic - 1)).toBeLessThan(0.15)
    }
    expect(load({ parts }).map(({ atUs }) => atUs)).toEqual(some.map(({ atUs }) => atUs))
  })

  test('parts follow on each other, costs lie in their range', () => {
    const parts = [
      { rate: '10/s', forMs: 1000 },
      { rate: '100/s', forMs: 1000 },
    ]
    const some = load({ parts, pattern: 'even', cost: [2, 4] })
    expect(some.length).toBe(110)
    expect(some[10]!.atUs - some[0]!.atUs).toBe(1_000_000)
    expect(new Set(some.map(({ cost }) => cost))).toEqual(new Set([2, 3, 4]))
  })

  test.each([
    [{ parts: [] }, "expected a load such as '5/s for 1d'"],
    [{ parts: [{ rate: '1/h', forMs: 1 }], seed: 1 }, 'over before its first arrival'],
    [{ parts: [{ rate: '1000000/s', forMs: 86_400_000 }] }, 'at most 20000000'],
    [{ cost: 0 }, 'the cost must be a number > 0'],
    [{ cost: [3, 2] }, 'the cost must be a number > 0'],
    [{ cost: [0.5, 2] }, 'a range of whole ones'],
    [{ groupSize: 0 }, 'the size of groups'],
    [{ groups: 0.5 }, 'the number of groups must be a whole number'],
    [{ seed: 0.5 }, 'the seed must be a whole number'],
  ] satisfies [Partial<LoadOptions>, string][])('%j is refused: %s', (options, message) => {
    expect(() => load(options)).toThrow(InvalidArrivalsError)
    expect(() => load(options)).toThrow(message)
  })

  test('a rate that is none is refused', () => {
    expect(() => load({ parts: [{ rate: 'fast', forMs: 1 }] })).toThrow(InvalidRateError)
  })
})

describe('a shape as text', () => {
  test.each([
    ['rate=8/s,burst=10,capacity=1000', { rate: '8/s', burst: 10, capacity: 1000 }],
    [' rate = 100/15min , overflow=drop-oldest', { rate: '100/15min', overflow: 'drop-oldest' }],
    ['{"rate":"8/s","limits":[{"name":"a","rate":"1/s"}]}', { rate: '8/s', limits: [{ name: 'a', rate: '1/s' }] }],
  ])('%s', (text, shape) => {
    expect(parseShapeText(text)).toEqual({ shape, setGroup: {} })
  })

  test('with what is set for single groups', () => {
    const setGroup = { 'a:b': { rate: '1/s', weight: 4, ttlMs: 1000 }, c: { capacity: null, paused: true } }
    const text = JSON.stringify({ rate: '8/s', groups: {}, setGroup })
    expect(parseShapeText(text)).toEqual({ shape: { rate: '8/s', groups: {} }, setGroup })
  })

  test.each([
    ['[]', 'setGroup must be an object'],
    ['{"a":null}', 'setGroup needs at least one of rate'],
    ['{"a":{"speed":1}}', "setGroup has no field 'speed'"],
    ['{"a":{"weight":0}}', 'setGroup.weight must be a number from'],
    ['{"a":{"ttlMs":5}}', 'setGroup needs at least one of rate'],
    ['{"a":{"paused":true,"ttlMs":0}}', 'setGroup.ttlMs must be a number > 0'],
    ['{"a":{"paused":1}}', 'setGroup.paused must be true'],
    ['{"":{"paused":true}}', 'the id of a group must be a string'],
  ])('setGroup %s is refused: %s', (setGroup, message) => {
    const parse = () => parseShapeText(`{"groups":{},"setGroup":${setGroup}}`)
    expect(parse).toThrow(InvalidInputError)
    expect(parse).toThrow(message)
  })

  test.each(['', 'rate', 'rate=1/s,rate=2/s', 'rate=1/s,', '{"rate":', 'speed=1/s', 'burst=0'])(
    '%j is refused',
    (text) => {
      expect(() => parseShapeText(text)).toThrow(InvalidShapeError)
    },
  )
})
