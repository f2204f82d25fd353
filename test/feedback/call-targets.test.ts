import { expect, test } from 'vitest'
import { CallTargets } from '../../src/feedback/loop.ts'

test('the last hundred targets of a worker are kept: many hosts take no memory', () => {
  const targets = new CallTargets()
  for (let i = 0; i <= 100; i++) targets.wentWell(`host-${i}`, i)
  expect([0, 1, 100].map((i) => targets.refused(`host-${i}`)?.sameUs)).toEqual([undefined, 1, 100])
})

test('the most recent success of a target counts, and keeps the target', () => {
  const targets = new CallTargets()
  targets.wentWell('first', 7)
  for (let i = 1; i < 100; i++) targets.wentWell(`host-${i}`, 5)
  targets.wentWell('first', 6)
  targets.wentWell('one more', 5)
  expect(targets.refused('first')).toMatchObject({ sameUs: 7, othersUs: 5 })
  expect(targets.refused('host-1')?.sameUs).toBeUndefined()
})
