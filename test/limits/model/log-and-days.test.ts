import { afterEach, describe, expect, test } from 'vitest'
import { encodeRule } from '../../../src/limits/definition.ts'
import { useRedis } from '../../support/redis.ts'
import { type Operation, Replayer, stateKey, type Verb } from './replay.ts'
import { START_US } from './stories.ts'

const redis = useRedis(import.meta.url)
const client = redis.client()
const replayer = new Replayer(client)

afterEach(async () => {
  await redis.cleanup()
})

describe('5,000 entries of the sliding log that have left the window', () => {
  const LIMIT = 6000
  const ENTRIES = 5000
  const WINDOW_US = 10_000_000
  const wire = encodeRule({ algorithm: 'sliding-window-log', rate: { limit: LIMIT, period: WINDOW_US / 1000 } })
  /** One that is forgotten with each that comes, and so many that are behind. */
  const MOST_AT_ONCE = 101
  const key = stateKey(redis.prefix)

  /** @returns the time after it */
  async function fill(): Promise<number> {
    for (let done = 0; done < ENTRIES; done += 1000) {
      const takes = Array.from({ length: 1000 }, (_, i) => ({ verb: 'take' as const, now: START_US + done + i }))
      await replayer.replay(redis.prefix, [wire], takes)
    }
    expect(await client.zcard(key)).toBeGreaterThan(ENTRIES)
    return START_US + 2 * WINDOW_US
  }

  const calls: [Verb, number][] = [
    ['take', 1],
    ['peek', 1],
    ['reserve', 1],
    ['settle', 1],
  ]

  test.each(calls)('go in bounded steps: %s of %i', async (verb, cost) => {
    const now = await fill()
    let used = 0
    for (let i = 0; i < 60; i++) {
      if (verb !== 'peek') used += 1
      await expectFewGo({ verb, now: now + i, cost }, LIMIT - used)
    }
    if (used > 0) expect(await client.zcard(key)).toBeLessThan(used + MOST_AT_ONCE)
  })

  test('go in bounded steps: a unit that is given back', async () => {
    const now = await fill()
    await replayer.replay(redis.prefix, [wire], [{ verb: 'take', now }])
    await expectFewGo({ verb: 'settle', now: now + 1, cost: -1 }, LIMIT)
  })

  async function expectFewGo(operation: Operation, left: number): Promise<void> {
    const gone = new Set(await client.zrange(key, '0', '-1'))
    const [answer] = await replayer.replay(redis.prefix, [wire], [operation])
    expect(answer).toMatchObject({ offset: 0, allowed: true, left })
    for (const member of await client.zrange(key, '0', '-1')) gone.delete(member)
    expect(gone.size).toBeLessThanOrEqual(MOST_AT_ONCE)
  }
})

describe('calendar days, weeks and months in a time zone', () => {
  /** UTC times of local midnights, one day after the other, with the hours between them. */
  const days = [
    ['Europe/Berlin', 'spring forward', '2026-03-28T23:00Z', '2026-03-29T22:00Z', 23],
    ['Europe/Berlin', 'the day after that', '2026-03-29T22:00Z', '2026-03-30T22:00Z', 24],
    ['Europe/Berlin', 'fall back', '2026-10-24T22:00Z', '2026-10-25T23:00Z', 25],
    ['Europe/Berlin', 'the day after that', '2026-10-25T23:00Z', '2026-10-26T23:00Z', 24],
    ['America/New_York', 'spring forward', '2026-03-08T05:00Z', '2026-03-09T04:00Z', 23],
    ['America/New_York', 'fall back', '2026-11-01T04:00Z', '2026-11-02T05:00Z', 25],
    ['Asia/Kolkata', 'any day', '2026-01-01T18:30Z', '2026-01-02T18:30Z', 24],
    // At midnight the clocks there go forward to 1:00: that day begins then.
    ['Africa/Cairo', 'spring forward at midnight', '2026-04-23T22:00Z', '2026-04-24T21:00Z', 23],
    // At 1:00 the clocks there go back to midnight, which they show twice: still one day.
    ['Atlantic/Azores', 'fall back to midnight', '2026-10-25T00:00Z', '2026-10-26T01:00Z', 25],
  ] as const

  test.each(days)('%s, %s: the window is the day from %s to %s', async (timeZone, _, from, to, hours) => {
    const [start, end] = [Date.parse(from) * 1000, Date.parse(to) * 1000]
    expect(end - start).toBe(hours * 3_600_000_000)
    const wire = encodeRule({ algorithm: 'fixed-window', rate: '1/day', align: 'day', timeZone })
    const within = Array.from({ length: hours * 4 }, (_, i) => start + i * 900_000_000)
    const operations: Operation[] = [
      { verb: 'take', now: start - 1 },
      ...within.map((now) => ({ verb: 'take' as const, now })),
      { verb: 'take', now: end - 1 },
      { verb: 'take', now: end },
    ]
    const answers = await replayer.replay(redis.prefix, [wire], operations)
    const allowed = answers.map(({ allowed }) => allowed)
    expect(allowed).toEqual([true, true, ...within.slice(1).map(() => false), false, true])
    expect(answers.slice(1, -1).map(({ resetAt }) => resetAt - end)).toEqual([...within, end - 1].map(() => 0))
    expect(answers[0]?.resetAt).toBe(start)
  })

  const periods = [
    ['week', 'UTC', 'Monday to Monday', '2025-12-29T00:00Z', '2026-01-05T00:00Z'],
    ['week', 'Europe/Berlin', 'spring forward', '2026-03-22T23:00Z', '2026-03-29T22:00Z'],
    ['week', 'Europe/Berlin', 'fall back', '2026-10-18T22:00Z', '2026-10-25T23:00Z'],
    ['month', 'UTC', 'of a leap year', '2028-02-01T00:00Z', '2028-03-01T00:00Z'],
    ['month', 'UTC', 'of another year', '2027-02-01T00:00Z', '2027-03-01T00:00Z'],
    ['month', 'Europe/Berlin', 'spring forward', '2026-02-28T23:00Z', '2026-03-31T22:00Z'],
    ['month', 'America/New_York', 'fall back', '2026-11-01T04:00Z', '2026-12-01T05:00Z'],
    ['month', 'Asia/Kolkata', 'over the end of a year', '2026-12-31T18:30Z', '2027-01-31T18:30Z'],
  ] as const

  test.each(periods)('%s in %s, %s: all of it is one window', async (align, timeZone, _, from, to) => {
    const [start, end] = [Date.parse(from) * 1000, Date.parse(to) * 1000]
    const wire = encodeRule({ algorithm: 'fixed-window', rate: `1/${align}`, align, timeZone })
    const operations = [start - 1, start, start + 1, (start + end) / 2, end - 1, end].map((now) => ({
      verb: 'take' as const,
      now,
    }))
    const answers = await replayer.replay(redis.prefix, [wire], operations)
    expect(answers.map(({ allowed }) => allowed)).toEqual([true, true, false, false, false, true])
    expect(answers.map(({ resetAt }) => resetAt).slice(0, -1)).toEqual([start, end, end, end, end])
  })
})
