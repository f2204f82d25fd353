import { expect, test } from 'vitest'
import { limitPlan } from '../../src/inspect/limit-plan.ts'
import { type BucketAlgorithm, encodeRule } from '../../src/limits/definition.ts'
import { createModel } from '../limits/model/model.ts'

const START_US = 1_764_000_000_000_000
const S = 1_000_000
const BURST = 4

/** What is kept of a bucket of 2/s that owes 5 units, charged up to 0.4 s ahead. */
const KEPT: Readonly<Record<BucketAlgorithm, number>> = { gcra: 2.5 * S, 'leaky-bucket': 5, 'token-bucket': BURST - 5 }

test.each([
  ['gcra', '8/s'],
  ['token-bucket', '8/s'],
  ['leaky-bucket', '8/s'],
  ['gcra', '1/s'],
  ['token-bucket', '1/s'],
  ['leaky-bucket', '1/s'],
] as const)('shows what %s allows at a rate, now %s, that no script has come upon', (algorithm, rate) => {
  const wire = encodeRule({ algorithm, rate, burst: BURST })
  const model = createModel(encodeRule({ algorithm, rate: '2/s', burst: BURST }))
  model.now = START_US
  model.commit(4.2, 0.4 * S, 0)
  model.now = START_US + 0.1 * S
  model.change(wire, true)
  const packed = [START_US, KEPT[algorithm], 0.5 * S, 0.4 * S]
  const plan = limitPlan(wire, { packed, log: [], before: 0 }, model.now)
  expect(plan.earliest(3)).toBeCloseTo(model.earliest(3), 3)
})
