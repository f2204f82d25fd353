import { describe, expect, test } from 'vitest'
import {
  InvalidInputError,
  InvalidRateError,
  InvalidShapeError,
  type Shape,
  type ShapeOverride,
} from '../../src/index.ts'
import { encodeGroupOverride, encodeGroups } from '../../src/shape/groups.ts'
import { encodeOverride, encodeShape, SETTABLE_FIELDS } from '../../src/shape/shape.ts'
import { rejection } from '../queue/support.ts'
import { useRedis } from '../support/redis.ts'
import { Workshop } from '../worker/support.ts'

const redis = useRedis(import.meta.url)
const shop = new Workshop(redis)

describe('a shape is taken', () => {
  test.each<[Shape, object]>([
    [{}, {}],
    [{ rate: '50/s' }, { rate: [50, 1000] }],
    [{ rate: { limit: 3, period: 60_000 } }, { rate: [3, 60_000] }],
    [
      { burst: 1, capacity: 1, concurrency: 1 },
      { burst: 1, capacity: 1, concurrency: 1 },
    ],
    [{ capacityHorizonMs: 0 }, { capacityHorizonMs: 0 }],
    [
      { maxWaitMs: 0, priorityAgeingMs: 1 },
      { maxWaitMs: 0, priorityAgeingMs: 1 },
    ],
    [
      { overflow: 'drop-lowest', overflowTo: 'dead' },
      { overflow: 'drop-lowest', overflowTo: 'dead' },
    ],
    [{ durability: { replicas: 2, timeoutMs: 500 } }, { durability: '2 500' }],
    [{ durability: { replicas: 1 } }, { durability: '1 1000' }],
    [{ durability: { replicas: 1, timeoutMs: 5000 } }, { durability: '1 5000' }],
    [{ reservedPlaces: { 10: 5, 1: 50 } }, { reservedPlaces: '55 1:50 10:5' }],
    [
      { capacity: 10, reservedPlaces: { 0: 9 } },
      { capacity: 10, reservedPlaces: '9 0:9' },
    ],
    [
      { maxLatenessMs: 1, horizonMs: 12.5 },
      { maxLatenessMs: 1, horizonMs: 12.5 },
    ],
    [
      { mode: 'shadow', onStateLoss: 'burst' },
      { mode: 'shadow', onStateLoss: 'burst' },
    ],
    [{ rate: undefined, burst: 2 } as unknown as Shape, { burst: 2 }],
  ])('%j', (shape, fields) => {
    expect(encodeShape(shape)).toEqual({ fields, version: undefined })
  })

  test('with a version', () => {
    expect(encodeShape({ version: 7, burst: 2 })).toEqual({ fields: { burst: 2 }, version: 7 })
  })
})

const WHOLE = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '5', true, [], {}, 2 ** 53]
const WRONG: readonly (readonly [field: string, expected: string, values: readonly unknown[]])[] = [
  ['burst', 'a whole number >= 1', WHOLE],
  ['capacity', 'a whole number >= 1', WHOLE],
  ['concurrency', 'a whole number >= 1', WHOLE],
  ['priorityAgeingMs', 'a whole number >= 1', WHOLE],
  ['capacityHorizonMs', 'a whole number >= 0', [-1, 0.5, Number.NaN, '0']],
  ['maxLatenessMs', 'a number >= 1', [0, 0.5, -1, Number.NaN, Number.POSITIVE_INFINITY, '100']],
  ['horizonMs', 'a number >= 1', [0, -50, Number.POSITIVE_INFINITY, '50']],
  ['maxWaitMs', 'a whole number >= 0', [-1, 0.5, Number.NaN, '0']],
  ['onClosed', "'wait' or 'refuse'", ['reject', true]],
  ['overflow', "'reject', 'drop-oldest' or 'drop-lowest'", ['drop', '', 1, true]],
  ['overflowTo', "the name of a queue, without ':'", ['', 'a:b', 1, {}]],
  [
    'durability',
    '{ replicas: a whole number >= 1, timeoutMs: a whole number from 1 to 5000 }, the latter optional: a connection ' +
      'that waits for longer could be taken for silent, and replaced',
    [
      ...[1, 'one', true, [1], {}, { replicas: 0 }, { replicas: 1, timeout: 5 }],
      ...[0, 1.5, 5001, 8000].map((timeoutMs) => ({ replicas: 1, timeoutMs })),
    ],
  ],
  [
    'reservedPlaces',
    'an object of priorities (0 to 2097151) and whole numbers of places >= 1, such as { 1: 50 }',
    [
      0,
      50,
      '50',
      [],
      [5],
      {},
      { 1: 0 },
      { 1: 1.5 },
      { 1: '5' },
      { '-1': 5 },
      { 1.5: 5 },
      { 2097152: 5 },
      { urgent: 5 },
    ],
  ],
  ['mode', "'enforce', 'shadow' or 'off'", ['Enforce', 'on', '', 1, true]],
  ['onStateLoss', "'hold' or 'burst'", ['drop', 1]],
  ['audit', 'a whole number from 1 to 1000000, or true', [0, 1.5, false, '10', 1_000_001, 1e15]],
]
const CASES = WRONG.flatMap(([field, expected, values]) => values.map((value) => [field, value, expected] as const))

