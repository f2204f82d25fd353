import { expect, test } from 'vitest'
import type { QueueReport } from '../../workers/demo/report.ts'
import { difference, nextSteps, verdict } from '../../workers/demo/verdict.ts'

const kept = {
  lines: 750,
  delivered: 750,
  lost: 0,
  twice: 0,
  excessAtDeparture: 0,
  mostStartsIn100Ms: 6,
} as QueueReport

const of = (mails: Partial<QueueReport>) => [
  { jobs: 'mails', report: { ...kept, ...mails } },
  { jobs: 'database writes', report: kept },
]

test('a run that kept its promises', () => {
  expect(verdict('50/s', of({})).split('\n')).toEqual([
    'Sent 1,500 of 1,500: 750 mails, 750 database writes.',
    'Never above 50/s, for either of them.',
    'Nothing lost, nothing twice.',
  ])
})

test('a run that did not', () => {
  expect(verdict('50/s', of({ delivered: 748, lost: 2, twice: 1, excessAtDeparture: 3 })).split('\n')).toEqual([
    'Sent 1,498 of 1,500: 748 mails, 750 database writes.',
    'Above 50/s: 3 left too early.',
    '2 lost, 1 twice.',
  ])
})

test('the difference is that of the worse queue of each', () => {
  const theirs = [41, 48].map((mostStartsIn100Ms) => ({ ...kept, mostStartsIn100Ms }))
  expect(difference([kept, { ...kept, mostStartsIn100Ms: 5 }], theirs)).toBe(
    "Most starts in any 100 ms: 6 with Sluice, 48 with BullMQ's own limiter.",
  )
})

test('what was just run is not what to try next, and no line is wider than a terminal', () => {
  expect(nextSteps({})).toContain('--compare')
  expect(nextSteps({ compare: true })).not.toContain('--compare')
  expect(
    nextSteps({})
      .split('\n')
      .filter((line) => line.length > 80),
  ).toEqual([])
})
