import type { HttpAnswer } from '../answer.ts'
import { field } from './field.ts'

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const DAY = '(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)'
const LONG_DAY = '(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)'
const MONTH = `(?<month>${MONTHS.join('|')})`
const CLOCK = String.raw`(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)`

/**
 * IMF-fixdate, and the two obsolete forms that RFC 9110 §5.6.7 requires recipients to accept: RFC 850's and asctime's.
 */
const HTTP_DATES = [
  String.raw`^${DAY}, (?<day>\d\d) ${MONTH} (?<year>\d{4}) ${CLOCK} GMT$`,
  String.raw`^${LONG_DAY}, (?<day>\d\d)-${MONTH}-(?<year>\d\d) ${CLOCK} GMT$`,
  String.raw`^${DAY} ${MONTH} (?<day>[ \d]\d) ${CLOCK} (?<year>\d{4})$`,
].map((form) => new RegExp(form))

/** RFC 3339; ISO 8601 without seconds or without the colon of its offset, which some servers send, is accepted too. */
const RFC_3339 = new RegExp(
  String.raw`^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)[Tt ](?<hour>\d\d):(?<minute>\d\d)(?::(?<second>\d\d)` +
    String.raw`(?<fraction>\.\d{1,9})?)?(?:[Zz]|(?<sign>[+-])(?<offsetHour>\d\d):?(?<offsetMinute>\d\d))$`,
)

type Parts = Readonly<Record<string, string | undefined>>

/**
 * An HTTP-date in any of its three forms, ms since 1970. Forms are matched, never guessed: `Date.parse('-1')` is a
 * date.
 * @param nowMs decides the century of a two-digit year: no such date is more than 50 years ahead (RFC 9110 §5.6.7)
 */
export function parseHttpDate(text: string, nowMs: number): number | undefined {
  for (const form of HTTP_DATES) {
    const parts: Parts | undefined = form.exec(text)?.groups
    if (parts) return instantOf(parts, MONTHS.indexOf(parts.month ?? ''), yearOf(parts.year ?? '', nowMs))
  }
  return undefined
}

/** A date and time of RFC 3339, ms since 1970. */
export function parseRfc3339(text: string): number | undefined {
  const parts: Parts | undefined = RFC_3339.exec(text)?.groups
  if (!parts) return undefined
  const instant = instantOf(parts, Number(parts.month) - 1, Number(parts.year))
  if (instant === undefined) return undefined
  const offsetMs = (Number(parts.offsetHour ?? 0) * 60 + Number(parts.offsetMinute ?? 0)) * 60_000
  const fractionMs = Math.floor(Number(parts.fraction ?? 0) * 1000)
  return instant + fractionMs + (parts.sign === '-' ? offsetMs : -offsetMs)
}

/**
 * When the answer was made, on the downstream's clock: its `Date`, which has whole seconds and so is up to one second
 * early, which makes waits longer, not shorter. Without it, when the answer arrived.
 */
export function peerNowMs(answer: HttpAnswer): number {
  return parseHttpDate(field(answer, 'date') ?? '', answer.receivedAtMs) ?? answer.receivedAtMs
}

function instantOf({ day, hour, minute, second = '0' }: Parts, month: number, year: number): number | undefined {
  const instant = new Date(0)
  instant.setUTCFullYear(year, month, Number(day))
  // 31 February and 24:00 are invalid; 23:59:60 is valid.
  if (instant.getUTCMonth() !== month || instant.getUTCDate() !== Number(day)) return undefined
  if (Number(hour) > 23 || Number(minute) > 59 || Number(second) > 60) return undefined
  return instant.setUTCHours(Number(hour), Number(minute), Number(second))
}

function yearOf(digits: string, nowMs: number): number {
  if (digits.length === 4) return Number(digits)
  const thisYear = new Date(nowMs).getUTCFullYear()
  const year = Math.floor(thisYear / 100) * 100 + Number(digits)
  return year > thisYear + 50 ? year - 100 : year
}