describe('a wrong field is refused with its name, what was expected and what came', () => {
  test.each(CASES)('%s: %j', (field, value, expected) => {
    const shape = { [field]: value } as Shape
    expect(() => encodeShape(shape)).toThrow(InvalidShapeError)
    const came = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? String(value))
    expect(() => encodeShape(shape)).toThrow(`shape.${field} must be ${expected}; got ${came}`)
  })

  test.each(['capacity', 'mode', 'onStateLoss', 'burst'])('%s: null, where code declares', (field) => {
    expect(() => encodeShape({ [field]: null } as unknown as Shape)).toThrow(`shape.${field} must be`)
  })

  test('rate', () => {
    expect(() => encodeShape({ rate: '50' })).toThrow(InvalidRateError)
    expect(() => encodeOverride({ rate: 'fast' })).toThrow(InvalidRateError)
  })

  test.each([1.5, '2', null])('version: %j', (version) => {
    expect(() => encodeShape({ version } as Shape)).toThrow(`shape.version must be a whole number; got ${version}`)
  })

  test('a field that does not exist is told those that do', () => {
    const shape = { ratee: '50/s' } as Shape
    expect(() => encodeShape(shape)).toThrow(InvalidShapeError)
    expect(() => encodeShape(shape)).toThrow(
      "shape has no field 'ratee'; it has rate, limits, reservedPlaces, groups, durability, rampUp, burst, capacity, " +
        'capacityHorizonMs, overflow, overflowTo, maxWaitMs, onClosed, concurrency, priorityAgeingMs, mode, maxLatenessMs, horizonMs, onStateLoss, ' +
        'audit, version',
    )
    expect(() => encodeOverride({ constructor: 5 } as ShapeOverride)).toThrow("shape has no field 'constructor'")
  })

  test.each([null, 'fast', 5])('%j is no shape', (shape) => {
    expect(() => encodeShape(shape as unknown as Shape)).toThrow(InvalidShapeError)
    expect(() => encodeShape(shape as unknown as Shape)).toThrow(`shape must be an object; got ${shape}`)
  })
})

const WEIGHT = [0, 0.0009, 1000.5, Number.NaN, '1', true]
const WRONG_OF_GROUPS: typeof WRONG = [
  ['burst', 'a whole number >= 1', WHOLE],
  ['capacity', 'a whole number >= 1', WHOLE],
  [
    'concurrency',
    "a whole number >= 1, or a share of the queue's concurrency such as '25%'",
    [...WHOLE, '0%', '100.1%', '-1%', '1.23456%', '25 %', ['25%']],
  ],
  ['weight', 'a number from 0.001 to 1000', WEIGHT],
]
const WRONG_OF_DEFAULTS: typeof WRONG = [
  ['share', '{ ofFree: a number from 0.001 to 1000 }', [1, 'all', {}, [1], ...WEIGHT.map((ofFree) => ({ ofFree }))]],
  ['share', '{ ofFree: a number from 0.001 to 1000 }', [{ ofFree: 1, most: 5 }]],
  ['keepFree', 'a whole number >= 1', WHOLE],
  ['ungrouped', "'fair' or 'first'", ['last', true]],
]

