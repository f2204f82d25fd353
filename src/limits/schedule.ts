import { didYouMean } from '../call-options.ts'
import { InvalidRateError } from '../errors.ts'
import { formatRate, intervalUs, parseRate, type Rate, type RateInput } from '../rate.ts'
import { zoneOffsets } from './time-zone.ts'

/** A rate that follows the clock, such as quiet hours. */
export interface RateSchedule {
  /**
   * The entries of the schedule. One without `days`, `from` and `to` covers all the time that no other does. Entries
   * must not overlap, and must leave no gap.
   */
  readonly schedule: readonly ScheduledRate[]
  /** The IANA name of its time zone, such as `'Europe/Berlin'`. Default: UTC. */
  readonly timeZone?: string
}

export interface ScheduledRate {
  /** Days of the week, such as `'mon-fri'`, `'sat,sun'` or `'mon'`. Default: every day. */
  readonly days?: string
  /** `'HH:MM'` on the clock of the zone. Default `'00:00'`. */
  readonly from?: string
  /** `'HH:MM'`, after `from`. Default `'24:00'`. */
  readonly to?: string
  /** As in a shape; `0` lets nothing depart: jobs wait until the rate is above that again. */
  readonly rate: RateInput | 0
}

/** days, from and to, each '' if missing; limit, 0 for none, and period, ms. */
type StoredEntry = readonly [string, string, string, number, number]

/**
 * The fastest rate as [limit, period ms], and the schedule: zone, entries, pairs of a minute of the week (Monday 00:00
 * is 0) and the entry (the first is 1) that begins then, in one list, and the offsets of the zone as in `zoneOffsets`.
 */
export type StoredRate =
  | readonly [number, number]
  | readonly [number, number, readonly [string, readonly StoredEntry[], readonly number[], readonly number[]]]

/** An entry, and the minutes of the week that it covers: on these days, from `first` until before `last`. */
interface Hours {
  readonly stored: StoredEntry
  readonly days: readonly number[]
  readonly first: number
  readonly last: number
}

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
const DAY_MINUTES = 1440
const WEEK_MINUTES = 7 * DAY_MINUTES
const MOST_ENTRIES = 200
const FIELDS = ['days', 'from', 'to', 'rate']

/** Whether a given rate follows the clock. */
export function isScheduled(rate: unknown): rate is RateSchedule {
  return typeof rate === 'object' && rate !== null && 'schedule' in rate
}

/**
 * Checks a rate of a shape, fixed or with a schedule, and encodes it for storage.
 * @throws InvalidRateError
 */
export function encodeRate(value: unknown): StoredRate {
  if (!isScheduled(value)) return pairOf(parseRate(value as RateInput))
  const { schedule, timeZone = 'UTC', ...rest } = value
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) {
    throw new InvalidRateError(
      `rate has no field '${unknown}' next to schedule; it has timeZone${didYouMean(unknown, ['timeZone'])}`,
    )
  }
  if (!Array.isArray(schedule) || schedule.length === 0 || schedule.length > MOST_ENTRIES) {
    throw new InvalidRateError(
      `rate.schedule must be a list of 1 to ${MOST_ENTRIES} entries such as { days: 'mon-fri', from: '08:00', to: '20:00', rate: '50/s' }; got ${JSON.stringify(schedule)}`,
    )
  }
  const hours = schedule.map(hoursOf)
  const entries = hours.map(({ stored }) => stored)
  const fastest = entries.reduce((one, other) => (isFaster(other, one) ? other : one))
  if (fastest[3] === 0) throw new InvalidRateError('rate.schedule must have a rate above 0; to stop a queue, pause it')
  return [fastest[3], fastest[4], [timeZone, entries, weekOf(hours), zoneOffsets(timeZone, InvalidRateError)]]
}

/** A stored rate in its readable form. */
export function decodeRate([limit, periodMs, schedule]: StoredRate): string | RateSchedule {
  if (!schedule) return formatRate({ limit, periodMs })
  const [timeZone, entries] = schedule
  return {
    schedule: entries.map(([days, from, to, limit, periodMs]) => ({
      ...(days && { days }),
      ...(from && { from }),
      ...(to && { to }),
      rate: limit === 0 ? 0 : formatRate({ limit, periodMs }),
    })),
    timeZone,
  }
}

function pairOf({ limit, periodMs }: Rate): readonly [number, number] {
  return [limit, periodMs]
}

function isFaster([, , , limit, periodMs]: StoredEntry, [, , , than, thanMs]: StoredEntry): boolean {
  return limit > 0 && (than === 0 || intervalUs({ limit, periodMs }) < intervalUs({ limit: than, periodMs: thanMs }))
}

