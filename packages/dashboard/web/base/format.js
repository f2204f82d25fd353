// Without Intl: on a phone its first use takes longer than all else before the page is shown.
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

const UNITS_MS = { ms: 1, s: 1000, min: 60_000, h: 3_600_000, day: 86_400_000 }
const RATE = /^([\d.]+(?:e[+-]?\d+)?)\/([\d.]*)(ms|s|min|h|day)$/i

/** Shown where there is no value. */
export const NONE = '–'

/**
 * @param {number | undefined | null} value
 * @returns {string} with three significant digits, and with thousands separators
 */
export function number(value) {
  if (value === undefined || value === null || !Number.isFinite(value)) return NONE
  if (Math.abs(value) >= 100) return whole(value)
  return String(Number(value.toPrecision(value === 0 ? 1 : 3)))
}

/** @param {number | undefined | null} value */
export function count(value) {
  return value === undefined || value === null ? NONE : whole(value)
}

/** @param {number} value */
function whole(value) {
  const digits = String(Math.round(Math.abs(value)))
  let text = digits.slice(-3)
  for (let end = digits.length - 3; end > 0; end -= 3) text = `${digits.slice(Math.max(0, end - 3), end)},${text}`
  return value < 0 && digits !== '0' ? `-${text}` : text
}

const BYTES = ['B', 'kB', 'MB', 'GB', 'TB']

/**
 * @param {number} value
 * @returns {string} as Redis counts: 1 kB is 1,024 bytes
 */
export function bytes(value) {
  const unit = Math.min(BYTES.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10))
  return `${number(value / 1024 ** unit)} ${BYTES[unit]}`
}

/** @param {number | undefined} value per second */
export function perSecond(value) {
  return value === undefined ? NONE : `${number(value)}/s`
}

/** @param {number | undefined | null} ms */
export function duration(ms) {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return NONE
  if (ms < 1) return ms <= 0 ? '0 s' : `${number(ms)} ms`
  if (ms < 1000) return `${Number(ms.toPrecision(2))} ms`
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(ms < 10_000 ? 1 : 0))} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3600) return twoParts(seconds, 60, 'min', 's')
  if (seconds < 86_400) return twoParts(Math.round(seconds / 60), 60, 'h', 'min')
  return twoParts(Math.round(seconds / 3600), 24, 'd', 'h')
}

/**
 * @param {number} small
 * @param {number} each
 * @param {string} bigUnit
 * @param {string} smallUnit
 */
function twoParts(small, each, bigUnit, smallUnit) {
  const rest = small % each
  return `${Math.floor(small / each)} ${bigUnit}${rest > 0 ? ` ${rest} ${smallUnit}` : ''}`
}

/**
 * @param {string | number | Date | undefined} at
 * @param {Date} [now]
 * @returns {string} the time of day, with the day where that is not today
 */
export function time(at, now = new Date()) {
  if (at === undefined) return NONE
  const date = new Date(at)
  const isToday = date.toDateString() === now.toDateString()
  return isToday ? clock(date) : `${date.getDate()} ${MONTHS[date.getMonth()]}, ${clock(date)}`
}

/**
 * @param {Date} date
 * @param {boolean} [hasSeconds]
 */
export function clock(date, hasSeconds = true) {
  const parts = [date.getHours(), date.getMinutes(), ...(hasSeconds ? [date.getSeconds()] : [])]
  return parts.map((part) => String(part).padStart(2, '0')).join(':')
}

/**
 * On the clock that a schedule follows. Only there Intl is worth its first use.
 * @param {string} at
 * @param {string} timeZone
 * @returns {string} `Mon 08:00 Europe/Berlin`
 */
export function timeIn(at, timeZone) {
  const parts = /** @type {const} */ ({ weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
  return `${new Date(at).toLocaleString('en-GB', { ...parts, timeZone }).replace(',', '')} ${timeZone}`
}

/**
 * @param {string | undefined} text a rate as Sluice writes it, `100/15min`
 * @returns {number | undefined} units per second
 */
export function unitsPerSecond(text) {
  const [, limit, periods, unit] = RATE.exec(text ?? '') ?? []
  if (limit === undefined || unit === undefined) return undefined
  const unitMs = UNITS_MS[/** @type {keyof typeof UNITS_MS} */ (unit.toLowerCase())]
  return (Number(limit) * 1000) / (Number(periods || 1) * unitMs)
}

/** @param {string | undefined} text a rate; long fractions are cut */
export function rate(text) {
  if (text === undefined) return 'not paced'
  const [, limit, periods, unit] = RATE.exec(text) ?? []
  return limit === undefined ? text : `${number(Number(limit))}/${periods}${unit}`
}

/**
 * @param {number} many
 * @param {string} one
 * @param {string} [more]
 */
export function plural(many, one, more = `${one}s`) {
  return `${count(many)} ${many === 1 ? one : more}`
}