describe('the fields of groups', () => {
  test.each([
    { rate: '5/s', burst: 1, concurrency: 1, capacity: 1, weight: 0.001 },
    { concurrency: '100%', weight: 1000, order: undefined },
    { concurrency: '0.5%', weight: 1, order: 'strict', onFailed: 'hold' },
  ] as const)('%j are taken', (given) => {
    const { rate, ...fields } = { rate: undefined, ...given }
    const stored = JSON.parse(JSON.stringify({ ...fields, ...(rate && { rate: [5, 1000] }) })) as object
    expect(encodeGroupOverride(given)).toEqual(stored)
    if (fields.order === 'strict') return
    expect(JSON.parse(encodeGroups({ ...given, share: { ofFree: 1000 } }))).toEqual({
      ...stored,
      share: { ofFree: 1000 },
    })
    expect(JSON.parse(encodeGroups({ ...given, share: { ofFree: 0.001 } }))).toMatchObject({ share: { ofFree: 0.001 } })
  })

  test.each(WRONG_OF_GROUPS)('%s: others are refused, as a default and of one group', (field, expected, values) => {
    for (const value of values) {
      const groups = { [field]: value }
      expect(() => encodeGroupOverride(groups)).toThrow(`setGroup.${field} must be ${expected}; got`)
      expect(() => encodeGroups(groups)).toThrow(InvalidShapeError)
      expect(() => encodeGroups(groups)).toThrow(`shape.groups.${field} must be ${expected}; got`)
    }
  })

  test.each(WRONG_OF_DEFAULTS)('%s: others are refused, and of one group all are', (field, expected, values) => {
    for (const value of values) {
      expect(() => encodeGroups({ [field]: value })).toThrow(`shape.groups.${field} must be ${expected}; got`)
      expect(() => encodeGroupOverride({ [field]: value })).toThrow(
        `setGroup has no field '${field}'; it has rate, burst`,
      )
    }
  })

  test('null is "no limit" of one group, but no default', () => {
    expect(encodeGroupOverride({ rate: null, weight: null })).toEqual({ rate: null, weight: null })
    expect(() => encodeGroups({ weight: null })).toThrow('shape.groups.weight must not be null; leave it out')
  })

  test.each([null, undefined, 5, 'a', []])('%j has none', (given) => {
    const came = JSON.stringify(given) ?? 'undefined'
    expect(() => encodeGroups(given)).toThrow(`shape.groups must be an object; got ${came}`)
    expect(() => encodeGroupOverride(given)).toThrow(`setGroup must be an object; got ${came}`)
  })

  test('none of them changes nothing of a group', () => {
    expect(() => encodeGroupOverride({})).toThrow('setGroup needs at least one of rate, burst, concurrency')
  })
})

describe('a change at run time', () => {
  test('takes values and "no limit"', () => {
    expect(encodeOverride({ rate: null, capacity: 5 })).toEqual({ rate: null, capacity: 5 })
  })

  test.each(['horizonMs', 'onStateLoss', 'version'])('can not touch %s', (field) => {
    expect(() => encodeOverride({ [field]: 1 } as ShapeOverride)).toThrow(
      `shape.${field} can only be declared, not set at run time`,
    )
    expect(SETTABLE_FIELDS).not.toContain(field)
  })

  test('takes no groups away from a limit per group that it sets, which may be set before there are any', () => {
    const limits = [{ name: 'tenant', by: 'group', rate: '5/s' }] as const
    expect(() => encodeOverride({ groups: null, limits })).toThrow(
      'limit "tenant" is per group, and needs shape.groups ({} is enough); got none',
    )
    expect(Object.keys(encodeOverride({ limits }))).toEqual(['limits'])
    expect(Object.keys(encodeOverride({ groups: null, limits: [{ name: 'hour', rate: '5/h' }] }))).toHaveLength(2)
    expect(encodeOverride({ groups: null, limits: null })).toEqual({ groups: null, limits: null })
  })

  test.each([{}, { rate: undefined } as unknown as ShapeOverride])('%j changes nothing and is refused', (override) => {
    expect(() => encodeOverride(override)).toThrow(
      `setShape needs at least one of ${SETTABLE_FIELDS.join(', ')}; got none`,
    )
  })

  test.each([null, undefined, 'fast', 5])('%j is no change', async (override) => {
    const error = await rejection(shop.queue().setShape(override as never, { by: 'test', reason: 'test' }))
    expect(error).toBeInstanceOf(InvalidShapeError)
    expect(error.message).toBe(`setShape needs an object; got ${override}`)
  })

  test.each([[undefined], [{}], [{ by: 'me' }], [{ reason: 'so' }], [{ by: '', reason: 'so' }]])(
    'by %j names nobody or no reason',
    async (change) => {
      const error = await rejection(shop.queue().setShape({ burst: 2 }, change as never))
      expect(error).toBeInstanceOf(InvalidInputError)
      expect(error.message).toContain('setShape needs { by, reason }')
    },
  )

  test.each([0, -1, Number.NaN, Number.POSITIVE_INFINITY, '5'])('can not last %s ms', async (ttlMs) => {
    const error = await rejection(shop.queue().setShape({ burst: 2 }, { by: 'a', reason: 'b', ttlMs: ttlMs as number }))
    expect(error).toBeInstanceOf(InvalidInputError)
    expect(error.message).toBe(`ttlMs must be a number of ms > 0; got ${ttlMs}`)
    const queue = shop.queue({ groups: {} })
    const change = { by: 'a', reason: 'b', ttlMs: ttlMs as number }
    for (const set of [queue.setGroup('a', { weight: 2 }, change), queue.pauseGroup('a', change)]) {
      expect((await rejection(set)).message).toBe(error.message)
    }
  })
})

test('a queue and a worker refuse a wrong shape when they are made, before they connect', () => {
  expect(() => shop.queue({ rate: 'fast' })).toThrow(InvalidRateError)
  expect(() => shop.queue({ capacity: 0 })).toThrow(InvalidShapeError)
  expect(() => shop.worker({ name: 'w' }, null, { shape: { burst: 0 } })).toThrow(InvalidShapeError)
})
