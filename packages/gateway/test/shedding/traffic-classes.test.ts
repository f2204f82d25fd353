import { expect, test } from 'vitest'
import { InvalidInputError } from '../../../../src/errors.ts'
import { type TrafficClass, TrafficClasses } from '../../src/shedding/traffic-classes.ts'
import { of, requestOf } from './support.ts'

const STRIPE: TrafficClass[] = [
  { name: 'critical', reserved: 0.2 },
  { name: 'post', reserved: 0.1 },
  { name: 'get' },
  { name: 'test' },
]

test.each<[string, readonly TrafficClass[] | undefined, number, number[]]>([
  ['the default ones', undefined, 100, [100, 80, 60]],
  ['sums of decimal shares', undefined, 10, [10, 8, 6]],
  ['reserved places are rounded up', undefined, 4, [4, 3, 2]],
  ['every class has a place', undefined, 1, [1, 1, 1]],
  ['four', STRIPE, 1000, [1000, 800, 700, 700]],
  ['one', [{ name: 'all' }], 7, [7]],
  ['all is reserved', [{ name: 'a', reserved: 0.5 }, { name: 'b', reserved: 0.5 }, { name: 'c' }], 10, [10, 5, 1]],
])('room: %s', (_name, classes, places, rooms) => {
  const sorted = new TrafficClasses(classes)
  expect(sorted.names.map((_, rank) => sorted.roomOf(rank, places))).toEqual(rooms)
})

test.each<[string, readonly TrafficClass[] | undefined, string | undefined, string]>([
  ['its own', undefined, 'sheddable', 'sheddable'],
  ['none', undefined, undefined, 'default'],
  ['one that there is not', undefined, 'vip', 'default'],
  ['none, and there is no default', STRIPE, undefined, 'test'],
  ['the name of a property of every object', STRIPE, 'constructor', 'test'],
])('the class of a request: %s', (_name, classes, trafficClass, expected) => {
  const sorted = new TrafficClasses(classes)
  const request = trafficClass === undefined ? requestOf() : of(trafficClass)
  expect(sorted.names[sorted.rankOf(request)]).toBe(expected)
})

test('classify says which class it is, whatever the identity says', () => {
  const sorted = new TrafficClasses(STRIPE, ({ method }) => method.toLowerCase())
  expect(sorted.names[sorted.rankOf(of('critical', 'joe', { method: 'GET' }))]).toBe('get')
})

test('the first of several classes is critical, and only it', () => {
  const ranks = (sorted: TrafficClasses) => sorted.names.map((_, rank) => sorted.isCritical(rank))
  expect(ranks(new TrafficClasses())).toEqual([true, false, false])
  expect(ranks(new TrafficClasses([{ name: 'all' }]))).toEqual([false])
  expect([new TrafficClasses().sheddable, new TrafficClasses([{ name: 'all' }]).sheddable]).toEqual([2, 1])
})

test.each<[TrafficClass[], string]>([
  [[], 'classes need distinct names; got []'],
  [[{ name: '' }], 'classes need distinct names'],
  [[{ name: 'a' }, { name: 'a' }], 'classes need distinct names'],
  [[{ name: 'a', reserved: 1 }], 'reserved must be a share, 0 or more and below 1; got {"name":"a","reserved":1}'],
  [[{ name: 'a', reserved: Number.NaN }], 'reserved must be a share'],
  [
    [
      { name: 'a', reserved: 0.6 },
      { name: 'b', reserved: 0.6 },
    ],
    'the reserved shares must not exceed 1; got 1.2',
  ],
])('refused: %j', (classes, message) => {
  expect(() => new TrafficClasses(classes)).toThrow(InvalidInputError)
  expect(() => new TrafficClasses(classes)).toThrow(message)
})
