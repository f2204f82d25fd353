import { describe, expect, test } from 'vitest'
import { encodeRate, type ScheduledRate } from '../../src/limits/schedule.ts'
import { gridIntervalUs } from '../../src/rate.ts'
import { LuaComposer } from '../../src/redis/lua-composer.ts'
import { readLuaFile } from '../../src/redis/lua-files.ts'
import { ServiceCurve } from '../../src/shape/service-curve.ts'
import { useRedis } from '../support/redis.ts'

const client = useRedis(import.meta.url).client()

const OPEN: readonly ScheduledRate[] = [
  { days: 'mon-sat', from: '01:30', to: '03:15', rate: '1/s' },
  { days: 'sun', from: '01:30', to: '02:45', rate: '1/s' },
  { days: 'sun', from: '03:15', to: '05:00', rate: '1/s' },
  { days: 'sun', from: '05:00', to: '06:15', rate: '15/min' },
  { rate: 0 },
]
const QUARTER_US = 900_000_000

/** [zone, from, to]: both changes of the clock in three zones, a leap day, and zones that changed their laws. */
const SPANS: readonly [zone: string, from: string, to: string][] = [
  ['Europe/Berlin', '2026-03-28', '2026-03-31'],
  ['Europe/Berlin', '2026-10-24', '2026-10-27'],
  ['America/New_York', '2027-03-13', '2027-03-16'],
  ['America/New_York', '2026-10-31', '2026-11-03'],
  ['Australia/Lord_Howe', '2026-04-04', '2026-04-07'],
  ['Australia/Lord_Howe', '2026-10-03', '2026-10-06'],
  ['Europe/Berlin', '2028-02-28', '2028-03-02'],
  ['Africa/Cairo', '2023-04-27', '2023-04-30'],
  ['Asia/Amman', '2022-10-27', '2022-10-30'],
]

type Found = [served: [service: string, ...next: string[]][], pieces: number]

/**
 * For each two neighbours of the given times: the service between them, and when it goes on after the first: asked after
 * all before, alone, and from the first of all; and the pieces that the first two took.
 */
const served = new LuaComposer(readLuaFile).text(`
local as_text = use 'redis/as-text'
local bucket = use 'meter/bucket'
local service = use 'meter/service'
local rate, found = cjson.decode(ARGV[1]), {}
local function new() return service.of(rate, bucket.interval(rate)) end
local s, first = new(), tonumber(ARGV[2])
for i = 2, #ARGV - 1 do
  local from, to = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  found[#found + 1] = {
    as_text.us(service.between(s, from, to)), as_text.us(service.after(s, from, 0)),
    as_text.us(service.after(new(), from, 0)),
    as_text.us(service.after(new(), first, service.between(new(), first, from))),
  }
end
return { found, #s.t }`)

/** The day and the minute on the clock of a zone, by Intl alone. */
function clockOf(timeZone: string): (us: number) => { day: string; minute: number } {
  const format = new Intl.DateTimeFormat('en-GB', {
    ...{ timeZone, weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' },
  })
  return (us) => {
    const parts = Object.fromEntries(format.formatToParts(us / 1000).map(({ type, value }) => [type, value]))
    return { day: (parts.weekday as string).toLowerCase(), minute: Number(parts.hour) * 60 + Number(parts.minute) }
  }
}

/** The rate in force, as a part of the fastest one. */
function speedAt({ day, minute }: { day: string; minute: number }): number {
  if (day !== 'sun') return minute >= 90 && minute < 195 ? 1 : 0
  if (minute >= 300 && minute < 375) return 1 / 4
  return (minute >= 90 && minute < 165) || (minute >= 195 && minute < 300) ? 1 : 0
}

describe.each(SPANS)('%s from %s to %s', (timeZone, from, to) => {
  const rate = encodeRate({ schedule: OPEN, timeZone })
  const [startUs, endUs] = [Date.parse(from) * 1000, Date.parse(to) * 1000]
  const quarters = Array.from({ length: (endUs - startUs) / QUARTER_US }, (_, i) => startUs + i * QUARTER_US)
  const clock = clockOf(timeZone)
  const expected = quarters.map((us) => QUARTER_US * speedAt(clock(us)))
  /** The first quarter from there on that is open. */
  const openFrom = (i: number) => quarters[expected.findIndex((served, at) => at >= i && served > 0)]
  const servedIn = (curve: ServiceCurve) => (us: number) => Number(curve.at(us + QUARTER_US) - curve.at(us)) / 1024

  test('what is served in each quarter of an hour is what the clock of the zone says', () => {
    const curve = new ServiceCurve(rate, gridIntervalUs(1, 1000), startUs)
    expect(quarters.map(servedIn(curve))).toEqual(expected)
    for (const [i, us] of quarters.entries()) {
      const open = openFrom(i)
      if (open !== undefined) expect(curve.when(curve.at(us))).toBe(open)
    }
  })

  test('and so is the speed from each time on at which it changes', () => {
    const curve = new ServiceCurve(rate, gridIntervalUs(1, 1000), startUs)
    const speeds = quarters.map((us) => [us, speedAt(clock(us))] as const)
    const changes = speeds.filter(([, speed], i) => speed !== speeds[i - 1]?.[1])
    expect(curve.speeds(startUs, endUs)).toEqual(changes)
  })

  test('also before the time at which the curve begins', () => {
    const curve = new ServiceCurve(rate, gridIntervalUs(1, 1000), endUs)
    expect(quarters.toReversed().map(servedIn(curve))).toEqual(expected.toReversed())
    const late = new ServiceCurve(rate, gridIntervalUs(1, 1000), endUs)
    expect(late.when(late.at(endUs) - (curve.at(endUs) - curve.at(startUs)))).toBe(openFrom(0))
  })

  test('and so it is in the scripts', async () => {
    const [found] = (await client.eval(served, 0, JSON.stringify(rate), ...quarters, endUs)) as Found
    expect(found.map(([served]) => Number(served))).toEqual(expected)
    for (const [i, [, ...next]] of found.entries()) {
      const open = openFrom(i)
      if (open !== undefined) expect(next.map(Number)).toEqual([open, open, open])
    }
  })

  test('over decades, too, and without a search through each of their days', async () => {
    const years = [0, 1, 30].map((count) => startUs + count * 365 * 86_400_000_000)
    const [found, pieces] = (await client.eval(served, 0, JSON.stringify(rate), ...years, 9e15)) as Found
    expect(pieces).toBeLessThan(100)
    const curve = new ServiceCurve(rate, gridIntervalUs(1, 1000), startUs)
    const expected = [0, 1].map((i) => Number(curve.at(years[i + 1]!) - curve.at(years[i]!)) / 1024)
    expect(found.slice(0, 2).map(([us]) => Number(us))).toEqual(expected)
    expect(Number(found[2]![1])).toBe(curve.when(curve.at(years[2]!)))
  })
})
