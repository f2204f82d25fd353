import { expect, test } from 'vitest'
import { RunTimes } from '../../src/worker/run-times.ts'

test('nothing is known before the first job, and that one is the mean', () => {
  const times = new RunTimes()
  expect(times.text).toBe('')
  times.add(40_000)
  expect(times.text).toBe('40000 0')
})

test('both means follow what jobs take now', () => {
  const times = new RunTimes()
  for (let i = 0; i < 50; i++) times.add(10_000)
  for (let i = 0; i < 100; i++) times.add(i % 2 === 0 ? 90_000 : 110_000)
  const [mean, off] = times.text.split(' ').map(Number) as [number, number]
  expect(Math.abs(mean - 100_000)).toBeLessThan(2000)
  expect(Math.abs(off - 10_000)).toBeLessThan(2000)
})

test('a job that ended before its slot by a clock that was set says nothing', () => {
  const times = new RunTimes()
  times.add(-5)
  expect(times.text).toBe('')
})
