import { describe, expect, test } from 'vitest'
import { INITIAL_LIVENESS, judgeLiveness, type QueueFacts } from '../src/liveness.ts'

const STALL_MS = 10_000
const backlog: QueueFacts = { waiting: 5, paused: false, full: false, intervalMs: 20, burst: 1 }

interface Moment {
  atMs: number
  queue: QueueFacts | undefined
  lastProgressMs?: number
}

/** Asks at each moment in turn and returns the answers. */
function ask(moments: readonly Moment[]): boolean[] {
  let state = INITIAL_LIVENESS
  return moments.map(({ atMs, queue, lastProgressMs = 0 }) => {
    const verdict = judgeLiveness(state, { queue, lastProgressMs, nowMs: atMs }, STALL_MS)
    state = verdict.state
    return verdict.live
  })
}

test('work that waits and is not done for the whole time is death, to the millisecond', () => {
  expect(
    ask([
      { atMs: 0, queue: backlog },
      { atMs: 9_999, queue: backlog },
      { atMs: 10_000, queue: backlog },
    ]),
  ).toEqual([true, true, false])
})

test('a job that starts or finishes buys the whole time again', () => {
  expect(
    ask([
      { atMs: 0, queue: backlog },
      { atMs: 14_999, queue: backlog, lastProgressMs: 5000 },
      { atMs: 15_000, queue: backlog, lastProgressMs: 5000 },
    ]),
  ).toEqual([true, true, false])
})

test('the first question never finds a worker dead, however long it was idle before', () => {
  expect(ask([{ atMs: 1_000_000, queue: backlog }])).toEqual([true])
})

describe.each([
  ['nothing waits', { ...backlog, waiting: 0 }],
  ['the queue or its meter is paused', { ...backlog, paused: true }],
  ['as many jobs run as may, over all workers', { ...backlog, full: true }],
  ['Redis does not answer', undefined],
] as const)('while %s', (_, queue) => {
  test('an idle worker is alive', () => {
    expect(
      ask([
        { atMs: 0, queue },
        { atMs: 100_000, queue },
      ]),
    ).toEqual([true, true])
  })

  test('time does not count, and starts again from nothing afterwards', () => {
    expect(
      ask([
        { atMs: 0, queue: backlog },
        { atMs: 9_000, queue },
        { atMs: 20_000, queue: backlog },
        { atMs: 29_999, queue: backlog },
        { atMs: 30_000, queue: backlog },
      ]),
    ).toEqual([true, true, true, true, false])
  })
})

test('at a slow rate the time it takes to fill the bucket and a hundred departures must pass', () => {
  const slow = { ...backlog, intervalMs: 1000, burst: 20 }
  expect(
    ask([
      { atMs: 0, queue: slow },
      { atMs: 119_999, queue: slow },
      { atMs: 120_000, queue: slow },
    ]),
  ).toEqual([true, true, false])
})

test('without a rate only the time counts', () => {
  const unpaced = { ...backlog, intervalMs: 0 }
  expect(
    ask([
      { atMs: 0, queue: unpaced },
      { atMs: 10_000, queue: unpaced },
    ]),
  ).toEqual([true, false])
})
