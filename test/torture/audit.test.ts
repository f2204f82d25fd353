import { expect, test } from 'vitest'
import { audit, type Terms, type Verdict } from './audit.ts'

const S = 1_000_000
/** 10/s, and from the tenth second on 100/s. */
const TERMS: Terms = {
  burst: 1,
  capacity: 3,
  horizonMs: 0,
  rates: [
    { perSecond: 10, begunUs: 0, doneUs: 0 },
    { perSecond: 100, begunUs: 10 * S, doneUs: 10 * S },
  ],
  forgotten: new Set(['gone']),
  setBack: new Set(['back']),
}

/** A job that was accepted, started at these times, and ended. */
const whole = (id: string, ...startsUs: number[]) => [
  ...[`tried ${id}`, `accepted ${id} 0`],
  ...startsUs.map((timeUs, i) => `started ${id} ${timeUs} 0 ${i}`),
  `ended ${id}`,
]
const GOOD = [
  ...whole('a', 0),
  ...whole('b', S / 10),
  ...whole('c', S / 5),
  ...whole('d', 10 * S),
  ...whole('e', 10.01 * S),
]

const CLEAN = {
  lost: [],
  forgotten: [],
  duplicated: [],
  unexpected: [],
  recovered: [],
  needless: [],
  overCapacity: [],
  mishaps: [],
}

test('jobs that were accepted, run once and in time are in order', () => {
  const verdict = audit(GOOD, TERMS)
  expect(verdict).toMatchObject({ ...CLEAN, accepted: 5, unsure: 0 })
  expect(verdict.worst.excess).toBeLessThanOrEqual(1e-9)
})

test.each<[string, string[], Partial<Verdict>]>([
  ['a job that never ended is lost', ['tried x', 'accepted x 0', `started x ${5 * S} 0 0`], { lost: ['x'] }],
  [
    'one that Redis lost with its data is counted apart',
    ['tried gone', 'accepted gone 0'],
    { ...CLEAN, forgotten: ['gone'] },
  ],
  ['one that ran before that is not', [...whole('gone', 5 * S)], CLEAN],
  [
    'one whose start the new master does not know of runs twice',
    [...whole('back', 5 * S), `started back ${6 * S} 0 0`],
    { duplicated: ['back'], needless: [] },
  ],
  ['a job whose lock was lost ran twice', whole('x', 5 * S, 6 * S), { duplicated: ['x'], needless: [] }],
  [
    'a job that ran twice with its lock did so needlessly',
    [...whole('x', 5 * S), `started x ${6 * S} 0 0`],
    { duplicated: ['x'], needless: ['x'] },
  ],
  [
    'a job that was refused and ran is unexpected',
    ['tried x', 'refused x', `started x ${5 * S} 0 0`],
    { unexpected: ['x'] },
  ],
  ['so is one that nobody added', [`started x ${5 * S} 0 0`], { unexpected: ['x'] }],
  [
    'one without an answer that ran is recovered',
    ['tried x', 'unsure x', `started x ${5 * S} 0 0`],
    { recovered: ['x'], unsure: 1 },
  ],
  ['one whose producer died first need not run', ['tried x'], { ...CLEAN, unsure: 1 }],
  [
    'a job behind as many as may wait is above the capacity',
    ['tried x', 'accepted x 3', 'ended x'],
    { overCapacity: ['x'] },
  ],
  ['what no one caught is told', ['unhandled Error: x'], { mishaps: ['unhandled Error: x'] }],
])('%s', (_what, lines, expected) => {
  expect(audit([...GOOD, ...lines], TERMS)).toMatchObject(expected)
})

test.each([
  ['before the change', 0.25 * S, 0.5],
  ['after it', 10.005 * S, 0.5],
])('a start too many is above the bound (%s)', (_when, timeUs, least) => {
  expect(audit([...GOOD, ...whole('x', timeUs)], TERMS).worst.excess).toBeGreaterThanOrEqual(least - 1e-9)
})
