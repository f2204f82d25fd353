import { count, duration, NONE, perSecond, plural, rate, time, timeIn } from './format.js'

/**
 * @typedef {import('../wire.d.ts').Queue} Queue
 * @typedef {import('../wire.d.ts').HoldCause} HoldCause
 */

/** What holds jobs, in the order in which it is shown, each cause with its colour. */
export const CAUSES = /** @type {const} */ ([
  { cause: 'rate', label: 'Rate', color: '--c-rate' },
  { cause: 'limits', label: 'Limits', color: '--c-limits' },
  { cause: 'concurrency', label: 'Concurrency', color: '--c-concurrency' },
  { cause: 'pause', label: 'Pause', color: '--c-pause' },
  { cause: 'workers', label: 'No worker', color: '--c-workers' },
])

/** Why the queue has its current rate. */
const RATE_CAUSES = {
  declared: 'declared',
  override: 'overridden',
  feedback: 'slowed by feedback',
  rampUp: 'rising slowly',
  closed: 'closed by its schedule',
  paused: 'paused',
  'meter paused': 'paused for a while',
  shadow: 'shadow: only counted',
  off: 'off',
  unpaced: 'no rate set',
}

/** @param {Queue} queue */
export function rateCause(queue) {
  // The rate reads so already.
  if (queue.cause === 'paused') return ''
  if (queue.cause === 'meter paused' && queue.pausedUntil !== undefined) return `until ${time(queue.pausedUntil)}`
  const until = nextChange(queue)
  const cause = RATE_CAUSES[queue.cause] ?? queue.cause
  if (until === '') return cause
  if (queue.cause === 'closed') return `closed until ${until}`
  return queue.cause === 'declared' ? `until ${until}` : `${cause}, until ${until}`
}

/**
 * @param {Pick<Queue, 'rateChangesAt' | 'shape'>} queue
 * @returns {string} when a schedule changes the rate next, on its clock; '' without one
 */
function nextChange({ rateChangesAt, shape }) {
  if (rateChangesAt === undefined) return ''
  return timeIn(rateChangesAt, shape?.schedule?.timeZone ?? 'UTC')
}

/**
 * @param {Queue} queue
 * @param {import('./flow.js').PerSecond} [flow]
 * @returns {string} what starts past the meter, beside what departs; '' where nothing does
 */
export function bypassesText({ bypass }, flow) {
  if (bypass === undefined) return ''
  // Not the last seconds' flow where more is known: such starts are found every two seconds, many at once.
  const rate = bypass.perSecond ?? flow?.bypasses
  return rate === undefined ? 'more past the meter' : `+ ${perSecond(rate)} past the meter`
}

/** @param {Queue} queue */
export function rateNow(queue) {
  if (queue.cause === 'paused' || queue.cause === 'meter paused') return 'paused'
  return rate(queue.rate)
}

/**
 * @param {Pick<Queue, 'concurrency'>} queue
 * @returns {string} `10 declared, 1 effective (feedback, until 21:05)`; where both are the same, the number alone
 */
export function concurrencyText({ concurrency }) {
  if (concurrency === undefined) return 'no limit'
  const { set, inForce, cause, until } = concurrency
  if (set === inForce) return count(inForce)
  const why = `${cause}${until === undefined ? '' : `, until ${time(until)}`}`
  return `${set === undefined ? 'none' : count(set)} declared, ${count(inForce)} effective (${why})`
}

/**
 * @param {Pick<Queue, 'depth' | 'capacity' | 'shape'>} queue
 * @returns {string} why it holds more jobs than its capacity; '' where it does not
 */
export function overCapacityText({ depth, capacity, shape }) {
  if (capacity === undefined || depth <= capacity) return ''
  const lowered = shape?.overrides.capacity ? 'an override may have lowered the capacity; ' : ''
  return `${count(depth - capacity)} over: ${lowered}retried jobs, redriven jobs and jobs added past Sluice take a place without asking`
}

/** @param {Queue} queue */
export function headAge({ headAgeMs }) {
  return headAgeMs === undefined ? NONE : duration(headAgeMs)
}

/**
 * @param {Queue} queue
 * @returns {string} '' where the job that leaves next is the oldest
 */
export function oldestText({ headAgeMs, oldestAgeMs }) {
  if (headAgeMs === undefined || oldestAgeMs === undefined || oldestAgeMs <= headAgeMs) return ''
  return `oldest ${duration(oldestAgeMs)}`
}

/**
 * @param {Pick<Queue, 'workers'>} queue
 * @returns {string} `2 workers, 10 of 10 places taken, 1 paused`; '' where none has reported
 */
export function placesText({ workers }) {
  if (workers.length === 0) return ''
  const taken = workers.reduce((sum, { running, held }) => sum + running + held, 0)
  const places = workers.reduce((sum, { concurrency }) => sum + concurrency, 0)
  const away = (/** @type {string} */ state) => workers.filter((worker) => worker.state === state).length
  const parts = [
    `${plural(workers.length, 'worker')}, ${count(taken)} of ${count(places)} places taken`,
    away('paused') > 0 && `${count(away('paused'))} paused`,
    away('overloaded') > 0 && `${count(away('overloaded'))} overloaded`,
  ]
  return parts.filter(Boolean).join(', ')
}

/**
 * @param {NonNullable<Queue['groups']>} groups
 * @returns {string} `1 group paused, 2 by their rate`; '' where none is held
 */
export function heldGroupsText({ paused, maxed, limited }) {
  const parts = [
    paused > 0 && `${plural(paused, 'group')} paused`,
    maxed > 0 && `${plural(maxed, 'group')} held by running jobs`,
    limited > 0 && `${plural(limited, 'group')} held by ${limited === 1 ? 'its' : 'their'} rate`,
  ]
  return parts.filter(Boolean).join(', ')
}
