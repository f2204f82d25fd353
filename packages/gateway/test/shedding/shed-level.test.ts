import { expect, test } from 'vitest'
import { ShedLevel } from '../../src/shedding/shed-level.ts'
import { cohortOf } from '../../src/shedding/shedder.ts'
import { callers } from './support.ts'

const HOUR_MS = 3_600_000

function levels(level: ShedLevel, pressures: readonly number[], intervals = 1): number[] {
  return pressures.map((pressure) => {
    level.adjust(pressure, intervals)
    return Number(level.level.toFixed(6))
  })
}

/** In so short an interval the steps alone decide. */
const SHORT_MS = 1

test('it rises by one step above 1, falls by a fifth of it below 0.8, and stays in between', () => {
  const level = new ShedLevel(3, 2, SHORT_MS)
  expect(levels(level, [1.01, 100, 1, 0.9, 0.8, 0.79, 0, 2])).toEqual([0.05, 0.1, 0.1, 0.1, 0.1, 0.09, 0.08, 0.13])
})

test('it stays between nothing and all classes that may be turned away', () => {
  const level = new ShedLevel(3, 2, SHORT_MS, { shedStep: 0.75, restoreStep: 0.5 })
  expect(levels(level, [0, 2, 2, 2, 2, 0, 0, 0, 0, 0])).toEqual([0, 0.75, 1.5, 2, 2, 1.5, 1, 0.5, 0, 0])
})

test('after intervals without requests it falls by a step for each, and rises by one', () => {
  const level = new ShedLevel(3, 2, SHORT_MS, { shedStep: 1, restoreStep: 0.1 })
  expect([...levels(level, [2, 2], 50), ...levels(level, [0], 3), ...levels(level, [0], 1e9)]).toEqual([1, 2, 1.7, 0])
})

test.each([
  [0, [0, 0, 0]],
  [0.3, [0, 0, 0.3]],
  [1, [0, 0, 1]],
  [1.3, [0, 0.3, 1]],
  [2, [0, 1, 1]],
])('at level %s the shares of the classes are %j', (shedStep, shares) => {
  const level = new ShedLevel(3, 2, SHORT_MS, { shedStep: shedStep || 1 })
  if (shedStep > 0) level.adjust(2, 1)
  expect([0, 1, 2].map((rank) => Number(level.shareOf(rank).toFixed(6)))).toEqual(shares)
})

test('how many intervals it takes at least until a caller is let in', () => {
  const level = new ShedLevel(3, 2, SHORT_MS, { shedStep: 1.25, restoreStep: 0.125 })
  level.adjust(2, 1)
  expect(level.intervalsUntil(2, 0.5)).toBe(6)
  expect(level.intervalsUntil(1, 0)).toBe(2)
  for (let i = 0; i < 6; i++) level.adjust(0, 1)
  expect(level.shareOf(2)).toBe(0.5)
})

test('callers are spread evenly, stand still for an hour, and are shuffled after it', () => {
  const places = callers(2000).map((key) => cohortOf(key, 0))
  for (let tenth = 0; tenth < 10; tenth++) {
    const share = places.filter((place) => Math.floor(place * 10) === tenth).length / places.length
    expect(Math.abs(share - 0.1)).toBeLessThan(0.03)
  }
  expect(callers(50).map((key) => cohortOf(key, HOUR_MS - 1))).toEqual(places.slice(0, 50))
  const shuffled = callers(2000).filter((key, i) => cohortOf(key, HOUR_MS) < 0.5 !== (places[i] as number) < 0.5)
  expect(Math.abs(shuffled.length / 2000 - 0.5)).toBeLessThan(0.05)
})

test('a caller that nobody knows is drawn anew each time', () => {
  const places = Array.from({ length: 20 }, () => cohortOf(undefined, 0))
  expect(new Set(places).size).toBe(20)
  expect(places.every((place) => place >= 0 && place < 1)).toBe(true)
})

test('it rises within two seconds to what the pressure calls for, and from there by steps', () => {
  const level = new ShedLevel(3, 2, 500)
  const levels = Array.from({ length: 7 }, () => {
    level.adjust(1.5, 1)
    return Number(level.level.toFixed(6))
  })
  expect(levels).toEqual([0.25, 0.5, 0.75, 1, 1.05, 1.1, 1.15])
})
