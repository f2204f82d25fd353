import { expect, test } from 'vitest'
import type { MeterState } from '../../../../src/queue/meter-state.ts'
import { estimatedStart } from '../../src/jobs/last-meter.ts'

const AT = 1_764_000_000_000
const idle = { at: new Date(AT), paused: false, level: 0, meanCost: 1, waiting: 0 } as MeterState

const startsInMs = (state: Partial<MeterState>, intervalMs: number | undefined, ageMs: number, position: number) => {
  const start = estimatedStart({ ...idle, ...state }, intervalMs, ageMs, position)
  return start && start.getTime() - AT
}
const burst = (units: number) => ({ shape: { burst: units } }) as Partial<MeterState>

test.each<[string, Partial<MeterState>, number | undefined, number, number, number | undefined]>([
  ['the first of an idle queue starts at once', {}, 20, 0, 0, 0],
  ['each behind it an interval later', {}, 20, 0, 3, 60],
  ['it counts from when the meter is looked at, not from when it was read', {}, 20, 500, 3, 560],
  ['so many as the burst start together', burst(4), 20, 0, 3, 0],
  ['and the next one an interval later', burst(4), 20, 0, 4, 20],
  ['of what the bucket held as much has run out since', { level: 1 }, 20, 10, 0, 20],
  ['where jobs waited it is as full as it was', { level: 1, waiting: 5 }, 20, 10, 5, 130],
  ['dear jobs take longer', { meanCost: 2, ...burst(2) }, 20, 0, 3, 120],
  ['in a pause of the meter nothing starts before its end', { pausedUntil: new Date(AT + 1000) }, 20, 0, 2, 1040],
  ['in an open-ended pause nobody knows', { paused: true }, 20, 0, 0, undefined],
  ['without a rate the first one starts at once', {}, undefined, 30, 0, 30],
  ['and nobody knows of the others', {}, undefined, 0, 1, undefined],
])('%s', (_name, state, intervalMs, ageMs, position, expected) => {
  const found = startsInMs(state, intervalMs, ageMs, position)
  if (expected === undefined) expect(found).toBeUndefined()
  else expect(found).toBeCloseTo(expected, 6)
})
