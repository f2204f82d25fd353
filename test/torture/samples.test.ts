import { expect, test } from 'vitest'
import { growthsOf } from './samples.ts'

const MB = 1024 * 1024

/** Samples of a process, and what else is in the files. */
const linesOf = (held: (i: number) => readonly [heap: number, timers: number, handles: number]) => [
  'ended a',
  ...Array.from({ length: 60 }, (_, i) => ['sample', 7, ...held(i)].join(' ')),
]

test.each<[string, (i: number) => readonly [number, number, number], boolean]>([
  ['what goes up and down is flat', (i) => [20 * MB + (i % 5) * MB, 10 + (i % 30), 6 + (i % 3)], true],
  ['what grows only while it warms up is flat', (i) => [Math.min(i, 15) * MB, Math.min(i, 15), Math.min(i, 15)], true],
  ['memory that grows by 0.3 MB each time is not', (i) => [20 * MB + i * 0.3 * MB, 10, 6], false],
  ['timers that are left are not', (i) => [20 * MB, 10 + 2 * i, 6], false],
  ['connections that are left are not', (i) => [20 * MB, 10, 6 + Math.floor(i / 5)], false],
])('%s', (_what, held, isFlat) => {
  expect(growthsOf(linesOf(held))).toMatchObject([{ pid: '7', isFlat }])
})

test('a process that was seen too seldom is not called flat', () => {
  expect(growthsOf(['sample 7 1 1 1', 'sample 7 1 1 1'])).toMatchObject([{ isFlat: false }])
})
