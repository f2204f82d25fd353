import { describe, expect, test } from 'vitest'
import { countText, formatDuration, plainText } from '../../../src/plain-text.ts'
import { parseDuration, parseFutureTime, parseQueueName, wholeNumber } from '../src/arguments.ts'
import { jsonLine } from '../src/json-line.ts'
import { formatTable } from '../src/open-cli.ts'
import { flowBetween, QueueWatch } from '../src/watch-queues.ts'

describe('durations', () => {
  test.each([
    ['10m', 600_000],
    ['1h30m', 5_400_000],
    ['90s', 90_000],
    ['1.5h', 5_400_000],
    ['250ms', 250],
    ['5min', 300_000],
    [' 1d 2h ', 93_600_000],
    ['10M', 600_000],
  ])('%j are %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms)
  })

  test.each(['', '10', 'm', '-5m', '10 minutes', '1h30', '0s', '0.1ms', '1e3s', '10m!', '99999999999999d'])(
    '%j is none',
    (text) => {
      expect(() => parseDuration(text)).toThrow("expected a duration such as '90s', '10m' or '1h30m'")
    },
  )

  test.each([
    [undefined, '—'],
    [0, '0ms'],
    [1.25, '1.3ms'],
    [999, '999ms'],
    [1234, '1.23s'],
    [59_940, '59.9s'],
    [90_000, '1m30s'],
    [3_600_000, '1h'],
    [5_400_000, '1h30m'],
    [90_000_000, '1d1h'],
    [-1500, '-1.5s'],
  ])('%s ms are shown as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text)
  })
})

test('arguments say what was expected', () => {
  expect(parseQueueName('emails')).toBe('emails')
  for (const name of ['', 'a:b', 'a\nb']) expect(() => parseQueueName(name)).toThrow("without ':'")
  expect(wholeNumber(1, 10)('10')).toBe(10)
  for (const text of ['0', '11', '1.5', '', 'x']) expect(() => wholeNumber(1, 10)(text)).toThrow('from 1 to 10')
  expect(parseFutureTime('2999-01-01T00:00:00Z')).toEqual(new Date('2999-01-01T00:00:00Z'))
  for (const text of ['5', 'tomorrow', '2999-13-01T00:00:00Z'])
    expect(() => parseFutureTime(text)).toThrow('a time such')
  expect(() => parseFutureTime('2001-01-01T00:00:00Z')).toThrow('in the future')
})

test('one of a thing is not called several', () => {
  expect([0, 1, 2, 1200].map((count) => countText(count, 'job'))).toEqual(['0 jobs', '1 job', '2 jobs', '1,200 jobs'])
})

test('control characters in data become visible', () => {
  expect(plainText('a\u001b[31mb\nc\td\u202e\u0085')).toBe(String.raw`a\u001b[31mb\nc\td\u202e\u0085`)
  expect(plainText('\u061c\u200e\u200f')).toBe(String.raw`\u061c\u200e\u200f`)
  expect(plainText('Grüße, 世界 🎉')).toBe('Grüße, 世界 🎉')
})

test('JSON is as harmless, and unchanged in meaning', () => {
  const value = { '\u009b31m': 'a\u001b[31m\u007f\u0085\u202eb\u2066\u200f\n"世界' }
  const line = jsonLine(value)
  expect(line).toMatch(/^[\x20-\x7e世界]+$/)
  expect(JSON.parse(line)).toEqual(value)
})

test('JSON is one line: dates are ISO 8601, Infinity is null', () => {
  const value = { at: new Date(0), le: Number.POSITIVE_INFINITY, none: undefined, text: 'a\nb' }
  expect(jsonLine(value)).toBe(String.raw`{"at":"1970-01-01T00:00:00.000Z","le":null,"text":"a\nb"}`)
})

test('columns of a table are as wide as their cells, colours do not count', () => {
  const rows = [
    ['\u001b[31mx\u001b[39m', '1'],
    ['long', '2'],
  ]
  expect(formatTable(['a', 'b'], rows)).toBe('a     b\n\u001b[31mx\u001b[39m     1\nlong  2')
})

describe('flow between two looks', () => {
  type Unread = readonly (number | 'head' | 'queue')[]
  const at = (seconds: number, accepted: number, departed: number, refused: number, unread?: Unread) => ({
    ...(unread && { unread }),
    at: new Date(1000 * seconds),
    acceptedTotal: accepted,
    departedTotal: departed,
    refusedTotal: refused,
    ...{ completedTotal: departed, failedAttemptsTotal: refused, bypassedTotal: accepted },
  })
  const flowOf = (arrivals?: number, departures?: number, refusals?: number) => ({
    ...{ arrivalsPerSecond: arrivals, departuresPerSecond: departures, refusalsPerSecond: refusals },
    ...{ completionsPerSecond: departures, failuresPerSecond: refusals, bypassesPerSecond: arrivals },
  })
  const unknown = flowOf()

  test.each([
    ['the first look knows none', undefined, at(10, 5, 5, 5), unknown],
    ['totals and time', at(10, 100, 50, 0), at(12, 120, 60, 3), flowOf(10, 5, 1.5)],
    ['a queue that was made anew', at(10, 100, 50, 9), at(12, 1, 0, 0), unknown],
    ['a queue that could not be read', at(10, 100, 50, 9), at(12, 0, 0, 0, ['queue']), unknown],
    ['nor a moment later', at(10, 0, 0, 0, ['queue']), at(12, 0, 0, 0, ['queue']), unknown],
    ['one that can be read again', at(10, 0, 0, 0, ['queue']), at(12, 1e6, 1e6, 9), unknown],
    ['one of which a shard is back', at(10, 60, 50, 0, [1]), at(12, 100, 80, 0), unknown],
    ['one without the same shard', at(10, 60, 50, 0, [1]), at(12, 80, 60, 3, [1]), flowOf(10, 5, 1.5)],
    ['no time went by', at(10, 1, 1, 1), at(10, 2, 2, 2), unknown],
  ])('%s', (_, before, now, flow) => {
    expect(flowBetween(before, now)).toEqual(flow)
  })

  test('what workers report together, every few seconds, is a mean over ten seconds', async () => {
    // A job a second: all that left is known at once, and every fifth look what ended.
    const looks = Array.from({ length: 30 }, (_, s) => ({ ...at(s, s, s, 0), name: 'q', completedTotal: s - (s % 5) }))
    const inspector = { queues: async () => ['q'], status: async () => [looks.shift()] }
    const watch = new QueueWatch(inspector as never, undefined, 9)
    const seen: (number | undefined)[][] = []
    while (looks.length > 0) {
      const [flow] = await watch.look()
      seen.push([flow?.departuresPerSecond, flow?.completionsPerSecond])
    }
    expect(seen[0]).toEqual([undefined, undefined])
    expect(seen.slice(10)).toEqual(Array.from({ length: 20 }, () => [1, 1]))
    looks.push(
      { ...at(31, 31, 31, 0), name: 'q', completedTotal: 0 },
      { ...at(32, 32, 32, 0), name: 'q', completedTotal: 4 },
    )
    expect(await watch.look()).toMatchObject([{ departuresPerSecond: undefined, completionsPerSecond: undefined }])
    expect(await watch.look()).toMatchObject([{ departuresPerSecond: 1, completionsPerSecond: 4 }])
  })
})
