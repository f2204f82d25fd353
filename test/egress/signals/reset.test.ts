import { describe, expect, test } from 'vitest'
import { parseHttpDate, parseRfc3339, peerNowMs } from '../../../src/egress/signals/instant.ts'
import { parseDuration, parseReset } from '../../../src/egress/signals/reset.ts'
import { NOW_DATE, NOW_MS, NOW_S, withHeaders } from './http-answer.ts'

const YEAR_MS = 366 * 86_400_000

const RESETS: readonly [row: string, text: string, ms: number | undefined][] = [
  ['delta seconds', '12', 12_000],
  ['delta seconds, decimals', '0.35', 350],
  ['delta seconds, rounded up to whole ms', '0.0001', 1],
  ['delta 0', '0', 0],
  ['delta just below the epochs: clamped', '999999999', YEAR_MS],
  ['epoch seconds', String(NOW_S + 30), 30_000],
  ['epoch seconds with decimals (Discord)', `${NOW_S + 30}.5`, 30_500],
  ['epoch milliseconds', String(NOW_MS + 30_000), 30_000],
  ['epoch microseconds', `${NOW_MS + 30_000}000`, 30_000],
  ['epoch nanoseconds', `${NOW_MS + 30_000}000000`, 30_000],
  ['past epoch', String(NOW_S - 30), 0],
  ['Go duration: ms', '12ms', 12],
  ['Go duration: s', '1s', 1000],
  ['Go duration: m and s', '6m0s', 360_000],
  ['Go duration: h, m and decimals of s', '1h2m3.5s', 3_723_500],
  ['Go duration: µs', '1500µs', 2],
  ['Go duration: us', '2000us', 2],
  ['Go duration: ns', '1000000ns', 1],
  ['Go duration: d', '2d', 172_800_000],
  ['Go duration: 0s', '0s', 0],
  ['RFC 3339', '2026-11-21T12:00:30Z', 30_000],
  ['RFC 3339 with fractions', '2026-11-21T12:00:30.250Z', 30_250],
  ['RFC 3339 with an offset', '2026-11-21T13:00:30+01:00', 30_000],
  ['RFC 3339 west of UTC', '2026-11-21T07:00:30-05:00', 30_000],
  ['ISO 8601 without seconds', '2026-11-21T12:01Z', 60_000],
  ['IMF-fixdate', 'Sat, 21 Nov 2026 12:00:30 GMT', 30_000],
  ['a date that has passed', '2026-11-21T11:00:00Z', 0],
  ['negative: Date.parse takes -1 for a date', '-1', undefined],
  ['a year alone', '2026-', undefined],
  ['a date alone', '2026-11-21', undefined],
  ['hexadecimal', '0x10', undefined],
  ['exponent', '1e3', undefined],
  ['two figures', '12, 30', undefined],
  ['empty', '', undefined],
  ['words', 'soon', undefined],
  ['a unit alone', 's', undefined],
  ['an unknown unit', '12y', undefined],
  ['the 30th of February', '2026-02-30T00:00:00Z', undefined],
  ['25 hours', '2026-11-21T25:00:00Z', undefined],
  ['a 13th month', '2026-13-21T12:00:00Z', undefined],
]

describe('a reset is read (standards 1.7)', () => {
  test.each(RESETS)('%s', (_, text, ms) => {
    expect(parseReset(text, NOW_MS)).toBe(ms)
  })

  test('a missing one is none', () => {
    expect(parseReset(undefined, NOW_MS)).toBeUndefined()
  })
})

test('a duration keeps its fractions of a ms', () => {
  expect(parseDuration('1.5us')).toBeCloseTo(0.0015, 9)
  expect(parseDuration('-1s')).toBeUndefined()
})

const DATES: readonly [form: string, text: string, instant: number | undefined][] = [
  ['IMF-fixdate', 'Sun, 06 Nov 1994 08:49:37 GMT', Date.UTC(1994, 10, 6, 8, 49, 37)],
  ['RFC 850', 'Sunday, 06-Nov-94 08:49:37 GMT', Date.UTC(1994, 10, 6, 8, 49, 37)],
  ['RFC 850, 50 years ahead', 'Sunday, 06-Nov-76 08:49:37 GMT', Date.UTC(2076, 10, 6, 8, 49, 37)],
  ['RFC 850, 51 years ahead is past', 'Sunday, 06-Nov-77 08:49:37 GMT', Date.UTC(1977, 10, 6, 8, 49, 37)],
  ['asctime', 'Sun Nov  6 08:49:37 1994', Date.UTC(1994, 10, 6, 8, 49, 37)],
  ['asctime, two digits', 'Wed Nov 16 08:49:37 1994', Date.UTC(1994, 10, 16, 8, 49, 37)],
  ['a leap second', 'Sat, 31 Dec 2016 23:59:60 GMT', Date.UTC(2017, 0, 1)],
  ['the 29th of February', 'Thu, 29 Feb 2024 00:00:00 GMT', Date.UTC(2024, 1, 29)],
  ['none of these: the 29th of February 2026', 'Sun, 29 Feb 2026 00:00:00 GMT', undefined],
  ['none of these: the day 0', 'Sun, 00 Nov 1994 08:49:37 GMT', undefined],
  ['none of these: another zone', 'Sun, 06 Nov 1994 08:49:37 CET', undefined],
  ['none of these: 08:60', 'Sun, 06 Nov 1994 08:60:00 GMT', undefined],
  ['none of these: -1', '-1', undefined],
]

describe('an HTTP-date is read', () => {
  test.each(DATES)('%s', (_, text, instant) => {
    expect(parseHttpDate(text, NOW_MS)).toBe(instant)
  })

  test('the year 0 is one of RFC 3339', () => {
    expect(parseRfc3339('0000-01-01T00:00:00Z')).toBe(Date.parse('0000-01-01T00:00:00Z'))
  })
})

describe("the peer's clock", () => {
  test('is the Date of the answer, however wrong', () => {
    expect(peerNowMs(withHeaders({ date: 'Sun, 06 Nov 1994 08:49:37 GMT' }))).toBe(Date.UTC(1994, 10, 6, 8, 49, 37))
  })

  test('is ours where there is no Date, or none that can be read', () => {
    expect(peerNowMs(withHeaders({}))).toBe(NOW_MS)
    expect(peerNowMs(withHeaders({ date: '2026' }))).toBe(NOW_MS)
  })

  test('is the same as ours for the date of these tests', () => {
    expect(peerNowMs(withHeaders({ date: NOW_DATE }))).toBe(NOW_MS)
  })
})
