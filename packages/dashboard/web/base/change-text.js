import { duration, number, rate, time } from './format.js'

/**
 * @typedef {import('../wire.d.ts').Change} Change
 * @typedef {import('sluice').RateSchedule} RateSchedule
 */

const KINDS = {
  declared: 'Declared',
  override: 'Override',
  cleared: 'Override cleared',
  pause: 'Paused',
  resume: 'Resumed',
  feedback: 'Feedback',
  restored: 'Restored',
  redrive: 'Redrive',
  group: 'Group',
  limit: 'Limit',
  job: 'Job',
}

const FEEDBACK_KINDS = {
  pause: 'pause',
  slow: 'slower',
  rise: 'faster',
  quota: 'paced to a quota',
  concurrency: 'fewer at once',
  resumed: 'resumed',
}

/** Fields of feedback that are internal, or shown elsewhere. */
const SHOWN_ELSEWHERE = ['kind', 'reason', 'by', 'at', 'until', 'hard', 'source', 'scope']

/**
 * @param {Change} change
 * @returns {string} who made it: of a worker's id the beginning is enough
 */
export function writerOf({ kind, by }) {
  if (kind !== 'feedback') return by
  return by === '' ? 'a worker' : `worker ${by.slice(0, 8)}`
}

/** @param {Change} change */
export function kindOf(change) {
  if (change.kind !== 'feedback') return KINDS[change.kind] ?? change.kind
  const what = FEEDBACK_KINDS[/** @type {keyof typeof FEEDBACK_KINDS} */ (String(change.change.kind))]
  return what === undefined ? KINDS.feedback : `${KINDS.feedback}: ${what}`
}

/**
 * @param {Change} change
 * @returns {string} what was changed, and until when
 */
export function whatOf(change) {
  if (change.kind === 'group') return [groupText(change.change), ...untilOf(change)].join(', ')
  if (change.kind === 'limit') return [limitText(change.change), ...untilOf(change)].join(', ')
  const hidden = change.kind === 'feedback' ? SHOWN_ELSEWHERE : []
  const fields = Object.entries(change.change).filter(([field]) => !hidden.includes(field))
  const group = change.kind === 'feedback' && /** @type {{ group?: string } | undefined} */ (change.change.scope)?.group
  if (group) fields.unshift(['group', group])
  return [...fields.map(([field, value]) => `${field} ${valueText(field, value)}`), ...untilOf(change)].join(', ')
}

/** @param {Change} change */
function untilOf({ until }) {
  return until === undefined ? [] : [`until ${time(until)}`]
}

/**
 * What was set for a group, or lifted: `{ clear: true }`.
 * @param {Change['change']} change
 */
function groupText({ group, ...fields }) {
  // A resume lifts whatever may hold the group.
  if (isCleared(fields.paused)) return `${group} resumed`
  return `${group} ${fieldTexts(fields)}`
}

/**
 * The same for one value of a limit's keys.
 * @param {Change['change']} change
 */
function limitText({ limit, keys, ...fields }) {
  return `${limit} of ${Object.values(Object(keys)).join(', ')} ${fieldTexts(fields)}`
}

/** @param {Change['change']} fields */
function fieldTexts(fields) {
  const texts = Object.entries(fields).map(([field, value]) => {
    if (value === true) return field
    return isCleared(value) ? `${field} cleared` : `${field} ${valueText(field, value)}`
  })
  return texts.join(', ')
}

/** @param {unknown} value */
function isCleared(value) {
  return /** @type {{ clear?: boolean } | undefined} */ (value)?.clear === true
}

/**
 * @param {string} field
 * @param {unknown} value
 * @returns {string}
 */
export function valueText(field, value) {
  if (value === null) return 'no limit'
  if (typeof value === 'number') return number(value) + (field === 'from' || field === 'rate' ? '/s' : '')
  if (typeof value === 'string') return field === 'rate' ? rate(value) : value
  if (field === 'rate' && Array.isArray(value))
    return rateOf(value[0], value[1]) + (value[2] ? ' and less, by a schedule' : '')
  if (field === 'rate') return scheduleText(/** @type {RateSchedule} */ (value))
  if (field === 'share') return `${number(Object(value).ofFree)} × the free places`
  if (field !== 'groups' && field !== 'durability') return JSON.stringify(value) ?? ''
  const parts = Object.entries(Object(value)).map(([name, part]) => [name, partText(name, part)].join(' '))
  return parts.join(', ') || 'no defaults'
}

/**
 * @param {RateSchedule} schedule
 * @returns {string} `50/s mon-fri 08:00 to 20:00; 5/s otherwise; Europe/Berlin`
 */
export function scheduleText({ schedule, timeZone = 'UTC' }) {
  const entries = schedule.map(({ days, from, to, rate: own }) => {
    const hours = (from ?? to) && `${from ?? '00:00'} to ${to ?? '24:00'}`
    const when = [days, hours].filter(Boolean).join(' ') || 'otherwise'
    return `${own === 0 ? 'closed' : valueText('rate', own)} ${when}`
  })
  return [...entries, timeZone].join('; ')
}

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {string}
 */
function partText(name, value) {
  return name.endsWith('Ms') ? duration(Number(value)) : valueText(name, value)
}

const PERIODS = /** @type {const} */ ([
  [1000, 's'],
  [60_000, 'min'],
  [3_600_000, 'h'],
  [86_400_000, 'day'],
])

/**
 * @param {number} limit
 * @param {number} periodMs as the shape stores it
 */
function rateOf(limit, periodMs) {
  const unit = PERIODS.find(([ms]) => ms === periodMs)?.[1]
  return unit === undefined ? `${number(limit)} in ${duration(periodMs)}` : `${number(limit)}/${unit}`
}
