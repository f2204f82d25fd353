import { expect, test } from 'vitest'
import { mostEnded, mostGivenBack, mostStarted } from '../../src/departure/jobs-per-script.ts'
import type { Shape } from '../../src/index.ts'
import { encodeShape } from '../../src/shape/shape.ts'
import { StoredShape } from '../../src/shape/stored.ts'

const LIMITS = [{ name: 'day', rate: '9/day' }] as const
const PER_GROUP = [{ name: 'day', rate: '9/day', by: 'group' }] as const

function stored(shape: Shape): StoredShape {
  const fields = Object.entries(encodeShape(shape).fields).map(([field, value]) => [field, String(value)])
  return new StoredShape({ born: '1', rev: '1', ...Object.fromEntries(fields) })
}

test.each<[what: string, shape: Shape | undefined, started: number, ended: number, back: number]>([
  ['no shape', undefined, 120, 50, 120],
  ['a rate', { rate: '5/s' }, 120, 50, 120],
  ['limits', { limits: LIMITS }, 46, 33, 120],
  ['ageing', { priorityAgeingMs: 1000 }, 40, 30, 120],
  ['groups', { groups: {} }, 38, 29, 50],
  ['groups with a limit for each', { groups: {}, limits: PER_GROUP }, 38, 29, 50],
  ['groups and limits', { groups: {}, limits: LIMITS }, 28, 22, 40],
  ['groups that age', { groups: {}, priorityAgeingMs: 1000 }, 25, 21, 40],
  ['all of them', { groups: {}, limits: LIMITS, priorityAgeingMs: 1000 }, 20, 17, 33],
])('a script handles fewer jobs, the more each takes: with %s', (_what, shape, started, ended, back) => {
  const given = shape && stored(shape)
  expect([mostStarted(given), mostEnded(given), mostGivenBack(given)]).toEqual([started, ended, back])
})
