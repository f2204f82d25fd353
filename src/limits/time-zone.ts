import { InvalidLimitError } from '../errors.ts'

const FIRST_YEAR = 2020
const LAST_YEAR = 2045
/** Clock changes of a zone are at least some weeks apart. */
const STEP_S = 14 * 86_400

const known = new Map<string, readonly number[]>()

/**
 * The offsets of a time zone from UTC: {from (s since 1970), offset (s)} pairs in one list, by time, up to 2045.
 * Scripts have no calendar; with this list, Redis's clock alone decides which day it is.
 * @param timeZone an IANA name
 * @param refusal thrown for any other name
 */
export function zoneOffsets(
  timeZone: string,
  refusal: new (message: string) => Error = InvalidLimitError,
): readonly number[] {
  const found = known.get(timeZone)
  if (found) return found
  const offsetAt = offsetReader(timeZone, refusal)
  const end = Date.UTC(LAST_YEAR, 0, 1) / 1000
  let at = Date.UTC(FIRST_YEAR, 0, 1) / 1000
  let offset = offsetAt(at)
  const pairs = [0, offset]
  for (; at < end; at += STEP_S) {
    const next = offsetAt(at + STEP_S)
    if (next !== offset) pairs.push(changeBetween(at, at + STEP_S, next, offsetAt), next)
    offset = next
  }
  known.set(timeZone, pairs)
  return pairs
}

/** The first second of the new offset. */
function changeBetween(before: number, after: number, offset: number, offsetAt: (at: number) => number): number {
  let low = before
  let high = after
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (offsetAt(middle) === offset) high = middle
    else low = middle
  }
  return high
}

function offsetReader(timeZone: string, refusal: new (message: string) => Error): (at: number) => number {
  let format: Intl.DateTimeFormat
  try {
    format = new Intl.DateTimeFormat('en', { timeZone, timeZoneName: 'longOffset' })
  } catch {
    throw new refusal(`timeZone must be an IANA name such as 'Europe/Berlin'; got ${JSON.stringify(timeZone)}`)
  }
  return (at) => {
    const name = format.formatToParts(at * 1000).find(({ type }) => type === 'timeZoneName')?.value ?? ''
    const [, sign, hours = 0, minutes = 0, seconds = 0] = /GMT([+-])(\d+):(\d+)(?::(\d+))?/.exec(name) ?? []
    const offset = Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)
    return sign === '-' ? -offset : offset
  }
}
