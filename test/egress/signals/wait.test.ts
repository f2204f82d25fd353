import { describe, expect, test } from 'vitest'
import { readWait } from '../../../src/egress/signals/wait.ts'
import { NOW_DATE, withHeaders } from './http-answer.ts'

const AHEAD = 'Sat, 21 Nov 2026 12:00:30 GMT'
/** The peer's clock is 10 s ahead of ours. */
const SKEWED = 'Sat, 21 Nov 2026 12:00:10 GMT'
const YEAR_MS = 366 * 86_400_000

const WAITS: readonly [title: string, headers: Record<string, string>, ms: number | undefined, name?: string][] = [
  ['seconds', { 'retry-after': '12' }, 12_000, 'Retry-After'],
  ['decimals', { 'retry-after': '2.0' }, 2000],
  ['decimals, rounded up', { 'retry-after': '0.0004' }, 1],
  ['space around it', { 'retry-after': ' 7 ' }, 7000],
  ['negative', { 'retry-after': '-5' }, 0],
  ['0', { 'retry-after': '0' }, 0],
  ['as long as a peer can lie', { 'retry-after': '999999999999999' }, YEAR_MS],
  ['a delta is never a Unix time', { 'retry-after': '1700000000' }, YEAR_MS],
  ['IMF-fixdate, no Date', { 'retry-after': AHEAD }, 30_000],
  ['IMF-fixdate against Date', { 'retry-after': AHEAD, date: SKEWED }, 20_000],
  ['RFC 850 date against Date', { 'retry-after': 'Saturday, 21-Nov-26 12:00:30 GMT', date: SKEWED }, 20_000],
  ['asctime date against Date', { 'retry-after': 'Sat Nov 21 12:00:30 2026', date: SKEWED }, 20_000],
  ['a date that has passed', { 'retry-after': NOW_DATE, date: SKEWED }, 0],
  ['a date of RFC 3339 is none of HTTP', { 'retry-after': '2026-11-21T12:00:30Z' }, undefined],
  ['words', { 'retry-after': 'tomorrow' }, undefined],
  ['two lines: the longer', { 'retry-after': '10, 5' }, 10_000],
  ['two dates', { 'retry-after': `${NOW_DATE}, ${AHEAD}` }, 30_000],
  ['a date and seconds', { 'retry-after': `${AHEAD}, 5` }, 30_000],
  ['seconds and words', { 'retry-after': '5, tomorrow' }, 5000],
  ['nothing but commas', { 'retry-after': ', ,' }, undefined],
  ['empty', { 'retry-after': '' }, undefined],
  ['longer than any figure', { 'retry-after': `${' '.repeat(200)}7` }, undefined],
  ['missing', {}, undefined],
  ['retry-after-ms', { 'retry-after-ms': '350' }, 350, 'retry-after-ms'],
  ['retry-after-ms, decimals', { 'retry-after-ms': '350.2' }, 351],
  ['x-ms-retry-after-ms', { 'x-ms-retry-after-ms': '1200' }, 1200, 'x-ms-retry-after-ms'],
  ['x-amz-retry-after is in ms', { 'x-amz-retry-after': '1500' }, 1500, 'x-amz-retry-after'],
  ['ms before seconds', { 'retry-after': '12', 'retry-after-ms': '11500' }, 11_500, 'retry-after-ms'],
  ['ms that can not be read leave the seconds', { 'retry-after': '12', 'retry-after-ms': 'x' }, 12_000, 'Retry-After'],
]

describe('a wait is read', () => {
  test.each(WAITS)('%s', (_, headers, ms, name) => {
    const wait = readWait(withHeaders(headers, 429))
    expect(wait?.ms).toBe(ms)
    if (name) expect(wait?.name).toBe(name)
  })

  test("a vendor's field comes last", () => {
    const both = withHeaders({ 'retry-after': '3', 'x-later': '60' })
    expect(readWait(both, 'x-later')?.ms).toBe(3000)
    expect(readWait(withHeaders({ 'x-later': '60' }), 'x-later')).toEqual({
      ms: 60_000,
      name: 'x-later',
      source: 'retry-after',
    })
  })
})
