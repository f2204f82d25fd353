import { expect, test } from 'vitest'
import { type MarkerWaiter, waitForMarker } from '../../src/worker/marker-wait.ts'

function waiter(marker: { score: number } | null, given: Partial<MarkerWaiter> = {}) {
  const passed: true[] = []
  const made = {
    backend: { waitForJob: async () => marker },
    timeoutS: () => 5,
    paused: () => false,
    full: () => false,
    closing: () => false,
    delay: async () => {},
    passOn: async () => void passed.push(true),
    onError: () => {},
    ...given,
  }
  return { passed, made: made as unknown as MarkerWaiter }
}

test.each([
  ['paused', { paused: () => true }],
  ['filled', { full: () => true }],
])('a worker that was %s while it waited hands the marker on', async (_, given) => {
  const { made, passed } = waiter({ score: 0 }, given)
  expect(await waitForMarker(made, 0)).toBe(0)
  expect(passed).toHaveLength(1)
})

test('a marker is for the worker that has room, and a wait without one says so', async () => {
  const came = waiter({ score: 0 })
  expect([await waitForMarker(came.made, 0), came.passed]).toEqual([0, []])
  expect(await waitForMarker(waiter(null).made, 0)).toBeUndefined()
})