function hoursOf(entry: ScheduledRate, i: number): Hours {
  const at = `rate.schedule[${i}]`
  if (typeof entry !== 'object' || entry === null) {
    throw new InvalidRateError(`${at} must be an object with a rate; got ${JSON.stringify(entry)}`)
  }
  const unknown = Object.keys(entry).find((field) => !FIELDS.includes(field))
  if (unknown !== undefined) {
    const hint = didYouMean(unknown, FIELDS)
    throw new InvalidRateError(`${at} has no field '${unknown}'; it has ${FIELDS.join(', ')}${hint}`)
  }
  const { days = '', from = '', to = '', rate } = entry
  const named = daysOf(days === '' ? 'mon-sun' : days, at)
  const [first, last] = [minuteOf(from || '00:00', `${at}.from`), minuteOf(to || '24:00', `${at}.to`)]
  if (first >= last) {
    throw new InvalidRateError(
      `${at}.from must be before its to; got ${from || '00:00'} and ${to || '24:00'}. For hours over midnight, write two entries`,
    )
  }
  const stored = [days, from, to, ...(rate === 0 ? ([0, 1000] as const) : pairOf(rateOf(rate, at)))] as const
  // Without any of them it covers the time that no other does.
  return { stored, days: days || from || to ? named : [], first, last }
}

function rateOf(rate: RateInput, at: string): Rate {
  try {
    return parseRate(rate)
  } catch (error) {
    throw error instanceof InvalidRateError ? new InvalidRateError(`${at}: ${error.message}`) : error
  }
}

/** The indexes of days: 'mon-fri', 'sat,sun'. */
function daysOf(text: unknown, at: string): readonly number[] {
  const parts = typeof text === 'string' ? text.toLowerCase().split(',') : [undefined]
  return parts.flatMap((part) => {
    const [first, last, ...more] = (part?.split('-') ?? []).map((name) => DAYS.indexOf(name.trim()))
    if (first === undefined || first < 0 || (last !== undefined && last < 0) || more.length > 0) {
      throw new InvalidRateError(
        `${at}.days must be days such as 'mon-fri', 'sat,sun' or 'mon'; got ${JSON.stringify(text)}`,
      )
    }
    const count = last === undefined ? 1 : ((last - first + 7) % 7) + 1
    return Array.from({ length: count }, (_, i) => (first + i) % 7)
  })
}

function minuteOf(text: unknown, at: string): number {
  const [, hours, minutes] = (typeof text === 'string' && /^(\d\d):([0-5]\d)$/.exec(text)) || []
  const minute = Number(hours) * 60 + Number(minutes)
  if (minute <= DAY_MINUTES) return minute
  throw new InvalidRateError(`${at} must be a time from '00:00' to '24:00'; got ${JSON.stringify(text)}`)
}

/** When each entry applies, in stored form. */
function weekOf(entries: readonly Hours[]): number[] {
  const minutes = coveredBy(entries)
  const [rest, another] = [...entries.keys()].filter((i) => entries[i]?.days.length === 0)
  if (another !== undefined) {
    throw new InvalidRateError(
      `rate.schedule[${rest}] and [${another}] have no days, from or to: only one entry can hold for the rest of the time`,
    )
  }
  const gap = minutes.indexOf(0)
  if (rest === undefined && gap >= 0) {
    throw new InvalidRateError(
      `rate.schedule must cover the whole week; nothing covers ${momentText(gap)}. Add an entry with a rate alone, such as { rate: 0 }, for the rest of the time`,
    )
  }
  const week: number[] = []
  let before = 0
  for (let at = 0; at < WEEK_MINUTES; at++) {
    const entry = minutes[at] || (rest as number) + 1
    if (entry !== before) week.push(at, entry)
    before = entry
  }
  const unused = entries.findIndex((_, i) => !week.some((entry, at) => at % 2 === 1 && entry === i + 1))
  if (unused >= 0) {
    throw new InvalidRateError(`rate.schedule[${unused}] never applies: other entries cover the whole week`)
  }
  return week
}

/** The entry of each minute of the week, 0 for none. */
function coveredBy(entries: readonly Hours[]): Uint8Array {
  const minutes = new Uint8Array(WEEK_MINUTES)
  for (const [i, { days, first, last }] of entries.entries()) {
    for (const start of days.map((day) => day * DAY_MINUTES)) {
      for (let at = start + first; at < start + last; at++) {
        if (minutes[at]) throw overlap(minutes[at] as number, i + 1, at)
        minutes[at] = i + 1
      }
    }
  }
  return minutes
}

function overlap(one: number, other: number, minute: number): InvalidRateError {
  return new InvalidRateError(`rate.schedule[${one - 1}] and [${other - 1}] overlap: both cover ${momentText(minute)}`)
}

function momentText(minute: number): string {
  const [hours, minutes] = [Math.floor((minute % DAY_MINUTES) / 60), minute % 60]
  return `${DAYS[Math.floor(minute / DAY_MINUTES)]} ${String(hours).padStart(2, '0')}:${String(minutes).padStart(2, '0')}`
}
