import { expect, test } from 'vitest'
import type { HistoryEntry } from '../../src/inspect/index.ts'
import { type PauseSources, pausesOf } from '../../src/inspect/pauses.ts'

const entry = (atMs: number, kind: HistoryEntry['kind'], untilMs?: number, change: object = {}): HistoryEntry => ({
  ...{ id: `${atMs}-0`, at: new Date(atMs), kind, by: '', reason: '', change: change as HistoryEntry['change'] },
  ...(untilMs === undefined ? {} : { until: new Date(untilMs) }),
})
const pause = (atMs: number, untilMs: number) => entry(atMs, 'pause', untilMs)
const fed = (atMs: number, untilMs: number, scope: unknown = 'queue') =>
  entry(atMs, 'feedback', untilMs, { kind: 'pause', scope })
const notSeen = (atMs: number) => ({ atMs, paused: false })
/** None at first, then one. */
const seen = (firstMs: number, ...pausedMs: number[]) => [
  notSeen(firstMs),
  ...pausedMs.map((atMs) => ({ atMs, paused: true })),
]
const ALWAYS = Number.NEGATIVE_INFINITY
const STILL = Number.POSITIVE_INFINITY

test.each<[string, Partial<PauseSources>, [number, number][]]>([
  ['none', {}, []],
  ['one that ended by itself', { history: [pause(10, 20)] }, [[10, 20]]],
  ['one that was lifted', { history: [pause(10, 90), entry(30, 'resume')] }, [[10, 30]]],
  ['lifted when it was over', { history: [pause(10, 20), entry(30, 'resume')] }, [[10, 20]]],
  ['a later one goes on', { history: [pause(10, 20), pause(15, 40)] }, [[10, 40]]],
  ['a later one never shortens it', { history: [pause(10, 50), pause(15, 20)] }, [[10, 50]]],
  [
    'two',
    { history: [pause(10, 20), pause(30, 40)] },
    [
      [10, 20],
      [30, 40],
    ],
  ],
  ['the other side asked for it', { history: [fed(10, 20)] }, [[10, 20]]],
  ['the other side slowed it', { history: [entry(10, 'feedback', 20, { kind: 'slow', scope: 'queue' })] }, []],
  ['of one limit, which has a hold of its own', { history: [fed(10, 20, { limit: 'llm' })], limits: ['llm'] }, []],
  ['of a limit that the shape does not have', { history: [fed(10, 20, { limit: 'llm' })] }, [[10, 20]]],
  ['an override that ends is none', { history: [entry(10, 'override', 20, { rate: [1, 1000] })] }, []],
  [
    "BullMQ's",
    {
      switches: [
        { atMs: 10, paused: true },
        { atMs: 20, paused: false },
      ],
    },
    [[10, 20]],
  ],
  ["BullMQ's, set twice", { switches: [10, 15].map((atMs) => ({ atMs, paused: true })), paused: true }, [[10, STILL]]],
  ["BullMQ's, still on", { switches: [{ atMs: 10, paused: true }], paused: true }, [[10, STILL]]],
  [
    "BullMQ's, lifted, and seen before",
    { switches: [{ atMs: 20, paused: false }], samples: seen(5, 8, 11) },
    [[8, 20]],
  ],
  ["BullMQ's, lifted when it was not on", { switches: [{ atMs: 20, paused: false }] }, []],
  [
    'not seen right before it was lifted',
    { switches: [{ atMs: 20, paused: false }], samples: [...seen(5, 8), notSeen(9)] },
    [],
  ],
  ["BullMQ's, from before and still on", { paused: true }, [[ALWAYS, STILL]]],
  ["BullMQ's, still on, and seen for a while", { paused: true, samples: seen(5, 8) }, [[8, STILL]]],
  [
    "the meter's, lifted with BullMQ's",
    {
      history: [pause(10, 90), entry(20, 'resume')],
      switches: [{ atMs: 21, paused: false }],
      samples: seen(5, 12, 19),
    },
    [[10, 21]],
  ],
  [
    'both, one over the other',
    {
      history: [pause(15, 30)],
      switches: [
        { atMs: 10, paused: true },
        { atMs: 20, paused: false },
      ],
    },
    [[10, 30]],
  ],
])('when a queue was paused: %s', (_, sources, expected) => {
  const pauses = pausesOf({ history: [], limits: [], switches: [], samples: [], paused: false, ...sources })
  expect(pauses.map(({ fromMs, toMs }) => [fromMs, toMs])).toEqual(expected)
})
