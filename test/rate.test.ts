import { describe, expect, test } from 'vitest'
import { formatRate, InvalidRateError, intervalUs, parseRate, type RateInput } from '../src/index.ts'

const FORMS: readonly [input: RateInput, limit: number, periodMs: number, intervalUs: number][] = [
  ['50/s', 50, 1000, 20_000],
  ['1/s', 1, 1000, 1_000_000],
  ['2.5/s', 2.5, 1000, 400_000],
  ['1000/min', 1000, 60_000, 60_000],
  ['100/15min', 100, 900_000, 9_000_000],
  ['10000/day', 10_000, 86_400_000, 8_640_000],
  ['3/h', 3, 3_600_000, 1_200_000_000],
  ['5/100ms', 5, 100, 20_000],
  ['1/0.5s', 1, 500, 500_000],
  ['2/2d', 2, 172_800_000, 86_400_000_000],
  ['7/week', 7, 604_800_000, 86_400_000_000],
  ['30/month', 30, 2_592_000_000, 86_400_000_000],
  ['1e3/s', 1000, 1000, 1000],
  ['10/sec', 10, 1000, 100_000],
  ['10/second', 10, 1000, 100_000],
  ['60/minute', 60, 60_000, 1_000_000],
  ['60/hour', 60, 3_600_000, 60_000_000],
  [' 50 / S ', 50, 1000, 20_000],
  ['3/ 10 s', 3, 10_000, 10_000_000 / 3],
  [{ limit: 50, period: 1000 }, 50, 1000, 20_000],
  [{ limit: 0.5, period: 1000 }, 0.5, 1000, 2_000_000],
  [{ limit: 7, period: 1000 }, 7, 1000, 1_000_000 / 7],
]

describe('a rate is read', () => {
  test.each(FORMS)('%j', (input, limit, periodMs, interval) => {
    expect(parseRate(input)).toEqual({ limit, periodMs })
    expect(intervalUs(parseRate(input))).toBe(interval)
  })
})

const WRONG: readonly [input: unknown, came: string][] = [
  ['', "''"],
  ['50', "'50'"],
  ['50/', "'50/'"],
  ['/s', "'/s'"],
  ['fifty/s', "'fifty/s'"],
  ['0/s', "'0/s'"],
  ['-5/s', "'-5/s'"],
  ['50/0s', "'50/0s'"],
  ['50/year', "'50/year'"],
  ['50/s/s', "'50/s/s'"],
  ['50 per s', "'50 per s'"],
  ['e3/s', "'e3/s'"],
  ['1e400/s', "'1e400/s'"],
  ['Infinity/s', "'Infinity/s'"],
  ['50/constructor', "'50/constructor'"],
  [50, '50'],
  [null, 'null'],
  [undefined, 'undefined'],
  [true, 'true'],
  [[50, 1000], '[50,1000]'],
  [{}, '{}'],
  [{ limit: 50 }, '{"limit":50}'],
  [{ limit: '50', period: 1000 }, '{"limit":"50","period":1000}'],
  [{ limit: 0, period: 1000 }, '{"limit":0,"period":1000}'],
  [{ limit: 50, period: 0 }, '{"limit":50,"period":0}'],
  [{ limit: -1, period: -1000 }, '{"limit":-1,"period":-1000}'],
  [{ limit: 50, duration: 1000 }, '{"limit":50,"duration":1000}'],
  [{ limit: Number.NaN, period: 1000 }, '{"limit":null,"period":1000}'],
  [{ limit: 1, period: Number.POSITIVE_INFINITY }, '{"limit":1,"period":null}'],
  [{ limit: Number.MIN_VALUE, period: 1e300 }, '{"limit":5e-324,"period":1e+300}'],
]

describe('a wrong rate is refused with what was expected and what came', () => {
  test.each(WRONG)('%j', (input, came) => {
    expect(() => parseRate(input as RateInput)).toThrow(InvalidRateError)
    expect(() => parseRate(input as RateInput)).toThrow(
      "rate must be '50/s', '1000/min', '100/15min', '10000/day' (units ms, s, min, h, day, week, month) or " +
        `{ limit: 50, period: 1000 } with period in ms; got ${came}`,
    )
  })

  test('an object that is a circle is described too', () => {
    const circle: Record<string, unknown> = {}
    circle.self = circle
    expect(() => parseRate(circle as never)).toThrow('got [object Object]')
  })
})

describe('a rate is written in the largest unit that fits, and reads back the same', () => {
  test.each([
    ['50/s', '50/s'],
    ['60/60s', '60/min'],
    ['100/15min', '100/15min'],
    ['10/24h', '10/day'],
    ['10/7d', '10/week'],
    ['10/30d', '10/month'],
    ['10/14d', '10/14day'],
    ['10/36h', '10/36h'],
    ['5/100ms', '5/100ms'],
    ['5/1500ms', '5/1500ms'],
    ['2.5/s', '2.5/s'],
  ])('%s as %s', (input, text) => {
    expect(formatRate(parseRate(input))).toBe(text)
    expect(parseRate(text)).toEqual(parseRate(input))
  })

  test.each(FORMS)('%j', (input) => {
    expect(parseRate(formatRate(parseRate(input)))).toEqual(parseRate(input))
  })

  test('also where a number is not written as digits alone', () => {
    for (const rate of [
      { limit: 1e21, period: 1000 },
      { limit: 1e-7, period: 1000 },
      { limit: 1, period: 1e-7 },
    ]) {
      expect(parseRate(formatRate(parseRate(rate)))).toEqual(parseRate(rate))
    }
  })
})
